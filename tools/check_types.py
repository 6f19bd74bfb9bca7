"""Runs pyright over the source by its package names, and fails when it did not look at every file.

    python -m headrace.tools.check_types [ROOT] [PREFIX …]

Pyright does not see the import hook that maps `dialects/` to `headrace.dialects`; it gets the tree through links in
build/typing. Given folders it follows no link and reports no errors over no files, so it gets every file by name.
PREFIX (such as `passes/infra`) limits the check. The mode is strict; files that opt out (`# pyright: basic`) are
counted.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from headrace.tools.check_repo import TOPS, sources


def link(root: Path) -> Path:
    """Make build/typing/headrace, a package of links to the source; its path."""
    package = root / "build" / "typing" / "headrace"
    package.mkdir(parents=True, exist_ok=True)
    wanted = {top: Path("../../..") / top for top in TOPS}
    facade = root / "tools" / "api"
    wanted |= {p.name: Path("../../../tools/api") / p.name for p in facade.iterdir() if p.suffix == ".py"}
    for old in package.iterdir():
        if old.name not in wanted:
            old.unlink()
    for name, target in wanted.items():
        place = package / name
        if not place.is_symlink() or Path(os.readlink(place)) != target:
            place.unlink(missing_ok=True)
            place.symlink_to(target)
    return package


def files(root: Path, prefixes: list[str]) -> list[Path]:
    """Every source file below its link."""
    package = link(root)
    found: list[Path] = []
    for path in sources(root):
        if prefixes and not any(str(path).startswith(p) for p in prefixes):
            continue
        inside = path.relative_to("tools/api") if path.parts[:2] == ("tools", "api") else path
        found.append(package / inside)
    return found


def run(root: Path, prefixes: list[str]) -> int:
    """Check; the exit code. Errors are printed as `file:line:col: message`."""
    wanted = files(root, prefixes)
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, wanted)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    try:
        result = json.loads(done.stdout)
    except json.JSONDecodeError:
        print(f"check_types: pyright did not run:\n{done.stdout}{done.stderr}", file=sys.stderr)
        return 1
    errors = [one for one in result["generalDiagnostics"] if one["severity"] == "error"]
    for one in errors:
        start = one["range"]["start"]
        where = one["file"].removeprefix(f"{root / 'build' / 'typing' / 'headrace'}{os.sep}")
        print(f"{where}:{start['line'] + 1}:{start['character'] + 1}: {one['message']} [{one.get('rule', '')}]")
    analyzed = result["summary"]["filesAnalyzed"]
    by_folder = Counter(Path(one["file"]).parent.name for one in errors)
    folders = ", ".join(f"{name} {count}" for name, count in sorted(by_folder.items()))
    loose = sum(bool(re.search(r"^# pyright: basic", p.read_text(encoding="utf-8"), re.M)) for p in wanted)
    print(
        f"check_types: {len(errors)} errors in {analyzed} files{f' ({folders})' if folders else ''}, {loose} not strict"
    )
    if analyzed < len(wanted) or not wanted:
        print(f"check_types: pyright looked at {analyzed} of {len(wanted)} files", file=sys.stderr)
        return 1
    return 1 if errors else 0


def main() -> int:
    """Entry point."""
    arguments = sys.argv[1:]
    root = Path(arguments.pop(0)) if arguments and (Path(arguments[0]) / "pyproject.toml").exists() else Path.cwd()
    return run(root.resolve(), arguments)


if __name__ == "__main__":
    sys.exit(main())
