"""Speed of parsing, printing and verifying IR against plain xDSL, CPU seconds.

At each level the same program of so many ops is taken through xDSL's own machinery in turn with ours:

* `tensor`: the same text, read by xDSL's parser into ops that are declared with nothing but xDSL's operand, property
  and result definitions and its declarative format, printed by its printer and verified by their constraints.
* `dataflow` and `rdu`: the same ops in xDSL's generic form, and verified by their constraints alone.

A module is verified when it was just read. Ours reads the usual text, gives every op and argument its location and
keeps where each stood; it verifies types and rules that xDSL knows nothing of, and the order of values.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, DenseArrayBase, IntegerAttr, ModuleOp, StringAttr, TensorType, i64
from xdsl.dialects.func import Func, FuncOp
from xdsl.ir import Dialect
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from headrace.dialects.rdu.ops import ConfigOp
from headrace.passes.infra.registry import build
from headrace.passes.infra.verify import offences
from headrace.tools.opt import context, parse, pipelines
from headrace.tools.opt.parsing import LocatingParser

OPS = 20_000
LEVELS = ("tensor", "dataflow", "rdu")

Tensor = TensorType.constr(AnyAttr())


# The same ops in plain xDSL


class PlainBinary(IRDLOperation):
    """Two operands, a result."""

    lhs = operand_def(Tensor)
    rhs = operand_def(Tensor)
    result = result_def(Tensor)
    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"


class PlainUnary(IRDLOperation):
    """An operand, a result."""

    input = operand_def(Tensor)
    result = result_def(Tensor)
    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$input attr-dict `:` type($input) `->` type($result)"


@irdl_op_definition
class PlainMatmul(PlainBinary):
    """`tensor.matmul`."""

    name = "tensor.matmul"


@irdl_op_definition
class PlainAdd(PlainBinary):
    """`tensor.add`."""

    name = "tensor.add"


@irdl_op_definition
class PlainMul(PlainBinary):
    """`tensor.mul`."""

    name = "tensor.mul"


@irdl_op_definition
class PlainExp(PlainUnary):
    """`tensor.exp`."""

    name = "tensor.exp"


@irdl_op_definition
class PlainSoftmax(PlainUnary):
    """`tensor.softmax`."""

    name = "tensor.softmax"
    axis = prop_def(IntegerAttr.constr(i64))


@irdl_op_definition
class PlainTranspose(PlainUnary):
    """`tensor.transpose`."""

    name = "tensor.transpose"
    perm = prop_def(DenseArrayBase.constr(i64))


@irdl_op_definition
class PlainWeight(IRDLOperation):
    """`tensor.weight`."""

    name = "tensor.weight"
    key = prop_def(StringAttr)
    result = result_def(Tensor)
    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$key attr-dict `:` type($result)"


PLAIN = Dialect("tensor", [PlainMatmul, PlainAdd, PlainMul, PlainExp, PlainSoftmax, PlainTranspose, PlainWeight])


# Programs


def tensor_text(ops: int) -> str:
    """A program of about so many tensor ops: layers of ten, each with weights of its own."""
    t = "tensor<64x64xf32>"
    lines = [f"func.func @main(%0: {t}) -> {t} {{"]
    x = at = 0
    for layer in range(max(1, ops // 10)):
        w, b, product, added, raised, scaled, turned, soft, back, out = range(at + 1, at + 11)
        lines += [
            f'  %{w} = tensor.weight "layer.{layer}.w" : {t}',
            f'  %{b} = tensor.weight "layer.{layer}.b" : tensor<64xf32>',
            f"  %{product} = tensor.matmul %{x}, %{w} : {t}, {t} -> {t}",
            f"  %{added} = tensor.add %{product}, %{b} : {t}, tensor<64xf32> -> {t}",
            f"  %{raised} = tensor.exp %{added} : {t} -> {t}",
            f"  %{scaled} = tensor.mul %{added}, %{raised} : {t}, {t} -> {t}",
            f"  %{turned} = tensor.transpose %{scaled} {{perm = array<i64: 1, 0>}} : {t} -> {t}",
            f"  %{soft} = tensor.softmax %{turned} {{axis = 0 : i64}} : {t} -> {t}",
            f"  %{back} = tensor.transpose %{soft} {{perm = array<i64: 1, 0>}} : {t} -> {t}",
            f"  %{out} = tensor.add %{back}, %{x} : {t}, {t} -> {t}",
        ]
        x = at = out
    return "\n".join([*lines, f"  func.return %{x} : {t}", "}", ""])


def lowered(level: str, ops: int, device: str) -> ModuleOp:
    """A program of at least so many ops of a lower level: a small one is lowered, and its functions (`dataflow`) or
    configs (`rdu`) are put in under other names until there are enough."""
    from headrace.dialects.machine.attributes import set_device
    from headrace.dialects.machine.device import load_device

    ctx = context()
    module, _ = parse(ctx, tensor_text(40), "bench")
    set_device(module, load_device(device))
    for one in build("tensor,dataflow" if level == "dataflow" else "default", pipelines=pipelines()):
        one.apply(ctx, module)
    kind = FuncOp if level == "dataflow" else ConfigOp
    units = [op for op in module.body.block.ops if isinstance(op, kind)]
    size = sum(1 for _ in module.walk())
    grown = sum(1 for op in units for _ in op.walk())
    for number in range(max(0, -(-(ops - size) // grown))):
        for op in units:
            copy = op.clone()
            copy.sym_name = StringAttr(f"{op.sym_name.data}_{number}")
            module.body.block.insert_op_before(copy, op)
    return module


# Measuring


@dataclass(frozen=True)
class Row:
    """One figure: CPU seconds (medians) and the median paired ratio ours / plain."""

    level: str
    what: str
    ops: int
    ours: float
    plain: float
    ratio: float


def paired(
    ours: Callable[[Any], object],
    plain: Callable[[Any], object],
    rounds: int,
    fresh: Callable[[], object] = lambda: None,
) -> tuple[float, float, float]:
    """Run both in turn: medians of each, and of the ratios of the rounds. Each round has an argument from `fresh`."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        given = fresh()
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            gc.collect()
            start = time.process_time()
            kept = (ours, plain)[side](given)
            seconds[side].append(time.process_time() - start)
            del kept
        del given
    return median(seconds[0]), median(seconds[1]), median(a / b for a, b in zip(*seconds, strict=True))


def printed(module: ModuleOp, generic: bool = False) -> str:
    """The text of a module."""
    out = io.StringIO()
    Printer(out, print_generic_format=generic).print_op(module)
    return out.getvalue()


@contextmanager
def constraints_alone(module: ModuleOp) -> Generator[None]:
    """Leave out the rules that the ops of Headrace in a module have beyond their constraints and traits."""

    def verify_(op: IRDLOperation) -> None:
        type(op).get_irdl_definition().verify(op)

    own: dict[Any, Any] = {
        type(op): type(op).verify_ for op in module.walk() if type(op).__module__.startswith("headrace.dialects.")
    }
    for cls in own:
        cls.verify_ = verify_
    try:
        yield
    finally:
        for cls, method in own.items():
            cls.verify_ = method


def plain_context() -> Context:
    """xDSL's builtin and func beside the plain tensor ops."""
    ctx = Context()
    for dialect in (Builtin, Func, PLAIN):
        ctx.load_dialect(dialect)
    return ctx


def measure(level: str, ops: int, device: str, rounds: int) -> list[Row]:
    """Parsing, printing and verifying at one level."""
    ctx, plain = context(), plain_context()
    if level == "tensor":
        text = same = tensor_text(ops)
    else:
        made = lowered(level, ops, device)
        text, same = printed(made), printed(made, generic=True)
        plain = context()
    module, _ = parse(ctx, text, "bench")
    twin = Parser(plain, same, "bench").parse_module()
    twin.verify()
    generic = level != "tensor"
    count = sum(1 for _ in module.walk())
    if count != sum(1 for _ in twin.walk()):
        raise ValueError(f"{level}: both must have the same ops")

    def verify_plain(_: object) -> None:
        with constraints_alone(twin):
            twin.verify()

    def parsed(_: object = None) -> ModuleOp:
        return LocatingParser(ctx, text, "bench").parse_module()

    figures = {
        "parse": paired(parsed, lambda _: Parser(plain, same, "bench").parse_module(), rounds),
        "print": paired(lambda _: printed(module), lambda _: printed(twin, generic), rounds),
        # what was verified once may be remembered with its attributes
        "verify": paired(offences, verify_plain, rounds, parsed),
    }
    return [Row(level, what, count, *found) for what, found in figures.items()]


def add_command(commands: Any) -> None:
    """Register `ir`."""
    parser = commands.add_parser("ir", help="parsing, printing and verifying against plain xDSL, CPU time")
    parser.add_argument("--ops", type=int, default=OPS)
    parser.add_argument("--levels", default=",".join(LEVELS), help="comma-separated: tensor, dataflow, rdu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="sn40l")
    parser.add_argument("--gate", type=float, default=None, help="fail when a ratio is above this")
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure every level and print a row for each figure."""
    print(f"{'level':8} {'what':7} {'ops':>6} {'ours':>7} {'plain':>7} {'ratio':>6}")
    rows: list[Row] = []
    for level in options.levels.split(","):
        for row in measure(level, options.ops, options.device, options.rounds):
            rows.append(row)
            print(
                f"{row.level:8} {row.what:7} {row.ops:6} {row.ours:7.3f} {row.plain:7.3f} {row.ratio:6.2f}", flush=True
            )
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return int(options.gate is not None and max(row.ratio for row in rows) > options.gate)
