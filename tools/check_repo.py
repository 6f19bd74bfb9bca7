"""Checks of the repository that no linter makes: layers, packaging, test names, tests that test nothing, stray text.

    python -m headrace.tools.check_repo [ROOT]

Prints `file:line: rule: message` for everything found; exit code 1 if there is anything.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from headrace.tools.run_lines import IGNORED, run_lines

TOPS = ("dialects", "passes", "frontends", "backend", "runtime", "tools")
LEVELS = ("tensor", "dataflow", "rdu")


class Finding(NamedTuple):
    """One thing wrong: file (relative to the root), line (0: the file as a whole), rule and message."""

    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}{f':{self.line}' if self.line else ''}: {self.rule}: {self.message}"


# ------------------------------------------------------------------------------------------------------ import layers


@dataclass(frozen=True)
class Layer:
    """What the modules under `name` may import: `ours` as prefixes below headrace, `others` as top-level names."""

    name: str
    ours: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


_BASE = ("dialects.support", "dialects.machine")
_PASS = (*_BASE, "dialects.tensor", "passes.analysis", "passes.infra")
_IMPORTER = (
    *("dialects.tensor", "dialects.support"),
    *(f"frontends.{shared}" for shared in ("base", "building", "convolution", "random")),
)

# The most specific layer counts. A layer may always import itself, except that passes never import each other.
LAYERS = (
    Layer("dialects.support", (), ("xdsl", "numpy", "ml_dtypes", "safetensors")),
    Layer("dialects.support.access"),
    Layer("dialects.machine", ("dialects.support",), ("xdsl",)),
    Layer("dialects.tensor", _BASE, ("xdsl", "numpy", "ml_dtypes")),
    Layer("dialects.tensor.shapes", ("dialects.support",)),
    Layer("dialects.tensor.meaning", ("dialects.support", "dialects.tensor.shapes"), ("numpy", "ml_dtypes")),
    Layer("dialects.dataflow", (*_BASE, "dialects.tensor"), ("xdsl", "numpy", "ml_dtypes")),
    Layer("dialects.rdu", (*_BASE, "dialects.tensor"), ("xdsl", "numpy", "ml_dtypes")),
    Layer("passes.infra", ("dialects.support",), ("xdsl",)),
    Layer("passes.analysis", ("dialects", "passes.infra"), ("xdsl", "numpy", "scipy", "yaml")),
    Layer("passes.tensor", _PASS, ("xdsl", "numpy", "ml_dtypes")),
    Layer("passes.dataflow", (*_PASS, "dialects.dataflow"), ("xdsl", "numpy")),
    Layer("passes.rdu", (*_PASS, "dialects.rdu"), ("xdsl", "numpy")),
    Layer("passes.convert", (*_PASS, "dialects.dataflow", "dialects.rdu"), ("xdsl", "numpy")),
    Layer("passes.pipelines", ("passes", "dialects"), ("xdsl",)),
    Layer("frontends", ("dialects.tensor", "dialects.support"), ("xdsl", "numpy", "ml_dtypes")),
    Layer(
        "frontends.onnx",
        _IMPORTER,
        ("xdsl", "numpy", "ml_dtypes", "onnx"),
    ),
    Layer(
        "frontends.torch",
        _IMPORTER,
        ("xdsl", "numpy", "ml_dtypes", "torch"),
    ),
    Layer(
        "frontends.torch.models",
        (*_IMPORTER, "frontends.torch"),
        ("xdsl", "numpy", "ml_dtypes", "torch", "transformers"),
    ),
    # The artifact is runtime.artifact's manifest around runtime.table's encoding of runtime.program: one format in
    # three files, which the writer writes and the runtime reads.
    Layer(
        "backend",
        ("dialects", "runtime.artifact", "runtime.program", "runtime.table"),
        ("xdsl", "numpy", "ml_dtypes", "safetensors"),
    ),
    Layer("runtime", ("dialects",), ("numpy", "ml_dtypes")),
    Layer("runtime.cluster", ("dialects", "runtime"), ("numpy", "ml_dtypes", "torch")),
    Layer("tools", ("",), ("xdsl", "numpy", "ml_dtypes", "onnx", "safetensors")),
    # The audit asks nobody: no pass, no verifier, no derivation of the runtime, only what the IR and the device say.
    Layer(
        "tools.audit",
        (
            *("dialects.support", "dialects.machine.device", "dialects.machine.attributes"),
            *("dialects.rdu.ops", "dialects.tensor.base", "dialects.tensor.shapes"),
        ),
        ("xdsl", "numpy"),
    ),
    Layer("tools.audit.artifact", ("dialects.machine.device", "runtime.program", "tools.audit.program"), ("numpy",)),
    Layer("tools.run_lines", ("",), ("filecheck",)),
    Layer("tools.api", ("",), ("xdsl", "numpy", "ml_dtypes", "onnx", "safetensors", "pygments", "torch")),
    Layer("tools.lexer", (), ("pygments",)),
    Layer("tools.docs", ("",), ("xdsl", "numpy", "ml_dtypes", "onnx", "safetensors", "mkdocs")),
    Layer("tools.cli", ("",), ("xdsl", "numpy", "ml_dtypes", "onnx", "safetensors", "click", "onnxruntime")),
    Layer("tools.cli.module", ("",), ("click", "torch")),
    Layer(
        "tools.bench",
        ("",),
        ("xdsl", "numpy", "ml_dtypes", "onnx", "safetensors", "onnxruntime", "threadpoolctl", "torch"),
    ),
)
# NumPy costs as much start-up time as half of xDSL, and reading or verifying IR needs none of it.
NO_NUMPY_AT_IMPORT = (
    "dialects",
    "passes.infra",
    "tools.opt",
    "tools.check_repo",
    "tools.docs",
    "tools.debug",
    "tools.cli",
    "tools.headrace",
    "tools.api",
)
NUMPY_AT_IMPORT = (
    "dialects.tensor.meaning",
    "dialects.tensor.interpreter",
    "dialects.dataflow.interpreter",
    "dialects.rdu.interpreter",
    "dialects.support.weights",
)


class Import(NamedTuple):
    """One imported module; `lazy` when it is inside a function or only for type checkers."""

    module: str
    line: int
    lazy: bool


def imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[Import]:
    """Every import of a module, as absolute names; `from a import b` gives `a.b`."""
    lazy: set[int] = set()
    for node in ast.walk(tree):
        deferred = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if deferred or typing_only:
            lazy.update(id(inner) for inner in ast.walk(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(name.name, node.lineno, id(node) in lazy)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")[
                    : None if is_package and node.level == 1 else 1 - node.level - (not is_package)
                ]
                base = ".".join([*parts, *([node.module] if node.module else [])])
            for name in node.names:
                yield Import(f"{base}.{name.name}", node.lineno, id(node) in lazy)


def under(name: str, prefix: str) -> bool:
    """Whether module `name` is `prefix` or below it; everything is below the empty prefix."""
    return not prefix or name == prefix or name.startswith(prefix + ".")


def module_name(path: Path) -> str:
    """The name below headrace of a file, given relative to the root; tools/api is headrace itself."""
    parts = list(path.with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def layer_of(name: str) -> Layer | None:
    """The most specific layer of a module."""
    mine = [layer for layer in LAYERS if under(name, layer.name)]
    return max(mine, key=lambda layer: len(layer.name), default=None)


def check_layers(root: Path) -> Iterator[Finding]:
    """The import table."""
    for path in sources(root):
        name = module_name(path)
        try:
            tree = ast.parse((root / path).read_text(encoding="utf-8"))
        except SyntaxError as error:
            yield Finding(str(path), error.lineno or 0, "syntax", str(error.msg))
            continue
        if ast.get_docstring(tree) is None:
            yield Finding(str(path), 1, "docstring", "a module says what it is for")
        layer = layer_of(name)
        for one in imports(tree, f"headrace.{name}", path.name == "__init__.py"):
            message = _fault(name, layer, one, root)
            if message:
                yield Finding(str(path), one.line, "layers", message)


def _fault(name: str, layer: Layer | None, one: Import, root: Path) -> str:
    top = one.module.partition(".")[0]
    if top in TOPS and (root / top).is_dir():
        return f"'{one.module}' is the bare folder; import 'headrace.{one.module}'"
    if top == "xdsl" and any(part.startswith("_") and part != "__init__" for part in one.module.split(".")):
        if not under(name, "passes.infra") and not under(name, "dialects.support"):
            return f"'{one.module}' is private to xDSL; only passes.infra and dialects.support may use it"
        return ""
    if top == "headrace":
        return _our_fault(name, layer, one.module.partition(".")[2])
    if top in sys.stdlib_module_names:
        return ""
    if layer is None or top not in layer.others:
        return f"'{layer.name if layer else name}' may not import '{top}'"
    early = top == "numpy" and not one.lazy and not any(under(name, p) for p in NUMPY_AT_IMPORT)
    if early and any(under(name, p) for p in NO_NUMPY_AT_IMPORT):
        return "NumPy is imported where an op is evaluated (inside the function), not when IR is read"
    return ""


def _our_fault(name: str, layer: Layer | None, target: str) -> str:
    if under(target, "tools.api"):
        return f"'headrace.{target}' would be a second copy of the facade; it is headrace itself"
    if under(name, "tools"):
        return ""
    if not target or target.partition(".")[0] not in TOPS or under(target, "tools"):
        return f"nothing imports the tools or the facade ('headrace{'.' + target if target else ''}')"
    if layer is None:
        return "" if target.count(".") == 0 or under(target, name) else f"'{name}' may not import 'headrace.{target}'"
    is_pass = any(under(name, f"passes.{level}") for level in (*LEVELS, "convert"))
    if is_pass and under(target, layer.name):
        helper = target.removeprefix(layer.name + ".")
        return "" if helper.startswith("_") else f"a pass never imports a pass ('headrace.{target}')"
    if under(target, layer.name) or any(under(target, prefix) for prefix in layer.ours):
        return ""
    parent = layer_of(target)
    if any(under(prefix, target) for prefix in layer.ours) and parent is None:
        return ""  # `from headrace.dialects import tensor`: the package that holds an allowed one
    return f"'{layer.name}' may not import 'headrace.{target}'"


def sources(root: Path) -> list[Path]:
    """Our source files, relative to the root."""
    found = (p for top in TOPS for p in (root / top).rglob("*.py"))
    return sorted(p.relative_to(root) for p in found if "__pycache__" not in p.parts)


# ---------------------------------------------------------------------------------------------------------- packaging


def check_packages(root: Path) -> Iterator[Finding]:
    """pyproject.toml lists every package of the tree and pins xDSL."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(project["tool"]["setuptools"]["packages"]) - {"headrace"}
    there = {f"headrace.{module_name(p)}" for p in sources(root) if p.name == "__init__.py"} - {"headrace.tools.api"}
    for name in sorted(there - listed):
        yield Finding("pyproject.toml", 0, "packages", f"'{name}' is not in tool.setuptools.packages")
    for name in sorted(listed - there):
        yield Finding("pyproject.toml", 0, "packages", f"'{name}' is listed and has no folder with __init__.py")
    for path in sources(root):
        if path.parent.parts[:2] != ("tools", "api") and not (root / path.parent / "__init__.py").exists():
            yield Finding(str(path), 0, "packages", "its folder has no __init__.py")
    if not any(re.fullmatch(r"xdsl==\d+\.\d+\.\d+", d) for d in project["project"]["dependencies"]):
        yield Finding("pyproject.toml", 0, "packages", "xdsl is pinned exactly: 'xdsl==x.y.z'")
    for top in TOPS:
        if not (root / top / "py.typed").exists():
            yield Finding(top, 0, "packages", "no py.typed")
    for path in (root / "test").rglob("__init__.py"):
        yield Finding(str(path.relative_to(root)), 0, "packages", "test/ is no package: it would hide Python's own")


# -------------------------------------------------------------------------------------------------------------- tests

MIRROR_EXEMPT = {"e2e", "property", "replay", "data", "Inputs", "packaging"}


def check_tests(root: Path) -> Iterator[Finding]:
    """Passes, files and tests go by the same name, and test/ mirrors the source."""
    for level in (*LEVELS, "convert"):
        folder = root / "passes" / level
        stems = {p.stem for p in folder.glob("[!_]*.py")}
        for path in sorted(folder.glob("[!_]*.py")):
            where = str(path.relative_to(root))
            name = path.stem.replace("_", "-")
            if not re.search(rf"^    name\b.*= *[\"']{name}[\"']", path.read_text(encoding="utf-8"), re.M):
                yield Finding(where, 0, "names", f"holds no pass named '{name}'; helpers start with an underscore")
            if not (root / "test" / "passes" / level / f"{path.stem}.mlir").exists():
                yield Finding(where, 0, "names", f"no test/passes/{level}/{path.stem}.mlir")
        for test in sorted((root / "test" / "passes" / level).glob("*.mlir")):
            if not any(test.stem == stem or test.stem.startswith(stem + "_") for stem in stems):
                yield Finding(str(test.relative_to(root)), 0, "names", f"named after no pass of passes/{level}")
    for level in LEVELS:
        tests = [p.stem for p in (root / "test" / "dialects" / level).glob("*.mlir")]
        if all("invalid" in stem for stem in tests):
            yield Finding(f"test/dialects/{level}", 0, "names", "no ops.mlir (or a file per family of ops)")
        if not any("invalid" in stem for stem in tests):
            yield Finding(f"test/dialects/{level}", 0, "names", "no invalid.mlir")
    for path in sorted((root / "test").rglob("*")):
        parts = path.relative_to(root / "test").parts
        if not path.is_dir() or set(parts) & MIRROR_EXEMPT or "__pycache__" in parts:
            continue
        target = root.joinpath(*parts)
        if not target.exists() and not target.with_suffix(".py").exists():
            yield Finding(f"test/{'/'.join(parts)}", 0, "names", "mirrors no folder or module of the source")


# ------------------------------------------------------------------------------------------- tests that test nothing

SUFFIXES = ("NEXT", "SAME", "NOT", "DAG", "LABEL", "EMPTY")
WORD = re.compile(r"//\s*(?P<word>[A-Za-z][\w-]*)(?:\{LITERAL\})?(?P<colon>\s*:)?")
NOTES = frozenset({"RUN", "TODO", "NOTE", "FIXME"})
"""Words in capitals with a colon that no RUN line has to know."""
PART = re.compile(r"^// -----[^\n]*\n?", re.M)


class Check(NamedTuple):
    """One line that filecheck reads."""

    line: int
    prefix: str
    suffix: str


def check_vacuous(root: Path) -> Iterator[Finding]:
    """Lit tests that cannot fail. What no reading of a file shows, test/tools/test_not_vacuous.py finds by running."""
    for path in sorted((root / "test").rglob("*.mlir")):
        if not IGNORED & set(path.parts):
            yield from vacuous(path.read_text(encoding="utf-8"), str(path.relative_to(root)))


def vacuous(text: str, where: str) -> Iterator[Finding]:
    """What makes one lit test empty: RUN lines without a file or a check, checks that no RUN line makes."""

    def finding(line: int, message: str) -> Finding:
        return Finding(where, line, "vacuous", message)

    runs = run_lines(text)
    if not runs:
        yield finding(0, "no RUN line")
    prefixes = {run.number: _prefixes(run.text) for run in runs}
    used = {prefix for some in prefixes.values() for prefix in some}
    lines = list(checks(text, used))
    for number, run in runs:
        yield from (finding(number, message) for message in _run_faults(run, prefixes[number], text))
        mine = [one for one in lines if one.prefix in prefixes[number]]
        for prefix in prefixes[number]:
            if all(one.prefix != prefix for one in mine):
                yield finding(number, f"no line of prefix {prefix}")
        if mine and all(one.suffix == "NOT" for one in mine):
            yield finding(number, "only -NOT lines: any output without them passes; say what is there")
    if "expected-error" in text and not any("--verify-diagnostics" in run.text for run in runs):
        yield finding(0, "expected-error without --verify-diagnostics")
    read = {one.line for one in lines}
    for number, line in enumerate(text.splitlines(), 1):
        if number not in read:
            yield from (finding(number, message) for message in _not_read(line, used))
    yield from _parts(text, [run.text for run in runs], lines, where)


def checks(text: str, prefixes: Iterable[str]) -> Iterator[Check]:
    """The lines that filecheck reads with these prefixes, by its own rules."""
    names = "|".join(map(re.escape, sorted(prefixes, key=len, reverse=True)))
    if not names:
        return
    suffixes = "|".join([*SUFFIXES, r"COUNT-\d+"])
    pattern = re.compile(rf"(?:^|[^a-zA-Z_-])({names})(?:-({suffixes}))?(?:\{{LITERAL\}})?:")
    comment = re.compile(rf"(?:COM|RUN).*(?:{names})")
    for number, line in enumerate(text.splitlines(), 1):
        match = None if comment.search(line) else pattern.search(line)
        if match:
            yield Check(number, match[1], match[2] or "")


def _prefixes(run: str) -> list[str]:
    """The prefixes with which a RUN line has this file checked; none when it does not."""
    found: list[str] = []
    for command in run.split("|"):
        if re.match(r"\s*filecheck\b.*%s(?!\w)", command):
            given = re.findall(r"--?check-prefix(?:es)?[= ]([\w,-]+)", command)
            found += [prefix for names in given for prefix in names.split(",")] if given else ["CHECK"]
    return found


def _run_faults(run: str, prefixes: list[str], text: str) -> Iterator[str]:
    if "%s" not in run:
        yield "the RUN line does not read the file (%s)"
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "''", run)
    if re.search(r"\|\||;|&(?!1)", bare):
        yield "'||', ';' and '&' hide the exit code of what stands before them"
    elif prefixes and not re.match(r"\s*filecheck\b", bare.split("|")[-1]):
        yield "what comes after filecheck hides its exit code"
    if not prefixes and "--verify-diagnostics" not in run and "diff " not in run:
        yield "the RUN line checks nothing (no filecheck, no --verify-diagnostics)"
    if "--verify-diagnostics" in run and "expected-error" not in text:
        yield "--verify-diagnostics without an expected-error"


def _not_read(line: str, used: set[str]) -> Iterator[str]:
    """Why a line that filecheck does not read looks as if it should be read."""
    match = WORD.search(line)
    if match is None:
        return
    word, colon = match["word"], match["colon"]
    if word == "RUN" or (word.startswith("RUN") and colon):
        if not re.match(r"\s*// RUN:", line):
            yield "not read as a RUN line; write '// RUN: …'"
        return
    forms = [f"{prefix}{suffix}" for prefix in {*used, "CHECK"} for suffix in ("", *(f"-{s}" for s in SUFFIXES))]
    known = re.sub(r"-COUNT-\d+$", "", word)
    if known in forms and known.partition("-")[0] in used and colon != ":":
        if colon or "-" in word or word.startswith("CHECK"):
            yield f"{word} without a colon" if not colon else f"{word} with a blank before its colon"
        return
    folded = known.upper().replace("_", "-")
    near = [folded] if folded in forms else get_close_matches(folded, forms, 1, 0.8) if word.isupper() else []
    if near and near[0] != word and (colon or "-" in near[0]):
        yield f"'{word}' is not read; did you mean '{near[0]}:'?"
    elif colon and word.isupper() and word not in NOTES:
        yield f"no RUN line uses the prefix {word.partition('-')[0] if known in forms else word}"


def _parts(text: str, runs: list[str], lines: list[Check], where: str) -> Iterator[Finding]:
    """Parts of the file that never run on their own."""
    breaks = [match.start() for match in PART.finditer(text)]
    if not breaks:
        return
    starts = [1, *(text.count("\n", 0, at) + 1 for at in breaks)]
    if not all("--split-input-file" in run for run in runs):
        yield Finding(where, starts[1], "vacuous", "a RUN line does not split the parts (--split-input-file)")
    for start, part in zip(starts, PART.split(text), strict=True):
        rows = range(start, start + part.count("\n") + 2)
        checked = "expected-error" in part or any(one.line in rows for one in lines)
        if checked and not re.sub(r"//[^\n]*", "", part).strip():
            yield Finding(where, start, "vacuous", "checks in a part without a program")


# --------------------------------------------------------------------------------------------------------- stray text


def forbidden() -> re.Pattern[str]:
    """Machine paths and registry hosts; put together here so that this file does not match itself."""
    homes = "|".join(["/" + "root/", "/" + "home/" + r"\w", "/" + "tmp/bash", "/" + "Users/" + r"\w"])
    places = "/(" + "work|" + "farm)/" + r"(main|in|notes|venvs|scratch|shared|steering|[.]library)"
    hosts = "|".join(["pypi" + "[.]org", "files[.]" + "pythonhosted", "registry[.]" + "npmjs"])
    return re.compile(f"{homes}|{places}|{hosts}")


def check_text(root: Path) -> Iterator[Finding]:
    """No machine path and no registry host in text; NotImplementedError only with the number of an issue."""
    pattern = forbidden()
    for path in tracked(root):
        try:
            text = (root / path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if match := pattern.search(line):
                yield Finding(path, number, "text", f"machine path or registry host: {match[0]}")
            if path.endswith(".py") and re.search(r"raise NotImpl" r"ementedError(?!.*#\d)", line):
                yield Finding(path, number, "text", "NotImplementedError needs an issue number (#n)")


def tracked(root: Path) -> list[str]:
    """The files git knows or would add; every file where there is no git."""
    command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        done = None
    if done is not None and done.returncode == 0:
        return [line for line in done.stdout.splitlines() if (root / line).is_file()]
    hidden = {".git", ".venv", ".venv-test", "build", "__pycache__"}
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and not hidden & set(p.parts))


CHECKS = (check_layers, check_packages, check_tests, check_vacuous, check_text)


def findings(root: Path) -> list[Finding]:
    """Everything wrong with the repository at `root`."""
    return [one for check in CHECKS for one in check(root)]


def report(found: Iterable[Finding]) -> int:
    """Print findings; the exit code."""
    count = 0
    for one in found:
        print(one)
        count += 1
    print(f"check_repo: {count} findings" if count else "check_repo: ok")
    return 1 if count else 0


def main() -> int:
    """Entry point."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    if not (root / "pyproject.toml").is_file():
        print(f"check_repo: error: {root} is not the root of the repository (no pyproject.toml)", file=sys.stderr)
        return 2
    return report(findings(root))


if __name__ == "__main__":
    sys.exit(main())
