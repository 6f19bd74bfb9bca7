"""Lets the tests here import the hand-written `programs` of the runtime's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
