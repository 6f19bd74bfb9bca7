"""`python -m headrace.tools.update_tests`."""

from __future__ import annotations

import sys

from headrace.tools.update_tests import main

sys.exit(main())
