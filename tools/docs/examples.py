"""Runs the examples of docstrings: each is parsed and verified, and evaluated where it is a tensor program.

An example is the indented block of an op's docstring. Values that it uses and does not define are the arguments of a
function around it; what nothing uses is returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import IsTerminator
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.mlir_lexer import MLIRTokenKind

from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.tensor.program import set_signature, signature
from headrace.passes.infra.verify import offences
from headrace.tools.opt.parsing import LocatingParser, Refusal, Refused, context

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

MOST_SHOWN = 24
"""Elements of the largest tensor of an example whose values are shown."""
FLOATS = ((-3, 0.5, -1, 2.5, 1, -2, 3, 0, -0.5, 2, -1.5, 1.5), (2, -1, 3, 1, -2), (1, 0.5, 2))
"""What the first, second and further float operands repeat."""


class _FragmentParser(LocatingParser):
    """Parses ops that use values which they do not define."""

    def fragment(self) -> tuple[list[Operation], Mapping[str, SSAValue]]:
        """The ops, and the values from outside by name."""
        ops: list[Operation] = []
        while self._current_token.kind != MLIRTokenKind.EOF:
            op = self.parse_optional_operation()
            if op is None:
                self.raise_error("expected an op")
            ops.append(op)
        outside = {name: value for name, values in self.forward_ssa_references.items() for value in values.values()}
        return ops, outside


def blocks(docstring: str) -> list[str]:
    """The indented blocks of a dedented docstring, dedented."""
    found: list[list[str]] = []
    inside = False
    for line in docstring.splitlines():
        if line.startswith("    "):
            found += [] if inside else [[]]
            found[-1].append(line.removeprefix("    "))
        inside = line.startswith("    ") or (inside and not line)
    return ["\n".join(block) for block in found]


def parse_fragment(text: str, name: str = "example") -> ModuleOp:
    """A verified module around the ops of `text`; when they take or give values, in a function `@example`.

    Raises `Refused` with everything that is wrong.
    """
    parser = _FragmentParser(context(), text, name)
    try:
        ops, outside = parser.fragment()
    except ParseError as error:
        raise Refused(Refusal(*parser.line_column(error.span.start), error.msg)) from error
    module = _wrapped(ops, outside, {value: key for key, values in parser.ssa_values.items() for value in values})
    function = module.body.block.first_op
    wrong = [(op, message) for op, message in offences(module) if op not in (module, function)]
    if wrong:
        raise Refused(*(Refusal(*parser.positions.get(op, (0, 0)), message) for op, message in wrong))
    return module


def _wrapped(ops: list[Operation], outside: Mapping[str, SSAValue], names: dict[SSAValue, str]) -> ModuleOp:
    results = [value for op in ops for value in op.results]
    if not outside and not results:
        return ModuleOp(ops)
    block = Block(arg_types=[value.type for value in outside.values()])
    for value, argument in zip(outside.values(), block.args, strict=True):
        value.replace_all_uses_with(argument)
    block.add_ops(ops)
    unused = [value for value in results if not value.uses]
    if not any(op.has_trait(IsTerminator) for op in ops):
        block.add_op(ReturnOp(*unused))
    func = FuncOp("example", ([*block.arg_types], [value.type for value in unused]), Region(block))
    set_signature(func, [*outside], [names[value] for value in unused])
    return ModuleOp([func])


def parse_attributes(text: str) -> list[Attribute]:
    """The types and attributes that `text` is made of. Raises `Refused`."""
    parser = _FragmentParser(context(), text, "example")
    found: list[Attribute] = []
    try:
        while parser._current_token.kind != MLIRTokenKind.EOF:  # pyright: ignore[reportPrivateUsage]
            found.append(parser.parse_attribute())
    except (ParseError, VerifyException, CompileError) as error:
        raise Refused(Refusal(1, 1, str(error))) from error
    return found


def evaluated(module: ModuleOp) -> list[str]:
    """Lines `%name = elements` for the arguments and results of a fragment, run on made-up operands; none when it is no
    program that runs, or when a tensor is too large to read."""
    func = module.body.block.first_op
    if not isinstance(func, FuncOp) or not isinstance(func.body.block.last_op, ReturnOp):
        return []
    from headrace.dialects.dataflow.interpreter import DataflowInterpreter
    from headrace.dialects.support import weights
    from headrace.dialects.tensor.base import tt
    from headrace.dialects.tensor.meaning.collective import on_each
    from headrace.dialects.tensor.storage import WeightOp

    types = [*func.function_type.inputs, *func.function_type.outputs]
    if not all(isinstance(type, TensorType) for type in types):
        return []
    arrays = [_made_up(*tt(type), number) for number, type in enumerate(func.function_type.inputs)]
    keys = {op.key.data: tt(op.results[0]) for op in func.walk() if isinstance(op, WeightOp)}
    store = weights.random({key: (of.shape, of.dtype) for key, of in keys.items()}, 0)
    if (sockets := _sockets(func)) > 1:  # what each gets is too much to read; that they run is what is shown
        on_each(sockets, lambda _: DataflowInterpreter(module, store).run("example", arrays))
        return []
    results = DataflowInterpreter(module, store).run("example", arrays)
    shown = [*zip(signature(func).inputs, arrays, strict=True), *results.items()]
    if keys or max(array.size for _, array in shown) > MOST_SHOWN:
        return []
    return [line for name, array in shown for line in _lines(f"%{name} = ", array)]


def _sockets(func: FuncOp) -> int:
    """How many sockets the collectives of a function are between."""
    from headrace.dialects.tensor.base import attributes_of
    from headrace.dialects.tensor.shapes.collective import COMMUNICATING, PER_SOCKET, group_of

    groups = [group_of(attributes_of(op)) for op in func.walk() if op.name in COMMUNICATING | PER_SOCKET]
    return max((max(group.members(0)) + 1 for group in groups), default=1)


def _made_up(shape: tuple[int, ...], dtype: str, number: int) -> Array:
    """Small readable operands: floats with a sign, integers that index anything of three elements."""
    import numpy as np

    from headrace.dialects.support.dtypes import is_float, to_numpy

    count = int(np.prod(shape, dtype=int))
    if is_float(dtype):
        values = np.resize(np.array(FLOATS[min(number, len(FLOATS) - 1)]), count)
    elif dtype == "i1":
        values = (np.arange(count) * 2 + number) % 3 == 0
    else:
        values = (np.arange(count) * 2 + number) % 3
    return values.astype(to_numpy(dtype)).reshape(shape)


def _lines(head: str, array: Array) -> list[str]:
    """`head` and the elements as nested lists, in columns."""
    texts = [_number(x) for x in array.reshape(-1).tolist()]
    width = max(map(len, texts), default=0)
    cells = iter(text.rjust(width) if array.ndim > 1 else text for text in texts)

    def nested(depth: int) -> str:
        if depth == array.ndim:
            return next(cells)
        inner = [nested(depth + 1) for _ in range(array.shape[depth])]
        between = ", " if depth == array.ndim - 1 else ",\n" + " " * (len(head) + depth + 1)
        return f"[{between.join(inner)}]"

    return (head + nested(0)).splitlines()


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)
