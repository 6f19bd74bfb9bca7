"""Passes and dialects of other distributions: found by entry points, refused by the name of who offers them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.infra import plugins
from headrace.passes.infra.registry import build

PASS = '''
from dataclasses import dataclass
from xdsl.ir import Dialect
from xdsl.irdl import IRDLOperation, irdl_op_definition
from headrace.passes.infra.base import Pass, option


@dataclass(frozen=True)
class MarkPass(Pass):
    """Mark the module."""

    name = "mark-it"
    tag: str = option("x", "what to write")

    def run(self, ctx, module):
        from xdsl.dialects.builtin import StringAttr
        module.attributes["mark"] = StringAttr(self.tag)
        return True


@irdl_op_definition
class ThingOp(IRDLOperation):
    name = "mine.thing"


Mine = Dialect("mine", [ThingOp])
'''
EMPTY = "builtin.module {\n}\n"


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`distribution("name", "1.0", code, passes={…}, dialects={…})` installs one, for this test."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str, version: str, code: str, **groups: dict[str, str]) -> None:
        package = name.replace("-", "_")
        (tmp_path / f"{package}.py").write_text(code, encoding="utf-8")
        info = tmp_path / f"{package}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
        lines = [
            line
            for group, entries in groups.items()
            for line in (f"[headrace.{group}]", *(f"{entry} = {package}:{value}" for entry, value in entries.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        monkeypatch.delitem(sys.modules, package, raising=False)

    return install


def test_a_pass_of_a_distribution_runs_and_is_listed(opt, distribution: Callable[..., None]) -> None:
    distribution("their-passes", "1.2", PASS, passes={"mark-it": "MarkPass"})
    found = opt(EMPTY, "-p", "mark-it{tag=y},cse", "--print-pipeline")
    assert found.code == 0, found.err
    assert 'attributes {mark = "y"}' in found.out and found.err == 'mark-it{tag="y"},cse\n'
    listed = opt("", "--list-passes")
    assert listed.code == 0
    assert "passes of others:\n  mark-it                    from their-passes 1.2: Mark the module.\n" in listed.out
    assert "did you mean 'mark-it'?" in opt(EMPTY, "-p", "mark-id").err
    assert "there is no option 'tog'" in opt(EMPTY, "-p", "mark-it{tog=y}").err


def test_its_help_is_shown(opt, distribution: Callable[..., None]) -> None:
    distribution("their-passes", "1.2", PASS, passes={"mark-it": "MarkPass"})
    found = opt("", "--help-pass", "mark-it")
    assert found.code == 0, found.err
    assert "Mark the module." in found.out and "what to write" in found.out


def test_a_dialect_of_a_distribution_is_read(opt, distribution: Callable[..., None]) -> None:
    text = 'builtin.module {\n  "mine.thing"() : () -> ()\n}\n'
    assert opt(text).code == 2, "nothing is installed yet"
    distribution("their-dialect", "3", PASS, dialects={"mine": "Mine"})
    found = opt(text)
    assert (found.code, found.out) == (0, text), found.err
    assert opt('"their.thing"() : () -> ()').code == 2


@pytest.mark.parametrize(
    ("code", "value", "why"),
    [
        ("raise RuntimeError('half installed')", "MarkPass", "RuntimeError: half installed"),
        ("import no_such_module", "MarkPass", "No module named 'no_such_module'"),
        ("raise SystemExit(3)", "MarkPass", "SystemExit: 3"),
        ("x = 1", "MarkPass", "has no attribute 'MarkPass'"),
        ("MarkPass = 1", "MarkPass", "is no class of a pass: 1"),
        (PASS.replace('"mark-it"', '"other"'), "MarkPass", "calls itself 'other'"),
    ],
)
def test_a_broken_plugin_is_told_by_its_distribution(
    opt, distribution: Callable[..., None], code: str, value: str, why: str
) -> None:
    distribution("half-baked", "0.1", code, passes={"mark-it": value}, dialects={"mine": value})
    for flags, text, kind in (
        (("-p", "mark-it"), EMPTY, "pass 'mark-it'"),
        (("--list-passes",), "", "pass 'mark-it'"),
        ((), '"mine.thing"() : () -> ()', "dialect 'mine'"),
    ):
        found = opt(text, *flags)
        assert found.code == 2, flags
        assert f"{kind} of half-baked 0.1 cannot be used [broken-plugin]" in found.err
        assert "Traceback" not in found.err
        if not (kind.startswith("dialect") and why.startswith(("is no", "calls"))):
            assert why in found.err, found.err
    assert "from half-baked 0.1: refused" in opt("", "--list-passes").out
    assert opt(EMPTY, "-p", "cse").code == 0, "who does not use it is not bothered"


GROUP = b"[headrace.passes]\n"


@pytest.mark.parametrize("text", [GROUP + b"mark-it\n", GROUP + b"mark-it = ???:::x\n", GROUP + b"x =\n", b"\xff\xfe"])
def test_entry_points_that_cannot_be_read(opt, distribution: Callable[..., None], tmp_path: Path, text: bytes) -> None:
    distribution("half-baked", "0.1", PASS)
    (tmp_path / "half_baked-0.1.dist-info" / "entry_points.txt").write_bytes(text)
    listed = opt("", "--list-passes")
    assert listed.code == 2 and "half-baked 0.1" in listed.err and "[broken-plugin]" in listed.err
    assert "Traceback" not in listed.err + opt(EMPTY, "-p", "mark-it").err
    (tmp_path / "half_baked-0.1.dist-info" / "METADATA").unlink()
    assert "None" not in opt("", "--list-passes").err


def test_names_that_clash_are_refused_with_both_sources(opt, distribution: Callable[..., None]) -> None:
    distribution("one", "1", PASS, passes={"mark-it": "MarkPass"})
    distribution("two", "2", PASS, passes={"mark-it": "MarkPass", "cse": "MarkPass"})
    clash = "pass 'mark-it' is offered by one 1 and by two 2 [plugin-clash]\n  fix: uninstall one or two"
    used = opt(EMPTY, "-p", "mark-it")
    assert used.code == 2 and clash in used.err
    listed = opt("", "--list-passes")
    assert listed.code == 2 and clash in listed.err
    assert "pass 'cse' is offered by headrace and by two 2 [plugin-clash]\n  fix: uninstall two" in listed.err
    assert opt(EMPTY, "-p", "cse").code == 0, "ours stays ours"


def test_nothing_is_scanned_without_need(opt, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("scanned")

    monkeypatch.setattr("importlib.metadata.distributions", never)
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  func.return %x : tensor<4xf32>\n}\n"
    assert opt(text, "-p", "tensor").code == 0
    assert build("cse")


def test_start_up_does_not_load_the_metadata_of_packages(tmp_path: Path) -> None:
    (tmp_path / "x.mlir").write_text(EMPTY, encoding="utf-8")
    code = (
        "import sys; from headrace.tools.opt import run; assert run(sys.argv[1:]) == 0;"
        "print('importlib.metadata' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "x.mlir"), "-p", "cse"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


# Files


def test_a_file_of_passes_is_taken(opt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.py"
    path.write_text(PASS, encoding="utf-8")
    load = ("--load-pass-plugin", str(path))
    found = opt('"mine.thing"() : () -> ()', *load, "-p", "mark-it{tag=z}")
    assert found.code == 0, found.err
    assert 'mark = "z"' in found.out and '"mine.thing"()' in found.out
    assert f"mark-it                    from {path}: Mark the module." in opt("", *load, "--list-passes").out
    assert opt(EMPTY, "-p", "mark-it").code == 2, "only where it is loaded"
    monkeypatch.syspath_prepend(str(tmp_path))
    assert opt(EMPTY, "--load-pass-plugin", "mine", "-p", "mark-it").code == 0, "a module by name"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise RuntimeError('no')", "RuntimeError: no"),
        ("def f(:", "SyntaxError"),
        ("x = 1", "defines no pass and no dialect"),
        (PASS.replace('"mark-it"', '"cse"'), "pass 'cse' is offered by headrace and by "),
        (PASS.replace('"mine', '"tensor'), "dialect 'tensor' is one of ours"),
        (None, "there is no such file"),
    ],
)
def test_a_file_that_cannot_be_taken_is_refused(opt, tmp_path: Path, code: str | None, says: str) -> None:
    path = tmp_path / "mine.py"
    if code is not None:
        path.write_text(code, encoding="utf-8")
    found = opt(EMPTY, "--load-pass-plugin", str(path), "-p", "cse")
    assert found.code == 2 and says in found.err and "Traceback" not in found.err, found.err


def test_two_files_may_not_offer_one_name(opt, tmp_path: Path) -> None:
    paths = [tmp_path / "a.py", tmp_path / "b.py"]
    for path in paths:
        path.write_text(PASS.replace('"mine', f'"{path.stem}'), encoding="utf-8")
    found = opt(EMPTY, *(word for path in paths for word in ("--load-pass-plugin", str(path))))
    assert found.code == 2 and f"pass 'mark-it' is offered by {paths[0]} and by {paths[1]}" in found.err


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(CompileError, match="no_such_plugin cannot be loaded"):
        plugins.of_file("no_such_plugin")
