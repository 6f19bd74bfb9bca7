"""The repository passes its own checks, and each check finds what it is for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.tools import check_repo

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("check", check_repo.CHECKS, ids=lambda check: check.__name__)
def test_the_repository_is_clean(check) -> None:
    assert list(check(ROOT)) == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository that is clean."""
    for folder in (
        "dialects/support",
        "dialects/tensor",
        "passes/tensor",
        "passes/infra",
        "frontends",
        "backend",
        "runtime",
        "tools/api",
    ):
        (tmp_path / folder).mkdir(parents=True)
    for package in (
        "dialects",
        "dialects/support",
        "dialects/tensor",
        "passes",
        "passes/tensor",
        "passes/infra",
        "frontends",
        "backend",
        "runtime",
        "tools",
        "tools/api",
    ):
        (tmp_path / package / "__init__.py").write_text('"""Doc."""\n')
        (tmp_path / package / "py.typed").touch()
    shutil.copytree(ROOT / "test" / "tools" / "opt", tmp_path / "test" / "tools" / "opt")
    (tmp_path / "tools" / "opt.py").write_text('"""Doc."""\n')
    names = ", ".join(
        f'"headrace.{n}"'
        for n in (
            "dialects",
            "dialects.support",
            "dialects.tensor",
            "passes",
            "passes.tensor",
            "passes.infra",
            "frontends",
            "backend",
            "runtime",
            "tools",
        )
    )
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\ndependencies = ["xdsl==0.75.0"]\n[tool.setuptools]\npackages = ["headrace", {names}]\n'
    )
    return tmp_path


def layers(tree: Path, path: str, code: str) -> list[str]:
    """What the layer check says of one file with this code."""
    (tree / path).write_text(f'"""Doc."""\n{code}\n')
    return [one.message for one in check_repo.check_layers(tree)]


def test_the_small_tree_is_clean(tree: Path) -> None:
    assert not [*check_repo.check_layers(tree), *check_repo.check_packages(tree), *check_repo.check_vacuous(tree)]


@pytest.mark.parametrize(
    ("path", "code", "part"),
    [
        ("dialects/support/x.py", "import headrace.dialects.tensor", "may not import 'headrace.dialects.tensor'"),
        ("dialects/support/x.py", "from headrace.dialects import tensor", "may not import 'headrace.dialects.tensor'"),
        ("dialects/support/x.py", "from ..tensor import y", "may not import 'headrace.dialects.tensor.y'"),
        ("dialects/support/x.py", "import onnx", "may not import 'onnx'"),
        ("dialects/tensor/x.py", "import numpy as np", "when IR is read"),
        ("dialects/tensor/x.py", "from xdsl.ir import _core", "private to xDSL"),
        ("dialects/tensor/x.py", "def f():\n    from headrace.passes.tensor import y", "may not import"),
        ("passes/tensor/x.py", "from headrace.passes.tensor.y import Y", "never imports a pass"),
        (
            "passes/tensor/x.py",
            "from headrace.passes.infra import y\nfrom headrace.runtime import z",
            "headrace.runtime.z",
        ),
        ("frontends/x.py", "import headrace.passes.infra", "may not import"),
        ("runtime/x.py", "import headrace.backend", "may not import"),
        ("runtime/x.py", "import headrace.tools.opt", "nothing imports the tools"),
        ("runtime/x.py", "import headrace", "nothing imports the tools or the facade"),
        ("tools/x.py", "import headrace.tools.api", "second copy"),
        ("tools/x.py", "from passes import tensor", "bare folder"),
    ],
)
def test_a_forbidden_import_is_found(tree: Path, path: str, code: str, part: str) -> None:
    found = layers(tree, path, code)
    assert len(found) == 1
    assert part in found[0]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("dialects/tensor/x.py", "from headrace.dialects.support import y\nfrom . import z\nimport re, xdsl.ir"),
        ("dialects/tensor/x.py", "def f():\n    import numpy as np"),
        ("passes/tensor/x.py", "from headrace.passes.tensor._helper import y\nimport headrace.dialects.tensor"),
        ("passes/infra/x.py", "from xdsl.pattern_rewriter import _X"),
        ("runtime/x.py", "from headrace.dialects import support\nimport numpy"),
        ("tools/x.py", "import headrace, onnx\nfrom headrace.passes.tensor import y"),
    ],
)
def test_an_allowed_import_is_not(tree: Path, path: str, code: str) -> None:
    assert layers(tree, path, code) == []


def test_packages_are_compared_with_the_tree(tree: Path) -> None:
    (tree / "dialects" / "new").mkdir()
    (tree / "dialects" / "new" / "__init__.py").touch()
    (tree / "test" / "__init__.py").touch()
    (tree / "runtime" / "serve").mkdir()
    (tree / "runtime" / "serve" / "x.py").touch()
    text = (tree / "pyproject.toml").read_text()
    (tree / "pyproject.toml").write_text(
        text.replace("xdsl==0.75.0", "xdsl>=0.75").replace('"headrace.tools"', '"headrace.gone"')
    )
    found = {one.message for one in check_repo.check_packages(tree)}
    assert found == {
        "'headrace.dialects.new' is not in tool.setuptools.packages",
        "'headrace.tools' is not in tool.setuptools.packages",
        "'headrace.gone' is listed and has no folder with __init__.py",
        "its folder has no __init__.py",
        "xdsl is pinned exactly: 'xdsl==x.y.z'",
        "test/ is no package: it would hide Python's own",
    }


def test_a_pass_its_file_and_its_test_have_one_name(tree: Path) -> None:
    (tree / "passes" / "tensor" / "fold_it.py").write_text('class P:\n    name = "fold-them"\n')
    (tree / "test" / "passes" / "tensor").mkdir(parents=True)
    (tree / "test" / "passes" / "tensor" / "orphan.mlir").touch()
    (tree / "test" / "passes" / "elsewhere").mkdir(parents=True)
    found = {(one.path, one.message) for one in check_repo.check_tests(tree)}
    assert ("passes/tensor/fold_it.py", "holds no pass named 'fold-it'; helpers start with an underscore") in found
    assert ("passes/tensor/fold_it.py", "no test/passes/tensor/fold_it.mlir") in found
    assert ("test/passes/tensor/orphan.mlir", "named after no pass of passes/tensor") in found
    assert ("test/passes/elsewhere", "mirrors no folder or module of the source") in found


RUN = "// RUN: headrace-opt %s | filecheck %s\n"
XDSL = """\
// RUN: headrace-opt --parsing-diagnostics --verify-diagnostics --split-input-file


%i, %f, %t1, %t2 = "test.op"() : () -> (i32, f32, tensor<10xf32>, tensor<5xf32>)
varith.add %i, %f : i32
// CHECK:  operand is used with type i32, but has been previously used or defined with type f32


// -----
// CHECK: -----


%i, %f, %t1, %t2 = "test.op"() : () -> (i32, f32, tensor<10xf32>, tensor<5xf32>)
varith.add %t1, %t2 : tensor<10xf32>
// CHECK:  operand is used with type tensor<10xf32>, but has been previously used or defined with type tensor<5xf32>
"""
"""A test of xDSL's that has never tested anything: it reads no file, and its checks are given to nobody."""


def test_the_vacuous_test_of_xdsl_is_found(tree: Path) -> None:
    (tree / "test" / "tools" / "opt" / "invalid.mlir").write_text(XDSL)
    found = [(one.path, one.line, one.message) for one in check_repo.check_vacuous(tree)]
    where = "test/tools/opt/invalid.mlir"
    assert found == [
        (where, 1, "the RUN line does not read the file (%s)"),
        (where, 1, "--verify-diagnostics without an expected-error"),
        (where, 6, "no RUN line uses the prefix CHECK"),
        (where, 10, "no RUN line uses the prefix CHECK"),
        (where, 15, "no RUN line uses the prefix CHECK"),
    ]
    (tree / "test" / "tools" / "opt" / "invalid.mlir").write_text(XDSL.replace("--split-input-file", "%s"))
    assert [one.line for one in check_repo.check_vacuous(tree)] == [1, 6, 10, 15, 9]


@pytest.mark.parametrize(
    "text",
    [
        RUN + "// CHECK: a\n// Note: CHECK lines are near their op\n// NOTE: a\n// CHECKS what is there",
        RUN + "x // CHECK: a",
        "// RUN: headrace-opt %s \\\n// RUN:   | filecheck --check-prefix=ONE %s\n// ONE: a",
        "// RUN: headrace-opt %s | filecheck %s --check-prefixes=A,B\n// A: a\n// B-COUNT-2: b",
        "// RUN: not headrace-opt %s 2>&1 | filecheck %s\n// CHECK{LITERAL}: [[a]]\n// CHECK-NOT: b",
        "// RUN: headrace-opt %s --verify-diagnostics\n// expected-error {{a}}",
        RUN.replace("%s |", "%s -p 'a{b=1;2}' --split-input-file |") + "x // CHECK: a\n// -----\nx // CHECK: b",
    ],
)
def test_a_test_that_tests_something_is_not_found(text: str) -> None:
    assert list(check_repo.vacuous(text, "x.mlir")) == []


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("func.func @f()", 0, "no RUN line"),
        ("// RUN headrace-opt %s | filecheck %s", 0, "no RUN line"),
        (RUN + "// CHECK: a\n//RUN: headrace-opt %s -p cse | filecheck %s", 3, "not read as a RUN line"),
        (RUN + "// CHECK: a\n// RUNS: headrace-opt %s -p cse | filecheck %s", 3, "not read as a RUN line"),
        ("// RUN: headrace-opt %s\n// CHECK: a", 1, "checks nothing"),
        ("// RUN: headrace-opt %s\n// CHECK: a", 2, "no RUN line uses the prefix CHECK"),
        ("// RUN: not headrace-opt %s", 1, "checks nothing"),
        (
            "// RUN: headrace-opt --verify-diagnostics | filecheck x\n// expected-error {{a}}",
            1,
            "does not read the file",
        ),
        ("// RUN: headrace-opt %s | filecheck %s || true\n// CHECK: a", 1, "hide the exit code"),
        ("// RUN: headrace-opt %s | filecheck %s; true\n// CHECK: a", 1, "hide the exit code"),
        ("// RUN: headrace-opt %s | filecheck %s | cat\n// CHECK: a", 1, "after filecheck hides"),
        ("// RUN: headrace-opt %s --verify-diagnostics", 1, "without an expected-error"),
        (RUN + "// CHECK: a\n// expected-error {{b}}", 0, "without --verify-diagnostics"),
        (RUN + "// CHECK a", 2, "CHECK without a colon"),
        (RUN + "// CHECK: a\n// CHECK-NEXT b", 3, "CHECK-NEXT without a colon"),
        (RUN + "// CHECK: a\n// CHECK-COUNT-3 b", 3, "CHECK-COUNT-3 without a colon"),
        (RUN + "// CHECK: a\n// CHECK-NEXT : b", 3, "a blank before its colon"),
        (RUN + "// CHECK: a\n// CHECK_NEXT: b", 3, "did you mean 'CHECK-NEXT:'?"),
        (RUN + "// CHECK: a\n// CHEK: b", 3, "did you mean 'CHECK:'?"),
        (RUN + "// CHECK: a\n// CHEK-NEXT b", 3, "did you mean 'CHECK-NEXT:'?"),
        (RUN + "// CHECK: a\n// CHECK-LABLE: @b", 3, "did you mean 'CHECK-LABEL:'?"),
        (RUN + "// CHECK: a\n// check-next: b", 3, "did you mean 'CHECK-NEXT:'?"),
        (RUN + "// CHECK: a\n// CHECKNEXT: b", 3, "did you mean 'CHECK-NEXT:'?"),
        (RUN + "// CHECK: a\n// TILED: b", 3, "no RUN line uses the prefix TILED"),
        ("// RUN: headrace-opt %s | filecheck %s --check-prefix=ONE\n// ONE: a\n// CHECK: b", 3, "the prefix CHECK"),
        ("// RUN: headrace-opt %s | filecheck %s --check-prefix=ONE\n", 1, "no line of prefix ONE"),
        ("// RUN: headrace-opt %s | filecheck %s --check-prefixes=A,B\n// A: a", 1, "no line of prefix B"),
        (RUN + "// CHECK-NOT: a", 1, "only -NOT lines"),
        (RUN + "// COMPARE and CHECK: a", 1, "no line of prefix CHECK"),
        (RUN + "x // CHECK: a\n// -----\nx // CHECK: b", 3, "does not split the parts"),
        (RUN.replace("%s |", "%s --split-input-file |") + "// CHECK: a\n// -----\nx", 1, "a part without a program"),
        (
            RUN.replace("%s |", "%s --split-input-file |") + "x // CHECK: a\n// -----\n// x\n// CHECK: b\n",
            3,
            "a part without a program",
        ),
    ],
)
def test_a_test_that_tests_nothing_is_found(text: str, line: int, message: str) -> None:
    found = [(one.line, one.message) for one in check_repo.vacuous(text, "x.mlir")]
    assert any(at == line and message in one for at, one in found), found


def test_stray_text_is_found(tree: Path) -> None:
    (tree / "runtime" / "x.py").write_text(
        "# see " + "/" + "root/x\nraise NotImpl" + "ementedError()\n# https://pypi" + ".org/x\n"
    )
    found = [(one.line, one.message) for one in check_repo.check_text(tree)]
    assert [line for line, _ in found] == [1, 2, 3]
