"""Runs `lit` over this folder, every test cold (see `lit_format`), and fails unless every .mlir file really ran and
passed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from headrace.tools.run_lines import IGNORED


def main() -> int:
    """Exit code 0 when lit passed as many tests as there are files, and there are some."""
    suite = Path(__file__).parent
    files = [p for p in suite.rglob("*.mlir") if not IGNORED & set(p.relative_to(suite).parts)]
    lit = Path(sys.executable).with_name("lit")
    done = subprocess.run(
        [lit, "-sv", "--no-progress-bar", "-Dcold=1", suite], capture_output=True, text=True, check=False
    )
    print(done.stdout + done.stderr)
    passed = re.search(r"^\s*Passed\s*:\s*(\d+)", done.stdout, re.M)
    ran = int(passed[1]) if passed else 0
    print(f"lit: {ran} of {len(files)} files passed")
    return 0 if done.returncode == 0 and 0 < ran == len(files) else 1


if __name__ == "__main__":
    sys.exit(main())
