"""Arithmetic in bf16: what becomes narrower, and what stays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from headrace.dialects.machine.attributes import DEVICE_ATTRIBUTE, device_of
from headrace.dialects.support import dtypes, locations
from headrace.dialects.support.journal import count, decline, may
from headrace.dialects.tensor.base import attributes_of, create, ir_type, operands, tt
from headrace.dialects.tensor.decompositions import Emit, attention_scores
from headrace.dialects.tensor.program import signature
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import ConstantOp, LiteralAttr, RecipeOp, WeightOp, constant, recipe, weight
from headrace.passes.analysis.derived import Keys, key
from headrace.passes.infra.base import Pass, option
from headrace.passes.tensor import _graph

WIDE, NARROW, STORED = "f32", "bf16", "f8e4m3"
VIEWS = frozenset(f"tensor.{name}" for name in ("reshape", "transpose", "slice", "broadcast", "concat", "split", "pad"))
"""Ops that only move elements: done in either type."""
PARTS = frozenset(f"tensor.{name}" for name in ("reshape", "transpose", "slice", "split", "gather"))
"""Ops that look at parts of an input: done before its cast."""
JOINS = frozenset(f"tensor.{name}" for name in ("reshape", "transpose", "concat"))
"""Ops that put an output together: done after the casts."""
GATHERS = frozenset(f"tensor.{name}" for name in ("gather", "gather_elements", "gather_nd"))
PRODUCTS = frozenset(("tensor.matmul", "tensor.conv"))
WORK = PRODUCTS | {
    f"tensor.{name}"
    for name in ("softmax", "log_softmax", "layer_norm", "rms_norm", "batch_norm", "group_norm", "avg_pool")
}
"""Ops that are worth narrow operands wherever their values come from."""
SMALLEST = 4096
"""Fewest elements of a weight that is stored in eight bits."""


@dataclass(frozen=True)
class LowerPrecisionPass(Pass):
    """Compute in bf16 what was computed in f32, with a cast wherever the type changes.

    Assumes that composites are recovered (fuse) and not taken apart yet (decompose): a norm, softmax or reduction of
    bf16 computes in f32 and rounds once, products sum in f32 and round once, so that nothing inside them is lost.
    Attention is taken apart here, for the sake of its products. Every f32 value becomes bf16, but:

    * ports of the program keep their types, with casts behind an input (or the parts of it that are used) and before
      an output (or the parts that it is put together of); `ports` says whether states, or all, become bf16 too;
    * what is computed from weights alone is computed in f32 and rounded at the end. A weight becomes a derived weight,
      `w|cast(bf16)`;
    * positions stay: what is computed from integers that no product or table made (positions, masks, and the angles,
      sines and cosines of them) is f32 until it meets an activation;
    * what an integer is made of (a cast of a float) is computed in f32 as far back as ops are elementwise.

    With `weights=f8e4m3`, weights of products and convolutions are stored in f8e4m3, over a power of two per column
    (per filter), so that a column's largest number is between 128 and 256: `w|f8e4m3` and `w|scale(f8e4m3)`, with a
    cast and a mul in the program. Both are exact: all that is lost is lost when the weight is rounded.

    f64, f16 and integers are left alone. A finite constant stays finite: what is beyond bf16 becomes its largest
    number, as in masks.

    Before: `%1 = tensor.relu %0 : tensor<4xf32> -> tensor<4xf32>`. After, where %0 is an input and %1 an output:

        %1 = tensor.cast %0 {to = "bf16"}, %2 = tensor.relu %1 : tensor<4xbf16> …, %3 = tensor.cast %2 {to = "f32"}
    """

    name: ClassVar[str] = "lower-precision"
    requires = ensures = _graph.TENSOR
    rounds = NARROW

    ports: str = option(
        "states", "which ports become bf16: none, those of states, all", choices=("none", "states", "all")
    )

    weights: str = option("bf16", "what weights of products are stored in: bf16, f8e4m3", choices=(NARROW, STORED))

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        if DEVICE_ATTRIBUTE in module.attributes:
            for dtype in (NARROW, self.weights):
                device_of(module).type(dtype)  # or a refusal
        changed = _expand(module)
        functions = _graph.functions(module)
        classes = _Classes(functions)
        table = Keys(module)
        for function in functions:
            changed |= _Lowering(function, classes, table, self).run()
        return changed


def _expand(module: ModuleOp) -> bool:
    """Take f32 attention apart, the softmax whole; True if there was any."""
    changed = False
    for block in _graph.blocks(module):
        for op in _graph.ops(block):
            if op.name != "tensor.attention" or not _is_wide(op.results[0]) or not may("expand-attention", op):
                continue
            made: list[Operation] = []
            emit = Emit(made.append, op.location)
            scores = attention_scores(emit, attributes_of(op), op.operands)
            weights = emit.softmax(scores, axis=len(tt(scores).shape) - 1)
            value = emit.matmul(weights, op.operands[2])
            block.insert_ops_before(made, op)
            _graph.replace(op, [value])
            changed = True
    return changed


def _is_wide(value: SSAValue) -> bool:
    return tt(value).dtype == WIDE


def _is_integer(value: SSAValue) -> bool:
    return not dtypes.is_float(tt(value).dtype)


@dataclass
class _Classes:
    """What the values of a module are, over all functions and calls."""

    functions: Sequence[FuncOp]
    static: set[SSAValue] = field(default_factory=set[SSAValue])
    """Computed from weights and constants alone."""
    positions: set[SSAValue] = field(default_factory=set[SSAValue])
    """Computed from integers, through no table, product or choice of an index, and what is static."""
    kept: set[SSAValue] = field(default_factory=set[SSAValue])
    """f32 values that stay f32."""
    needed: set[SSAValue] = field(default_factory=set[SSAValue])
    """f32 values that an integer is made of."""

    def __post_init__(self) -> None:
        by_name = {f.sym_name.data: f for f in self.functions}
        self.calls: dict[FuncOp, list[CallOp]] = {f: [] for f in self.functions}
        for function in self.functions:
            for op in function.body.block.ops:
                if isinstance(op, CallOp) and op.callee.string_value() in by_name:
                    self.calls[by_name[op.callee.string_value()]].append(op)
        self._callees = {call: function for function, calls in self.calls.items() for call in calls}
        self._lost: set[SSAValue] = set()
        """Arguments of called functions that some call gives an activation."""
        while self._pass():
            pass
        for function in self.functions:
            for op in reversed(_graph.ops(function.body.block)):
                self._need(op)
        self._untouched = {f for f, calls in self.calls.items() if calls and self._narrows(f) and not may("lower", f)}
        """Called functions whose types stay."""
        for function in self._untouched:
            self.kept.update(a for a in function.body.block.args if _is_wide(a))
            for call in self.calls[function]:
                self.kept.update(r for r in call.results if _is_wide(r))

    def callee(self, call: CallOp) -> FuncOp | None:
        """The function of a call, where it has a body."""
        return self._callees.get(call)

    def result_kept(self, function: FuncOp, index: int) -> bool:
        """Whether a called function returns this value as f32."""
        last = function.body.block.last_op
        assert isinstance(last, ReturnOp)
        value = last.operands[index]
        return function in self._untouched or (value in self.kept and value not in self.static)

    def _narrows(self, function: FuncOp) -> bool:
        """Whether a called function takes or returns other types than before."""
        last = function.body.block.last_op
        assert isinstance(last, ReturnOp)
        return any(_is_wide(a) and a not in self.kept for a in function.body.block.args) or any(
            _is_wide(v) and not (v in self.kept and v not in self.static) for v in last.operands
        )

    def _pass(self) -> bool:
        """Classify all values anew; whether more arguments were lost."""
        self.static.clear()
        self.positions.clear()
        self.kept.clear()
        before = len(self._lost)
        done: set[FuncOp] = set()

        def visit(function: FuncOp) -> None:
            if function in done:
                return
            done.add(function)
            for argument in function.body.block.args:
                own = not self.calls[function]
                if _is_integer(argument):
                    if own or argument not in self._lost:
                        self.positions.add(argument)
                elif not own and argument not in self._lost and _is_wide(argument):
                    self.kept.add(argument)
                    self.positions.add(argument)
            for op in function.body.block.ops:
                if isinstance(op, CallOp):
                    callee = self.callee(op)
                    if callee is not None:
                        visit(callee)
                    self._call(op, callee)
                else:
                    self._classify(op)

        for function in self.functions:
            visit(function)
        for call, function in self._callees.items():
            for value, argument in zip(call.operands, function.body.block.args, strict=True):
                if value not in self.positions:
                    self._lost.add(argument)
        return len(self._lost) > before

    def _call(self, call: CallOp, callee: FuncOp | None) -> None:
        if callee is None:
            return
        last = callee.body.block.last_op
        assert isinstance(last, ReturnOp)
        for result, value in zip(call.results, last.operands, strict=True):
            if value in self.static:
                continue
            if value in self.positions:
                self.positions.add(result)
            if value in self.kept:
                self.kept.add(result)

    def _classify(self, op: Operation) -> None:
        if not op.results:
            return
        values = operands(op)
        static = all(v in self.static for v in values)
        known = not static and self._places(op, values)
        wide = [v for v in values if _is_wide(v)]
        for result in op.results:
            if static:
                self.static.add(result)
            if known:
                self.positions.add(result)
            if not _is_wide(result):
                continue
            if static or known:
                self.kept.add(result)
            elif wide:
                moving = [v for v in wide if v in self.kept and v not in self.static]
                if moving and op.name not in WORK and all(v in self.kept for v in wide):
                    self.kept.add(result)
            elif op.name == "tensor.cast" and _is_integer(values[0]):
                self.kept.add(result)

    def _places(self, op: Operation, values: Sequence[SSAValue]) -> bool:
        """Whether an op makes positions of positions."""
        if op.name in GATHERS:
            return values[0] in self.positions and all(v in self.positions or v in self.static for v in values)
        if op.name in PRODUCTS and not _is_wide(op.results[0]):
            return False
        return all(v in self.positions or v in self.static for v in values)

    def _need(self, op: Operation) -> None:
        counts = op.name == "tensor.cast" and _is_integer(op.results[0]) and tt(op.results[0]).dtype != "i1"
        passes_on = op.name not in WORK and not isinstance(op, CallOp)
        if counts or (passes_on and any(r in self.needed for r in op.results)):
            self.needed.update(v for v in operands(op) if _is_wide(v))


class _Lowering:
    """Rewrites one function."""

    def __init__(self, function: FuncOp, classes: _Classes, table: Keys, options: LowerPrecisionPass) -> None:
        self.function = function
        self.block: Block = function.body.block
        self.classes = classes
        self.table = table
        self.ports, self.weights = options.ports, options.weights
        self.own = not classes.calls[function]
        self.names = signature(function)
        self.narrow_ports: set[tuple[int, str]] = self.choose_ports() if self.own else set()
        """Inputs (0) and results (1) of the program that become bf16."""
        self.lows: dict[SSAValue, SSAValue] = {}
        """bf16 values by the f32 values that they stand for."""
        self.wides: dict[SSAValue, SSAValue] = {}
        """f32 values by those of the same that are made no longer."""
        self.gone: set[SSAValue] = set()
        """f32 values that are made no longer."""
        self.inward: set[SSAValue] = set()
        """f32 inputs of the program, and parts of them at known positions."""
        self.outward: set[Operation] = set()
        """Ops that only put f32 outputs together."""
        self.dead: dict[Operation, None] = {}
        self.narrowed: list[BlockArgument] = []
        self.changed = False

    def run(self) -> bool:
        ops = _graph.ops(self.block)
        order = {op: i for i, op in enumerate(ops)}
        self.arguments()
        self.find_joins()
        for op in ops:
            self.at = op
            self.visit(op)
        self.changed |= _graph.erase_dead(sorted(self.dead, key=lambda op: order[op]))
        self.retype()
        return self.changed

    # -- ports ---------------------------------------------------------------------------------------------------

    def choose_ports(self) -> set[tuple[int, str]]:
        last = self.block.last_op
        assert last is not None
        wide = {(0, n) for n, a in zip(self.names.inputs, self.block.args, strict=True) if _is_wide(a)}
        wide |= {(1, n) for n, v in zip(self.names.results, last.operands, strict=True) if _is_wide(v)}
        groups = [{(0, past), (1, present)} for past, present in self.names.states]
        if self.ports == "all":
            groups += [{port} for port in sorted(wide) if not any(port in group for group in groups)]
        found: set[tuple[int, str]] = set()
        for group in groups if self.ports != "none" else ():
            if group <= wide and may("lower", self.function):
                found |= group
        return found

    def arguments(self) -> None:
        """Change the types of arguments; ops name the old ones until all are visited."""
        for argument, name in zip(list(self.block.args), self.names.inputs, strict=True):
            narrow = (0, name) in self.narrow_ports if self.own else argument not in self.classes.kept
            if not (_is_wide(argument) and narrow):
                if self.own and _is_wide(argument):
                    self.inward.add(argument)
                continue
            type = ir_type(TT(tt(argument).shape, NARROW))
            new = self.block.insert_arg(type, argument.index, location=argument.location)
            new.name_hint = argument.name_hint
            self.lows[argument] = new
            self.gone.add(argument)
            self.narrowed.append(argument)

    def find_joins(self) -> None:
        last = self.block.last_op
        pending = [
            v for v, name in zip(last.operands if last else (), self.names.results, strict=True)
            if self.own and (1, name) not in self.narrow_ports
        ]  # fmt: skip
        while pending:
            value = pending.pop()
            op = _graph.producer(value)
            if op is not None and op.name in JOINS and _is_wide(value) and value.has_one_use():
                self.outward.add(op)
                pending += op.operands

    def is_part(self, op: Operation) -> bool:
        """Whether an op looks at a part of an f32 input."""
        if op.name not in PARTS or op.operands[0] not in self.inward:
            return False
        return op.name != "tensor.gather" or _graph.literal(op.operands[1]) is not None

    def retype(self) -> None:
        for argument in self.narrowed:
            self.block.erase_arg(argument)
        last = self.block.last_op
        assert last is not None
        type = FunctionType.from_lists([a.type for a in self.block.args], [v.type for v in last.operands])
        if type != self.function.function_type:
            self.function.function_type = type
            self.changed = True

    def returned(self, op: ReturnOp) -> None:
        for i, value in enumerate(list(op.operands)):
            if not _is_wide(value):
                continue
            if self.own:
                narrow = (1, self.names.results[i]) in self.narrow_ports
            else:
                narrow = not self.classes.result_kept(self.function, i)
            self.put(op, i, self.low(value) if narrow else self.wide(value))

    def call(self, op: CallOp) -> None:
        callee = self.classes.callee(op)
        if callee is None:
            self.widen(op)
            return
        kept = self.classes.kept
        given = [
            v if not _is_wide(v) else self.wide(v) if argument in kept else self.low(v)
            for v, argument in zip(op.operands, callee.body.block.args, strict=True)
        ]
        types = [ir_type(TT(tt(r).shape, NARROW)) if _is_wide(r) and r not in kept else r.type for r in op.results]
        if all(v is old for v, old in zip(given, op.operands, strict=True)) and types == [r.type for r in op.results]:
            return
        new = CallOp(op.callee, given, types)
        new.attributes, new.location = dict(op.attributes), op.location
        self.block.insert_op_before(new, op)
        self.replace(op, new)

    # -- ops -----------------------------------------------------------------------------------------------------

    def visit(self, op: Operation) -> None:
        if isinstance(op, ReturnOp):
            self.returned(op)
        elif isinstance(op, CallOp):
            self.call(op)
        elif isinstance(op, ConstantOp):
            self.limit(op)
        elif isinstance(op, WeightOp) or not any(map(_is_wide, (*operands(op), *op.results))):
            pass
        elif op.name == "tensor.cast" and tt(op.operands[0]).dtype == NARROW:
            self.lows[op.results[0]] = op.operands[0]
            self.drop(op)
        elif op.name == "tensor.cast" and _is_wide(op.operands[0]) and tt(op.results[0]).dtype == NARROW:
            self.cast(op)
        elif self.is_part(op):
            self.inward.update(op.results)
            self.drop(op)
        elif op in self.outward or self.stays(op) or not may("lower", op):
            self.widen(op)
        else:
            self.lower(op)

    def stays(self, op: Operation) -> bool:
        """Whether an op computes in f32."""
        classes = self.classes
        results = [r for r in op.results if _is_wide(r)]
        if results:
            kept = any(r in classes.kept or (r in classes.needed and op.name not in WORK) for r in results)
            if kept and not all(r in classes.static for r in results):
                why = "an integer is made of it" if results[0] not in classes.kept else "it is made of integers alone"
                decline("lower", op, why)
            return kept
        wide = [v for v in operands(op) if _is_wide(v)]
        known = all(v in classes.kept or v in classes.needed for v in wide)
        return known and (any(v not in classes.static for v in wide) or all(v in classes.static for v in operands(op)))

    def widen(self, op: Operation) -> None:
        """Leave an op in f32."""
        for i, value in enumerate(list(op.operands)):
            if _is_wide(value):
                self.put(op, i, self.wide(value))

    def lower(self, op: Operation) -> None:
        attrs = {name: value for name, value in attributes_of(op).items() if value is not None}
        if op.name == "tensor.cast" and _is_wide(op.results[0]):
            attrs["to"] = NARROW
        scale = self.scale_of(op)
        given = [
            self.eight_bits(op, scale) if scale is not None and i == 1 else self.low(v) if _is_wide(v) else v
            for i, v in enumerate(op.operands)
        ]
        new = create(op.name, given, attrs, op.location)
        new.attributes.update(op.attributes)
        self.block.insert_op_before(new, op)
        count("ops lowered")
        if scale is not None and op.name == "tensor.matmul":
            new = create("tensor.mul", [new.results[0], scale], {}, op.location)
            self.block.insert_op_before(new, op)
        self.replace(op, new)

    def scale_of(self, op: Operation) -> SSAValue | None:
        """The scale of the weight of a product that is stored in eight bits; None where it is not."""
        if self.weights != STORED or op.name not in PRODUCTS:
            return None
        maker, type = _graph.producer(op.operands[1]), tt(op.operands[1])
        if not isinstance(maker, WeightOp) or (op.name == "tensor.matmul" and len(type.shape) != 2):
            decline("store-in-eight-bits", op, "operand 1 is no weight (of two dims)")
            return None
        if type.elements < SMALLEST:
            decline("store-in-eight-bits", op, f"its weight has {type.elements} elements, fewer than {SMALLEST}")
            return None
        filters = op.name == "tensor.conv"
        shape = (type.shape[0], *(1,) * (len(type.shape) - 1)) if filters else type.shape[1:]
        made = weight(self.table.add(_scale(maker, filters, shape), self.function), TT(shape, NARROW), maker.location)
        return self.insert(made)

    def eight_bits(self, op: Operation, scale: SSAValue) -> SSAValue:
        """The weight of a product out of eight bits; filters are scaled before their product, columns after it."""
        maker = _graph.producer(op.operands[1])
        assert isinstance(maker, WeightOp)
        self.dead[maker] = None
        key = self.table.add(_quotient(maker, op.name == "tensor.conv"), self.function)
        held = self.insert(weight(key, TT(tt(maker.result).shape, STORED), maker.location))
        value = self.insert(create("tensor.cast", [held], {"to": NARROW}, maker.location))
        return (
            self.insert(create("tensor.mul", [value, scale], {}, maker.location)) if op.name == "tensor.conv" else value
        )

    def cast(self, op: Operation) -> None:
        """A cast of the program from f32 to bf16: it is what the value becomes anyway."""
        value = op.operands[0]
        known = self.lows.get(value)
        if known is None:
            self.lows[value] = op.results[0]
        elif may("merge-casts", op):
            op.results[0].replace_all_uses_with(known)
            self.dead[op] = None
            self.changed = True

    def limit(self, op: ConstantOp) -> None:
        """Keep the finite elements of a constant finite in bf16."""
        if not _is_wide(op.result):
            return
        limited = _limited(op.value)
        if limited is not None and may("limit", op):
            new = constant(limited, op.location)
            new.result.name_hint = op.result.name_hint
            self.block.insert_op_before(new, op)
            self.wides[op.result] = new.result
            self.gone.add(op.result)
            self.dead[op] = None
            self.changed = True

    def replace(self, op: Operation, new: Operation) -> None:
        """Let the results of a new op stand for those of an old one."""
        for old, result in zip(op.results, new.results, strict=True):
            result.name_hint = old.name_hint
            if _is_wide(old) and not _is_wide(result):
                self.lows[old] = result
                self.gone.add(old)
            elif _is_wide(old):
                self.wides[old] = result
                self.gone.add(old)
            else:
                old.replace_all_uses_with(result)
        self.dead[op] = None
        self.changed = True

    def drop(self, op: Operation) -> None:
        """Erase an op at the end if its users no longer need it."""
        if not _graph.unused(op):
            self.dead[op] = None

    def put(self, op: Operation, index: int, value: SSAValue) -> None:
        if op.operands[index] is not value:
            op.operands[index] = value
            self.changed = True

    # -- values --------------------------------------------------------------------------------------------------

    def wide(self, value: SSAValue) -> SSAValue:
        """An f32 value as f32, in front of the op that is visited."""
        if value not in self.gone:
            return value
        if value not in self.wides:
            self.wides[value] = self.insert(create("tensor.cast", [self.lows[value]], {"to": WIDE}, _where(value)))
        return self.wides[value]

    def low(self, value: SSAValue) -> SSAValue:
        """An f32 value as bf16."""
        found = self.lows.get(value)
        if found is None:
            found = self.lows[value] = self.made_low(value)
        return found

    def made_low(self, value: SSAValue) -> SSAValue:
        op = _graph.producer(value)
        if isinstance(op, ConstantOp):
            self.dead[op] = None
            literal = _limited(op.value) or op.value
            return self.insert(constant(_rounded(literal), op.location))
        if isinstance(op, WeightOp):
            self.dead[op] = None
            return self.insert(weight(self.derive(op), TT(tt(value).shape, NARROW), op.location))
        if op is not None and op.name in VIEWS and value not in self.inward:
            self.dead[op] = None
            attrs = {name: found for name, found in attributes_of(op).items() if found is not None}
            new = create(op.name, [self.low(v) for v in op.operands], attrs, op.location)
            self.insert(new)
            self.lows.update(zip(op.results, new.results, strict=True))
            self.changed = True
            return self.lows[value]
        return self.insert(create("tensor.cast", [self.wide(value)], {"to": NARROW}, _where(value)))

    def insert(self, op: Operation) -> SSAValue:
        self.block.insert_op_before(op, self.at)
        return op.results[0]

    def derive(self, op: WeightOp) -> str:
        """The key of a weight in bf16."""
        source = op.clone()
        cast = create("tensor.cast", [source.result], {"to": NARROW}, op.location)
        made = recipe(key(cast.results[0]), [source, cast], cast.results[0], op.location)
        return self.table.add(made, self.function)


def _powers(emit: Emit, value: SSAValue, filters: bool) -> SSAValue:
    """A power of two per column (or filter) of an f32 weight, over which its largest number is from 128 to 256."""
    axes = tuple(range(1, len(tt(value).shape))) if filters else (0,)
    largest = emit.max(emit.reduce_max(emit.abs(value), axes=axes, keepdims=True), 2.0**-100)
    exponent = emit.sub(emit.ceil(emit.mul(emit.log(largest), 1 / math.log(2))), 8.0)
    return emit.cast(emit.pow(emit.literal(LiteralAttr.filled(TT((), WIDE), 2.0)), exponent), to=NARROW)  # now exact


def _scale(op: WeightOp, filters: bool, shape: Sequence[int]) -> RecipeOp:
    source = op.clone()
    ops: list[Operation] = [source]
    emit = Emit(ops.append, op.location)
    value = emit.reshape_to(_powers(emit, source.result, filters), shape)
    return recipe(f"{op.key.data}|scale({STORED})", ops, value, op.location)


def _quotient(op: WeightOp, filters: bool) -> RecipeOp:
    source = op.clone()
    ops: list[Operation] = [source]
    emit = Emit(ops.append, op.location)
    scale = emit.cast(_powers(emit, source.result, filters), to=WIDE)
    value = emit.cast(emit.div(source.result, scale), to=STORED)
    return recipe(f"{op.key.data}|{STORED}", ops, value, op.location)


def _where(value: SSAValue) -> Any:
    return locations.of_value(value)


def _limited(literal: LiteralAttr) -> LiteralAttr | None:
    """An f32 literal without finite elements that bf16 would round to infinity; None when it has none."""
    import numpy as np

    most = np.uint32(0x7F7F0000).view(np.float32)
    array = np.asarray(literal.array())
    beyond = np.isfinite(array) & (np.abs(array) > most)
    if not beyond.any():
        return None
    limited = np.where(beyond, np.copysign(most, array), array).astype(np.float32)
    return LiteralAttr.from_array(limited)


def _rounded(literal: LiteralAttr) -> LiteralAttr:
    import numpy as np

    return LiteralAttr.from_array(np.asarray(literal.array()).astype(dtypes.to_numpy(NARROW)))
