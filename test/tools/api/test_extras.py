"""Extras stay extras: Headrace works without PyTorch, and says what to install where it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CORE = """\
import sys

sys.modules["torch"] = None  # as where it is not installed
import headrace
from headrace.tools.cli import execute

(path,) = sys.argv[1:]
open(path + "/m.mlir", "w").write('''
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.exp %x : tensor<4xf32> -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
''')
assert execute(["compile", path + "/m.mlir", "--native-types", "-o", path + "/m.sn"]) == 0
assert execute(["run", path + "/m.sn", "--random-inputs", "0"]) == 0
assert execute(["compare", path + "/m.mlir", "--random-inputs", "0"]) == 0
open(path + "/m.pt2", "w").close()
open(path + "/m.py", "w").write("raise SystemExit('it is not run')")
"""

REFUSED = """\

def refused(call):
    try:
        call()
    except headrace.CompileError as error:
        assert error.code == "missing-extra" and "headrace[torch]" in error.fix, error
    else:
        raise AssertionError(call)

refused(lambda: headrace.compile(path + "/m.pt2"))
refused(lambda: headrace.lowered(path + "/m.pt2", "tensor"))
import contextlib, io
for name in ("m.pt2", "m.py:Net"):
    for command in (["compile"], ["plan"], ["compare", "--random-inputs", "0"], ["audit"], ["why", "--op", "x"]):
        for more in ([], ["--help"]) if ":" in name else ([],):
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                code = execute([command[0], path + "/" + name, *command[1:], *more])
            assert code == 2 and "install headrace[torch]" in said.getvalue(), (name, command, said.getvalue())
"""


def test_the_core_works_without_pytorch_and_what_needs_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CORE + REFUSED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


LOADS_NONE = """\
import sys

import headrace
from headrace.tools.cli import execute

assert execute(["--help"]) == 0 and execute(["compile", "--help"]) == 0
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"torch", "onnx", "numpy", "xdsl"}, loaded
"""


def test_help_loads_no_framework() -> None:
    done = subprocess.run([sys.executable, "-c", LOADS_NONE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
