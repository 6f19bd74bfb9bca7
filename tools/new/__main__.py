"""`python -m headrace.tools.new`."""

from __future__ import annotations

import sys

from headrace.tools.new import main

sys.exit(main())
