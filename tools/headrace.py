"""The `headrace` command; its subcommands are one file each in `cli/`."""

from __future__ import annotations

import sys

from headrace.tools.cli import execute


def main() -> None:
    """Entry point of the console script."""
    sys.exit(execute(sys.argv[1:]))


if __name__ == "__main__":
    main()
