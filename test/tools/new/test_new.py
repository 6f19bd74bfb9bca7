"""tools.new: what it makes works as it is, and what it refuses leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from headrace.dialects.support.diagnostics import CompileError
from headrace.passes.infra import registry
from headrace.tools import new, run_lines, update_tests
from headrace.tools.check_types import link
from headrace.tools.new import formulas, ops, passes
from headrace.tools.opt import driver

ROOT = Path(__file__).parents[3]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "__pycache__", "*.egg-info")
SOFTSIGN = "x / (1 + abs(x))"


@pytest.mark.parametrize(
    ("text", "meaning", "functions", "flops"),
    [
        (SOFTSIGN, "x / (1 + np.abs(x))", {"abs": 1, "add": 1, "div": 1}, 3),
        ("-x", "-x", {"neg": 1}, 1),
        ("x ** 2 + x**3", "x ** 2 + x ** 3", {"mul": 1, "pow": 1, "add": 1}, 3),
        ("x * sigmoid(1.702 * x)", "x * _sigmoid(1.702 * x)", {"mul": 2, "sigmoid": 1}, 5),
        ("max(x, 0) - sqrt(2) * (3 - 1)", "np.maximum(x, 0) - 2.8284271247461903", {"max": 1, "sub": 1}, 2),
        ("(x - 1) - (x - 2)", "x - 1 - (x - 2)", {"sub": 3}, 3),
        ("2 ** -x", "2 ** (-x)", {"neg": 1, "pow": 1}, 2),
    ],
)
def test_formulas(text: str, meaning: str, functions: dict[str, int], flops: int) -> None:
    found = formulas.read(text)
    assert (found.meaning, found.functions, found.flops) == (meaning, functions, flops)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", formulas.FUNCTIONS)
def test_functions_mean_the_same_in_numpy_and_for_numbers_and_keep_the_type(name: str, dtype: type) -> None:
    from headrace.dialects.tensor.meaning import elementwise

    function = formulas.FUNCTIONS[name]
    x = np.array([0.25, 0.5, 1.5, 3.0], dtype)
    others = ", ".join(["1.25"] * (function.arguments - 1))
    text = formulas.read(f"{name}(x{', ' * bool(others)}{others}) + 0 * x").meaning
    got = eval(text, vars(elementwise), {"x": x})
    assert got.dtype == dtype
    want = [function.exact(float(one), *[1.25] * (function.arguments - 1)) for one in x]
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x +", "cannot read 'x +'"),
        ("x", "computes nothing"),
        ("+x", "computes nothing"),
        ("1 + 2", "is 3 whatever x is"),
        ("x + y", "'y' is no variable"),
        ("sigmod(x)", "did you mean 'sigmoid'?"),
        ("max(x)", "max takes 2 arguments, not 1"),
        ("x / (1 / 0)", "1 / 0 is no number"),
        ("x + log(-1)", "log(-1) is no number"),
        ("x if x else 0", "is not part of a formula"),
        ("x > 0", "is not part of a formula"),
        ("__import__('os').system('x')", "is not part of a formula"),
        ("x + True", "is not part of a formula"),
        ("x // 2", "is not part of a formula"),
        ("abs(x, y=1)", "is not part of a formula"),
    ],
)
def test_what_is_no_formula_is_refused(text: str, part: str) -> None:
    with pytest.raises(CompileError) as error:
        formulas.read(text)
    assert part in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["pass", "cse"], "there is a pass 'cse' (passes/tensor/cse.py)"),
        (["pass", "tile", "--level", "rdu"], "there is a pass 'tile' (passes/dataflow/tile.py)"),
        (["pass", "default"], "the name 'default' is taken"),
        (["pass", "HoistCasts"], "fix: 'hoist-casts'"),
        (["pass", "hoist_casts"], "fix: 'hoist-casts'"),
        (["pass", "2"], "a verb and an object"),
        (["pass", "a-b", "--level", "tensr"], "did you mean 'tensor'?"),
        (["pass", "a-b", "--level", "convert"], "a conversion has two levels"),
        (["op", "tensor.relu", "--formula", "max(x, 0)"], "there is an op 'tensor.relu'"),
        (["op", "softsign", "--formula", SOFTSIGN], "fix: tensor.softsign"),
        (["op", "tensr.softsign", "--formula", SOFTSIGN], "fix: tensor.softsign"),
        (["op", "dataflow.x", "--formula", SOFTSIGN], "dialects/dataflow/README.md"),
        (["op", "tensor.SoftSign", "--formula", SOFTSIGN], "fix: tensor.soft_sign"),
        (["op", "tensor.softsign", "--formula", "sgn(x)"], "there is no function 'sgn'; did you mean"),
        (["op", "tensor.softsign", "--family", "elementwize", "--formula", "exp(x)"], "did you mean 'elementwise'?"),
        (["op", "tensor.total", "--family", "reduction", "--formula", "exp(x)"], "only the rules of an elementwise op"),
    ],
)
def test_bad_names_and_levels_are_refused(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(new, "create", lambda *rest: pytest.fail("something was written"))
    assert new.main(arguments) == 2
    assert part.replace("; did", "\n  fix: did") in capsys.readouterr().err


def test_it_runs_in_the_root_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert new.main(["pass", "hoist-casts"]) == 2


def test_a_file_that_is_not_as_expected_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "dialects" / "tensor", tmp_path / "dialects" / "tensor", ignore=LEFT_OUT)
    with pytest.raises(CompileError, match=r"dialects/rdu/cost\.py is not as expected: nowhere to put \"softsign\""):
        ops.plan(tmp_path, "tensor.softsign", "elementwise", formulas.read(SOFTSIGN))


@pytest.mark.parametrize("step", ["update_tests", "run_lines", "docs"])
def test_what_does_not_work_leaves_nothing_behind(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    there, fresh, page = tmp_path / "a.mlir", tmp_path / "b.py", tmp_path / "docs" / "p.md"
    there.write_text("old\n")
    page.write_text("old\n")

    def tool(root: Path, name: str, argument: Path) -> None:
        assert (there.read_text(), fresh.read_text()) == ("new\n", "x = 1\n")
        page.write_text("half\n")
        if name == step:
            raise new.Broken(name)

    monkeypatch.setattr(new, "_tool", tool)
    with pytest.raises(new.Broken):
        new.create(tmp_path, {there: "new\n", fresh: "x=1\n"}, there)
    assert (there.read_text(), page.read_text(), fresh.exists()) == ("old\n", "old\n", False)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], Path]:
    """`known(name, level)` makes a fresh pass known to the driver; the path of its test."""

    def call(name: str, level: str) -> Path:
        package = f"headrace_new_{level}"
        module = ModuleType(package)
        module.__path__ = [str(tmp_path)]
        monkeypatch.setitem(sys.modules, package, module)
        (code, text), (test, program) = passes.plan(ROOT, name, level).items()
        (tmp_path / code.name).write_text(text)
        (tmp_path / test.name).write_text(program)
        found = {**registry.available(), **registry.passes_in(tmp_path, package)}
        for place in (registry, driver):
            monkeypatch.setattr(place, "available", lambda: found)
        return tmp_path / test.name

    return call


@pytest.mark.parametrize("level", passes.TESTS)
def test_a_fresh_pass_works_on_each_level_and_its_test_needs_it(level: str, known: Callable[[str, str], Path]) -> None:
    path = known("hoist-casts", level)
    assert update_tests.main([str(path)]) == 0
    (line,) = run_lines.substituted(path)
    assert run_lines.run_line(line) == (0, run_lines.run_line(line)[1])
    checks = [text for text in path.read_text().splitlines() if "CHECK" in text and "tensor.neg" in text]
    assert len(checks) == 1, "the negation that is used twice stays, the others go"
    assert run_lines.run_line(line.replace("-p hoist-casts", ""))[0] != 0


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository."""
    root = tmp_path_factory.mktemp("copy") / "repository"
    shutil.copytree(ROOT, root, ignore=LEFT_OUT)
    link(root)
    return root


def tool(root: Path, *arguments: str | Path) -> str:
    """Run a Python module in a repository, with its code; what it printed. It must succeed."""
    environment = {**os.environ, "PYTHONPATH": str(root / "build" / "typing")}
    command = [sys.executable, "-m", *map(str, arguments)]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_a_fresh_pass_and_a_fresh_op_pass_every_check_as_they_are(copy: Path) -> None:
    first = tool(copy, "headrace.tools.new", "pass", "hoist-casts")
    second = tool(copy, "headrace.tools.new", "op", "tensor.softsign", "--formula", SOFTSIGN)
    assert "wrote docs/passes.md" in first
    assert "wrote docs/passes.md" not in second, "the page of the pass was up to date"
    assert "wrote docs/tensor.md" in second
    changed = [line.removeprefix("wrote ") for line in (first + second).splitlines() if line.startswith("wrote ")]
    code = [name for name in changed if name.endswith(".py")]
    assert len(code) == 6
    tool(copy, "ruff", "format", "--check", *code)
    tool(copy, "ruff", "check", *code)
    tool(copy, "headrace.tools.check_repo")
    tool(copy, "headrace.tools.update_tests", "--check", "test/passes/tensor")
    tool(copy, "headrace.tools.check_types", copy, *(name.removesuffix(".py") for name in code if "test" not in name))
    tool(copy, "pytest", "-q", "-p", "no:cacheprovider", "-k", "hoist or softsign or every_op or elementwise",
         "test/passes/tensor/hoist_casts.mlir", "test/tools/test_not_vacuous.py",
         "test/tools/test_every_op_is_tested.py", "test/dialects/tensor")  # fmt: skip
    program = copy / "x.mlir"
    program.write_text(
        "func.func @main(%x: tensor<64x64xbf16>) -> tensor<64x64xbf16> {\n"
        "  %0 = tensor.softsign %x : tensor<64x64xbf16> -> tensor<64x64xbf16>\n"
        "  func.return %0 : tensor<64x64xbf16>\n}\n"
    )
    tool(copy, "headrace.tools.opt", program, "-p", "default", "--device", "sn40l", "--check-execution")
