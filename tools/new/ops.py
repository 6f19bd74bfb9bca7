"""`new op`: an elementwise op of one operand from its formula, in every file that has to know it."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from string import Template

from headrace.dialects.support.diagnostics import CompileError, nearest
from headrace.tools.docs.ops import op_classes
from headrace.tools.new.formulas import Formula

FAMILIES = ("elementwise",)
CLASS = Template('''\
@irdl_op_definition
class ${camel}Op(UnaryOp):
    """$formula. Floats only.

        %r = tensor.$name %x : tensor<2x4xf32> -> tensor<2x4xf32>

    Refused: the element type is no float.
    """

    name = "tensor.$name"


''')
TEST = Template("""
// CHECK-LABEL: func.func @$name(
func.func @$name(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.$name %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.$name %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}
""")
TEST_FILE = Path("test/dialects/tensor/elementwise.mlir")


def plan(root: Path, full_name: str, family: str, formula: Formula) -> dict[Path, str]:
    """The files that a new op changes and what they hold then. `CompileError` for a bad or taken name or family."""
    name = _checked(full_name, family)
    camel = "".join(word.capitalize() for word in name.split("_"))
    values = {"name": name, "camel": camel, "formula": formula.text}
    cost = ", ".join(f'"{function}": {number}' for function, number in formula.functions.items())
    edits = {
        "dialects/tensor/elementwise.py": [
            (r"^(?=OPS = \()", CLASS.substitute(values)),
            (r"^OPS = \(\n(?:    \w+,\n)*()(?=\))", f"    {camel}Op,\n"),
        ],
        "dialects/tensor/shapes/elementwise.py": [
            (r"^FLOAT_UNARY = \(\n(?:    .*\n)*()(?=\))", f'    "tensor.{name}",\n'),
            (r"^_WORK = \{\n(?:    .*\n)*()(?=\})", f'    "tensor.{name}": {formula.flops},\n'),
        ],
        "dialects/tensor/meaning/elementwise.py": [
            (r"(?:^_unary\(.*\n(?:[ )].*\n)*)+()", f'_unary("tensor.{name}", lambda x: {formula.meaning})\n'),
        ],
        "dialects/rdu/cost.py": [
            (r"^PROGRAMS: .* = \{\n(?:    .*\n)*()(?=\})", f'    "{name}": {{{cost}}},\n'),
        ],
        "test/tensor_cases.py": [
            (r"^UNARY_TYPES = \{\n.*\n +\[\n(?: {12}.*\n)*()(?= {8}\],\n +FLOATS)", f'            "{name}",\n'),
        ],
        str(TEST_FILE): [(r"()\Z", TEST.substitute(values))],
    }  # fmt: skip
    return {root / path: _edited(root / path, path, places) for path, places in edits.items()}


def _checked(full_name: str, family: str) -> str:
    """The name without the dialect."""
    if family not in FAMILIES:
        why = "only the rules of an elementwise op follow from a formula"
        fix = nearest(family, FAMILIES) or "docs/guides/add-an-op.md has the steps"
        raise CompileError("bad-family", f"no template for family '{family}'", why=why, fix=fix)
    dialect, _, name = full_name.rpartition(".")
    if dialect != "tensor":
        what = f"'{full_name}' is no op of tensor"
        why = (
            f"ops of {dialect} are described in dialects/{dialect}/README.md" if dialect in ("dataflow", "rdu") else ""
        )
        raise CompileError("bad-name", what, why=why, fix=f"tensor.{name}")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name):
        fix = re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).strip("_").lower()
        why = "a name is lower-case words joined by underscores"
        raise CompileError("bad-name", f"'{name}' is no name of an op", why=why, fix=f"tensor.{fix or 'softsign'}")
    if full_name in op_classes():
        fix = "`headrace-opt --help-op` explains it"
        raise CompileError("taken-name", f"there is an op '{full_name}'", fix=fix)
    return name


def _edited(path: Path, shown: str, places: list[tuple[str, str]]) -> str:
    """The text of a file with something put in at the end of what each pattern matches (at its group, if any)."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    for pattern, new in places:
        match = re.search(pattern, text, re.M) if text else None
        if match is None:
            what = f"{shown} is not as expected: nowhere to put {new.strip().splitlines()[0]}"
            raise CompileError("cannot-place", what, fix="follow docs/guides/add-an-op.md by hand")
        at = match.start(1) if match.re.groups else match.start()
        text = text[:at] + new + text[at:]
    return text
