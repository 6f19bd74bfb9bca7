"""A failure leaves a file that fails in the same way, and says how to run it; a run without one leaves nothing."""

from __future__ import annotations

import io
import re
import shlex
import textwrap
from pathlib import Path

import numpy as np
import pytest

from headrace.tools.cli import execute
from headrace.tools.opt import run
from headrace.tools.opt.expectations import EXPECTED

PLUGIN = '''
    """Passes that are wrong on purpose."""

    from dataclasses import dataclass
    from typing import ClassVar

    from xdsl.dialects.builtin import UnknownLoc

    from headrace.dialects.support.diagnostics import CompileError
    from headrace.dialects.support.journal import may
    from headrace.passes.infra.base import Pass


    @dataclass(frozen=True)
    class FaultyPass(Pass):
        """Does one thing wrong at every sub."""

        name: ClassVar[str] = "faulty"
        fault: str = "swap"

        def run(self, ctx, module):
            subs = [op for op in module.walk() if op.name in ("tensor.sub", "tensor.clip")]
            for op in subs:
                if not may("fault", op):
                    return True
                match self.fault:
                    case "swap" if op.name == "tensor.clip":
                        op.results[0].replace_all_uses_with(op.operands[0])
                    case "swap":
                        op.operands = list(op.operands)[::-1]
                    case "crash":
                        raise ValueError("no subs")
                    case "lose":
                        op.location = UnknownLoc()
                    case "say":
                        raise ValueError("first\\nRUN: false\\nCHECK-NOT: func\\nexpected-error {{x}}")
                    case "refuse":
                        raise CompileError("no-sub", "a sub is refused")
                    case _:
                        pass
            return bool(subs)
'''
PROGRAM = """\
func.func @main(%x: tensor<4x8xf32> {tensor.name = "x"}) -> tensor<4x8xf32> {
  %w = tensor.weight "w" : tensor<8x8xf32>
  %0 = tensor.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32> loc("layer/MatMul")
  %1 = tensor.sub %0, %x : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32> loc("layer/Sub")
  func.return %1 : tensor<4x8xf32>
}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program and a file of faulty passes; the current one."""
    monkeypatch.chdir(tmp_path)
    Path("plugin.py").write_text(textwrap.dedent(PLUGIN))
    Path("x.mlir").write_text(PROGRAM)
    return tmp_path


def opt(*arguments: str, **more: bool) -> tuple[int, str]:
    err = io.StringIO()
    code = run(["--load-pass-plugin", "plugin.py", *arguments], io.StringIO(PROGRAM), io.StringIO(), err, **more)
    return code, err.getvalue()


def written(said: str) -> tuple[Path, list[str]]:
    """The file that a run left, and the arguments to run it with."""
    found = re.search(r"^reproducer: (\S+); run: headrace-opt (.*)$", said, re.M)
    assert found, said
    assert said.rstrip().endswith(found[0]), "it is the last word"
    return Path(found[1]), shlex.split(found[2])


@pytest.mark.parametrize(
    ("fault", "flags", "kind"),
    [
        ("swap", ["--check-execution"], "changed-results"),
        ("swap", ["--check-execution", "random:7", "--weights", "random:3"], "changed-results"),
        ("crash", [], "crash"),
        ("lose", [], "lost-location"),
        ("lose", ["--device", "sn40l"], "lost-location"),
    ],
)
def test_it_fails_in_the_same_way(here: Path, fault: str, flags: list[str], kind: str) -> None:
    pipeline = f"canonicalize,faulty{{fault={fault}}},cse"
    code, said = opt("x.mlir", "-p", pipeline, *flags, "--reproducer", "out/")
    assert code == 1 and f"[{kind}]" in said
    path, arguments = written(said)
    assert path == Path("out/x.faulty.mlir") and list(here.glob("out/*")) == [here / path]
    text = path.read_text()
    first = text.splitlines()[0]
    assert first.startswith("// RUN: headrace-opt %s -p 'faulty") and first.endswith("| filecheck %s")
    assert f"fails with {kind}" in text and "// From: x.mlir" in text and 'loc("layer/Sub")' in text
    assert ("random:7" in first) == ("random:7" in flags) and "machine.device" not in text
    again = io.StringIO()
    assert run(arguments, io.StringIO(), io.StringIO(), again) == 1
    assert f"[{kind}]" in again.getvalue()
    assert not re.search(r"^(?!//).*RUN:", text, re.M)


def test_what_the_error_says_is_no_directive(here: Path) -> None:
    path, _ = written(opt("x.mlir", "-p", "faulty{fault=say}", "--reproducer", "out/")[1])
    text = path.read_text()
    assert "RUN-: false" in text and text.count("RUN:") == 1 and text.count("CHECK") == 2
    assert "CHECK-NOT:" not in text and not EXPECTED.search(text)


def test_an_older_file_stays(here: Path) -> None:
    Path("out.mlir").write_text("mine")
    for _ in range(2):  # the same failure again is the same file
        path, _ = written(opt("x.mlir", "-p", "faulty{fault=crash}", "--reproducer", "out.mlir")[1])
        assert path == Path("out.1.mlir")
    path, _ = written(opt("x.mlir", "-p", "faulty{fault=lose}", "--reproducer", "out.mlir")[1])
    assert path == Path("out.2.mlir")
    assert Path("out.mlir").read_text() == "mine"
    assert sorted(p.name for p in here.glob("*out*")) == ["out.1.mlir", "out.2.mlir", "out.mlir"]


def test_a_refusal_is_written_when_asked_for_and_is_a_test(here: Path) -> None:
    code, said = opt("x.mlir", "-p", "cse,faulty{fault=refuse}", reproducers=True)
    assert code == 2 and "reproducer" not in said
    code, said = opt("x.mlir", "-p", "cse,faulty{fault=refuse}", "--reproducer", "out.mlir")
    assert code == 2
    path, arguments = written(said)
    assert "--verify-diagnostics" in arguments and "expected-error @* {{[no-sub]}}" in path.read_text()
    assert run(arguments, io.StringIO(), io.StringIO(), io.StringIO()) == 0


def test_where_it_goes(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(here / "tmp"))
    arguments = ["x.mlir", "-p", "faulty{fault=crash}"]
    assert "reproducer" not in opt(*arguments)[1]
    assert "reproducer" not in opt(*arguments, "--reproducer", "none", reproducers=True)[1]
    assert not (here / "tmp").exists()
    path, _ = written(opt(*arguments, reproducers=True)[1])
    assert path == here / "tmp" / "headrace-reproducers" / "x.faulty.mlir"
    path, _ = written(opt("-", *arguments[1:], reproducers=True)[1])
    assert path.name == "stdin.faulty.mlir"
    code, said = opt(*arguments, "--reproducer", "no/such/folder.mlir")
    assert code == 1 and "reproducer: none; CompileError: error[cannot-write]" in said
    assert not opt("x.mlir", "-p", "cse", reproducers=True)[1], "no failure, no word"


def test_the_part_of_the_file_that_fails(here: Path) -> None:
    Path("two.mlir").write_text(f"{PROGRAM.replace('sub', 'add')}// -----\n{PROGRAM}")
    said = opt("two.mlir", "--split-input-file", "-p", "faulty{fault=crash}", "--reproducer", "out.mlir")[1]
    path, _ = written(said)
    assert "tensor.add" not in path.read_text() and 'loc("layer/Sub")' in path.read_text()


def test_numbers_of_files_are_kept_when_it_takes_them(here: Path) -> None:
    x = np.zeros((4, 8), np.float32)
    x[1, 2] = 1
    np.savez("x.npz", x=x)
    np.savez("w.npz", w=np.eye(8, dtype=np.float32) * 500)
    flags = ["--check-execution", "x.npz", "--weights", "w.npz", "--reproducer", "out/"]
    _, arguments = written(opt("x.mlir", "-p", "faulty", *flags)[1])
    assert "random:0" in arguments and len(list(here.glob("out/*"))) == 1, "any numbers show it"
    clip = 'tensor.clip %0 {min = -100.0, max = 100.0} : tensor<4x8xf32> -> tensor<4x8xf32> loc("layer/Clip")'
    Path("clip.mlir").write_text(re.sub(r"tensor.sub .*", clip, PROGRAM))
    path, arguments = written(opt("clip.mlir", "-p", "cse,faulty", *flags)[1])
    names = ["clip.faulty.inputs.npz", "clip.faulty.mlir", "clip.faulty.weights.npz"]
    assert sorted(p.name for p in here.glob("out/clip*")) == names
    for name in ("x.npz", "w.npz"):
        Path(name).unlink()
    err = io.StringIO()
    assert run(arguments, io.StringIO(), io.StringIO(), err) == 1 and "[changed-results]" in err.getvalue()
    assert execute(["bisect", str(path)]) == 0, "the numbers are found beside it"


def test_only_what_is_rewritten_with_the_fuel(here: Path) -> None:
    out, err = io.StringIO(), io.StringIO()
    plugin = ["--load-pass-plugin", "plugin.py"]
    assert run(["x.mlir", *plugin, "-p", "faulty", "--fuel", "0"], io.StringIO(), out, err) == 1, "it says it changed"
    err.truncate(0)
    assert run(["x.mlir", *plugin, "-p", "faulty", "--fuel", "5"], io.StringIO(), out, err) == 0
    assert "fuel: 1 of 5 rewrites made; the last, of faulty: fault on 'tensor.sub' at layer/Sub" in err.getvalue()


def test_from_the_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = ["--load-pass-plugin", "plugin.py"]
    assert execute(["bisect", "x.mlir", *plugin, "-p", "cse,faulty,dce", "--reproducer", "b.mlir"]) == 0
    out = capsys.readouterr().out
    assert "pass 2 of 3: faulty" in out and "rewrite 1 of 1: fault on 'tensor.sub'\n  at: layer/Sub" in out
    path, _ = written(out.replace("; reproducer", "\nreproducer"))
    assert path == Path("b.mlir")
    assert execute(["reduce", "b.mlir"]) == 0, "passes and numbers are those of its RUN line"
    out = capsys.readouterr().out
    assert "4 ops reduced to" not in out and "reduced to 1" in out
    assert Path("b.reduced.mlir").read_text().count("tensor.") > 1
    assert execute(["bisect", "x.mlir", *plugin, "-p", "cse", "--json"]) == 2
    assert '"does-not-fail"' in capsys.readouterr().out
    assert execute(["bisect", "x.mlir", *plugin, "-p", "faulty{fault=crash}", "--json", "--reduce"]) == 0
    assert '"ops": 1' in capsys.readouterr().out


def test_of_a_compilation(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from headrace.passes.infra import registry

    passes, _ = registry.loaded(["plugin.py"])
    known = {**registry.available(), **passes}
    crashing = ["compile", "x.mlir", "--shape-only", "--passes", "canonicalize,faulty{fault=crash},default"]
    refusing = ["compile", "x.mlir", "--shape-only", "--passes", "cse,faulty{fault=refuse}"]
    with monkeypatch.context() as patched:
        patched.setattr(registry, "available", lambda: known)
        assert execute(crashing) == 1 and "reproducer" not in capsys.readouterr().err
        assert execute([*crashing, "--reproducer", "out/"]) == 1
        path, arguments = written(capsys.readouterr().err)
        assert path == Path("out/x.faulty.mlir") and "machine.device" not in path.read_text()
        assert execute(refusing) == 2 and "reproducer" not in capsys.readouterr().err
        assert execute([*refusing, "--reproducer", "refused.mlir"]) == 2
        assert written(capsys.readouterr().err)[0] == Path("refused.mlir")
    code, said = opt(*arguments)
    assert code == 1 and "[crash]" in said
