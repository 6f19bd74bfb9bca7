"""`python -m headrace.tools.docs [ROOT] [--check]`."""

import sys
from pathlib import Path

from headrace.tools.docs import run

given = [argument for argument in sys.argv[1:] if argument != "--check"]
sys.exit(run(Path(given[0]) if given else Path.cwd(), "--check" in sys.argv[1:]))
