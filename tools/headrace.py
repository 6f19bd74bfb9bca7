"""The `headrace` command; its subcommands are one file each in `cli/`."""

from __future__ import annotations

import gc
import sys

from headrace.tools.cli import execute


def main() -> None:
    """Entry point of the console script."""
    gc.disable()  # one command, then the process ends: looking for garbage among what lives till then only costs time
    code = execute(sys.argv[1:], reproducers=True)
    gc.freeze()  # or Python looks through everything once more before it ends
    sys.exit(code)


if __name__ == "__main__":
    main()
