"""Repeated layers as one function called many times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import LocationAttr, ModuleOp, NameLoc, StringAttr, SymbolRefAttr
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue

from headrace.dialects.support import locations
from headrace.dialects.support.journal import count, decide, decline, may
from headrace.dialects.tensor.base import make, operands
from headrace.dialects.tensor.storage import ConstantOp, WeightOp
from headrace.passes.analysis.repeats import Repeat, Step, repeats, stretches
from headrace.passes.infra.base import Pass, option
from headrace.passes.tensor import _graph

DETAILS = {"tensor.slice": ("starts", "stops")}
"""Attributes in which two iterations may differ when the op reads nothing of its own iteration: it stays outside."""
MOVEMENT = frozenset(
    f"tensor.{name}" for name in ("reshape", "transpose", "broadcast", "slice", "concat", "split", "pad")
)
"""A layer of nothing else is no layer."""
TRIED = 8  # stretches looked at, the one that saves most first


@dataclass(frozen=True)
class OutlineRepeatedLayersPass(Pass):
    """Make subgraphs that are equal up to weights, small constants and slices of arguments one function.

    Assumes topological order, in which the ops of a layer follow each other (as exporters write them); works best after
    canonicalize, fuse and cse. Weights, constants and other values that differ become arguments of the function, those
    that all iterations share are repeated inside or passed; what is used outside becomes results. Slices and reshapes
    of arguments of the program stay outside. A near miss is not outlined. Numbers do not change. Ops inside the
    function stand for those of all iterations, under their name less the path that names the layer; a call stands for
    the ops of its layer, under that path.

    Before: `main` with twelve times the ops of a layer. After:

        func.func @main(%x, …) {
          %w0 = tensor.weight "0.w" … %1 = func.call @layer(%x, %w0) … %2 = func.call @layer(%1, %w1) …
        }
        func.func private @layer(%x, %w) { … }
    """

    name: ClassVar[str] = "outline-repeated-layers"
    requires = ensures = _graph.TENSOR

    min_ops: int = option(4, "fewest ops that a layer must have", unit="ops", low=1)
    min_saved: int = option(16, "fewest ops that outlining must save", unit="ops", low=1)
    min_count: int = option(2, "fewest times that a layer must occur", unit="layers", low=2)

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        changed = False
        for func in _graph.functions(module):
            while True:
                layers = find(func.body.block, self.min_ops, self.min_saved, self.min_count)
                if layers is None or not may("outline-layers", layers.iterations[0][0]):
                    break
                count("layers outlined", len(layers.iterations))
                count("ops saved", layers.saved)
                outline(module, func, layers)
                changed = True
        return changed


@dataclass
class Layers:
    """Equal subgraphs: `iterations[k][i]` is op i of iteration k. `sources` says, per op and operand, which op and
    result of the same iteration it is, or None for a parameter. `order` is a new order for what is left of the block,
    in which an int stands for the call of that iteration."""

    iterations: list[list[Operation]]
    sources: list[tuple[tuple[int, int] | None, ...]]
    order: list[Operation | int] = field(default_factory=list["Operation | int"])

    @property
    def saved(self) -> int:
        """Ops that need not be there if the layer is there once."""
        return (len(self.iterations) - 1) * len(self.sources)


class _Kinds:
    """Numbers for what ops compute: name, attributes and types; equal numbers mean equal in all of these. Ops that have
    the very objects of one seen before are told at a look."""

    def __init__(self) -> None:
        self.number = _graph.Numbers()
        self.kinds: dict[Any, int] = {}
        self.looks: dict[tuple[Any, ...], tuple[int, tuple[int, ...]]] = {}

    def of(self, op: Operation) -> tuple[int, tuple[int, ...]]:
        """The kind of an op and its detail, which is not part of it."""
        properties = op.properties
        given, made = [id(x.type) for x in operands(op)], [id(x.type) for x in op.results]
        look = op.name, *properties, *map(id, properties.values()), *given, None, *made
        found = self.looks.get(look)
        if found is None or op.regions or type(op) is CallOp:
            found = self.looks[look] = self._of(op)
        return found

    def _of(self, op: Operation) -> tuple[int, tuple[int, ...]]:
        number, properties = self.number, op.properties
        names = DETAILS.get(op.name, ())
        attributes = [(key, number(properties[key])) for key in sorted(properties) if key not in names]
        detail = tuple([number(properties[name]) for name in names])
        key = (
            op.name,
            tuple(attributes),
            tuple([number(x.type) for x in operands(op)]),
            tuple([number(x.type) for x in op.results]),
            id(op) if op.regions or type(op) is CallOp else None,
        )
        return self.kinds.setdefault(key, len(self.kinds)), detail


def find(block: Block, min_ops: int, min_saved: int, min_count: int) -> Layers | None:
    """The repeated layers of a block that save most, or None."""
    kinds = _Kinds()
    ops, steps = _steps(block, kinds)
    best: Layers | None = None
    for stretch in stretches([step.kind for step in steps])[:TRIED]:
        if stretch.period < min_ops or (best is not None and stretch.saved + stretch.period <= best.saved):
            continue
        candidates = repeats(steps, stretch)
        if not candidates:
            times = f"{stretch.length // stretch.period} times {stretch.period} ops of the same kinds"
            decline(
                "outline-layers",
                ops[stretch.start],
                f"{times} follow each other, but what they read from each other differs",
            )
        for found in candidates:
            layers = _layers(ops, found)
            while _prepend(layers, kinds):
                pass
            first = layers.iterations[0]
            if len(first) < min_ops or len(layers.iterations) < min_count or layers.saved < min_saved:
                decline(
                    "outline-layers",
                    first[0],
                    f"{len(layers.iterations)} layers of {len(first)} ops save {layers.saved} ops only",
                )
                continue
            if best is not None and layers.saved <= best.saved:
                continue
            if all(op.name in MOVEMENT for op in first):
                decline("outline-layers", first[0], "the layer only moves data")
                continue
            layers.order = _order(block, layers)
            if layers.order:
                best = layers
            else:
                decline("outline-layers", first[0], "an op between the layers needs one of them and is needed by it")
    return best


def _steps(block: Block, kinds: _Kinds) -> tuple[list[Operation], list[Step]]:
    """The ops that take part, and the same as steps. Sources, and slices and reshapes of sources and arguments, do not:
    they float to where they are needed."""
    ops: list[Operation] = []
    steps: list[Step] = []
    made: dict[int, tuple[int, int]] = {}  # by the id of the value: values are slow to hash
    floating = {id(value) for value in block.args}
    for op in _graph.ops(block):
        if _floats(op, floating):
            floating.update([id(result) for result in op.results])
            continue
        if _graph.is_terminator(op):
            continue
        sources = tuple([made.get(id(x)) or made.setdefault(id(x), (-1, len(made))) for x in operands(op)])
        for result in op.results:
            made[id(result)] = (len(ops), result.index)
        kind, detail = kinds.of(op)
        ops.append(op)
        steps.append(Step(kind, detail, sources))
    return ops, steps


def _floats(op: Operation, floating: set[int]) -> bool:
    """Whether an op is a source, or looks at a part of something that floats (by id), at known positions."""
    if type(op) in (WeightOp, ConstantOp):
        return True
    if op.name == "tensor.gather":
        return id(op.operands[0]) in floating and _graph.literal(op.operands[1]) is not None
    return op.name in ("tensor.slice", "tensor.reshape") and id(op.operands[0]) in floating


def _layers(ops: Sequence[Operation], found: Repeat) -> Layers:
    number = {t: i for i, t in enumerate(found.body)}
    iterations = [[ops[found.start + k * found.period + t] for t in found.body] for k in range(found.count)]
    sources = [tuple(s and (number[s[0]], s[1]) for s in found.sources[t]) for t in found.body]
    return Layers(iterations, sources)


def _prepend(layers: Layers, kinds: _Kinds) -> bool:
    """Add the iteration before the first if the ops that make the first one's carried values are one, in whatever order
    they stand (a first layer often holds ops that all layers share)."""
    first, second = layers.iterations[:2]
    results: dict[SSAValue, tuple[int, int]] = {
        result: (i, result.index) for i, op in enumerate(first) for result in op.results
    }
    pending: list[tuple[int, Operation]] = []
    for i, sources in enumerate(layers.sources):
        for o, source in enumerate(sources):
            carried = results.get(second[i].operands[o]) if source is None else None
            if carried is not None:
                value = first[i].operands[o]
                if not isinstance(value, OpResult) or value.index != carried[1]:
                    return False
                pending.append((carried[0], value.op))
    taken = {op for iteration in layers.iterations for op in iteration}
    bound: dict[int, Operation] = {}
    while pending:
        i, op = pending.pop()
        if i in bound:
            if bound[i] is not op:
                return False
            continue
        if op in taken or kinds.of(op) != kinds.of(first[i]):
            return False
        bound[i] = op
        for source, value in zip(layers.sources[i], op.operands, strict=True):
            if source is None:
                continue
            if not isinstance(value, OpResult) or value.index != source[1]:
                return False
            pending.append((source[0], value.op))
    mine = set(bound.values())
    if len(bound) < len(first) or len(mine) < len(first):
        return False
    for i, op in bound.items():
        for source, value in zip(layers.sources[i], op.operands, strict=True):
            if source is None and isinstance(value, OpResult) and value.op in mine:
                return False
    layers.iterations.insert(0, [bound[i] for i in range(len(first))])
    return True


def _order(block: Block, layers: Layers) -> list[Operation | int]:
    """An order of the block in which each iteration is one node, as near to the old one as it goes; empty when there is
    none because something outside both needs an iteration and is needed by it."""
    node_of: dict[int, int] = {}  # by the id of the op, as below: ops are slow to hash
    nodes: list[Operation | int] = []
    group = {id(op): k for k, iteration in enumerate(layers.iterations) for op in iteration}
    number: dict[int, int] = {}
    ops = _graph.ops(block)
    for op in ops:
        k = group.get(id(op))
        if k is None or k not in number:
            if k is not None:
                number[k] = len(nodes)
            node_of[id(op)] = len(nodes)
            nodes.append(op if k is None else k)
        else:
            node_of[id(op)] = number[k]
    needs: list[set[int]] = [set() for _ in nodes]
    needed: list[list[int]] = [[] for _ in nodes]
    for op in ops:
        node = node_of[id(op)]
        for value in operands(op):
            maker = _graph.producer(value)
            if maker is not None and node_of[id(maker)] != node:
                needs[node].add(node_of[id(maker)])
    for node, found in enumerate(needs):
        for other in found:
            needed[other].append(node)
    waiting = [len(found) for found in needs]
    ready = [node for node, count in enumerate(waiting) if count == 0]
    heapify(ready)
    order: list[Operation | int] = []
    while ready:
        node = heappop(ready)
        order.append(nodes[node])
        for other in needed[node]:
            waiting[other] -= 1
            if waiting[other] == 0:
                heappush(ready, other)
    return order if len(order) == len(nodes) else []


def outline(module: ModuleOp, func: FuncOp, layers: Layers) -> FuncOp:
    """Make the iterations calls of a new private function; the function."""
    block = func.body.block
    iterations = layers.iterations
    arguments, slots = _parameters(layers)
    outputs = _results(layers)
    callee, calls = _function(module, layers, slots, arguments, outputs)
    module.body.block.insert_op_after(callee, func)
    for k, call in enumerate(calls):
        for (i, j), result in zip(outputs, call.results, strict=True):
            iterations[k][i].results[j].replace_all_uses_with(result)
    for iteration in iterations:
        for op in reversed(iteration):
            _graph.erase(op)
    for item in layers.order:
        if not isinstance(item, int):
            item.detach()
    block.add_ops(calls[item] if isinstance(item, int) else item for item in layers.order)
    for k, call in enumerate(calls):
        decide("function", call, f"call {k + 1} of {len(calls)} of @{callee.sym_name.data}", ())
    return callee


def _token(value: SSAValue) -> Any:
    """Equal for values that are surely equal."""
    op = _graph.producer(value)
    if type(op) is ConstantOp:
        return op.value
    if type(op) is WeightOp:
        return op.key.data
    return id(value)


def _parameters(layers: Layers) -> tuple[list[list[SSAValue]], dict[tuple[int, int], int | SSAValue]]:
    """Per parameter its value in each iteration; per (op, operand) that is none of the layer's own, the number of its
    parameter, or the source that all iterations share."""
    arguments: list[list[SSAValue]] = []
    slots: dict[tuple[int, int], int | SSAValue] = {}
    known: dict[tuple[Any, ...], int] = {}
    for i, sources in enumerate(layers.sources):
        for o, source in enumerate(sources):
            if source is not None:
                continue
            values = [operands(iteration[i])[o] for iteration in layers.iterations]
            tokens = tuple([_token(value) for value in values])
            shared = len(set(tokens)) == 1 and isinstance(_graph.producer(values[0]), WeightOp | ConstantOp)
            if shared:
                slots[i, o] = values[0]
                continue
            if tokens not in known:
                known[tokens] = len(arguments)
                arguments.append(values)
            slots[i, o] = known[tokens]
    return arguments, slots


def _results(layers: Layers) -> list[tuple[int, int]]:
    """The (op, result) that some iteration shows to the outside."""
    found: dict[tuple[int, int], None] = {}
    for iteration in layers.iterations:
        mine = {id(op) for op in iteration}
        for i, op in enumerate(iteration):
            for result in op.results:
                if any(id(use.operation) not in mine for use in result.uses):
                    found[i, result.index] = None
    return sorted(found)


def _function(
    module: ModuleOp,
    layers: Layers,
    slots: dict[tuple[int, int], int | SSAValue],
    arguments: list[list[SSAValue]],
    outputs: list[tuple[int, int]],
) -> tuple[FuncOp, list[CallOp]]:
    template = layers.iterations[0]
    paths = [_path(iteration) for iteration in layers.iterations]
    sites = [_site(iteration, path) for iteration, path in zip(layers.iterations, paths, strict=True)]
    body = Block(arg_types=[values[0].type for values in arguments])
    for argument, values in zip(body.args, arguments, strict=True):
        argument.name_hint = hint = _hint(values)
        origins = map(locations.of_value, values)
        argument.location = locations.standing_for(hint, origins) if hint else locations.fuse(origins)
    shared: dict[Any, SSAValue] = {}
    copies: list[Operation] = []
    for i, op in enumerate(template):
        inputs: list[SSAValue] = []
        for o, source in enumerate(layers.sources[i]):
            if source is not None:
                inputs.append(copies[source[0]].results[source[1]])
                continue
            slot = slots[i, o]
            if isinstance(slot, int):
                inputs.append(body.args[slot])
            else:
                inputs.append(_copy([operands(x[i])[o] for x in layers.iterations], shared, body))
        copy = op.clone_without_regions(clone_operands=False)
        copy.operands = inputs
        copy.location = _inner(i, layers, paths)
        copies.append(copy)
        body.add_op(copy)
    last = ReturnOp(*(copies[i].results[j] for i, j in outputs))
    last.location = copies[-1].location
    body.add_op(last)
    name = _free_name(module, "layer")
    types = [x.type for x in body.args], [x.type for x in last.operands]
    callee = FuncOp(name, types, Region(body), "private")
    callee.location = locations.fuse(sites)
    symbol = SymbolRefAttr(name)
    calls = [
        make(CallOp, [values[k] for values in arguments], types[1], {"callee": symbol}, site)
        for k, site in enumerate(sites)
    ]
    return callee, calls


def _copy(values: Sequence[SSAValue], shared: dict[Any, SSAValue], body: Block) -> SSAValue:
    """The source that makes an equal value in each iteration, once more inside the function."""
    token = _token(values[0])
    if token not in shared:
        op = _graph.producer(values[0])
        assert op is not None
        copy = op.clone_without_regions()
        copy.location = locations.fuse(map(locations.of_value, values))
        body.add_op(copy)
        shared[token] = copy.results[0]
    return shared[token]


def _free_name(module: ModuleOp, stem: str) -> str:
    taken = {x.data for op in module.body.block.ops if isinstance(x := op.properties.get("sym_name"), StringAttr)}
    name, number = stem, 1
    while name in taken:
        name, number = f"{stem}_{number}", number + 1
    return name


def _hint(values: Sequence[SSAValue]) -> str | None:
    """A name for a parameter: what the keys of its weights share at their end."""
    keys = [op.key.data for value in values[:2] if isinstance(op := _graph.producer(value), WeightOp)]
    if len(keys) < 2:
        return values[0].name_hint
    a, b = keys
    size = 0
    while size < min(len(a), len(b)) and a[-1 - size] == b[-1 - size]:
        size += 1
    text = re.sub(r"^[^a-zA-Z]+|\W+$", "", a[len(a) - size :])
    return re.sub(r"\W+", "_", text) or None


def _path(iteration: Sequence[Operation]) -> str:
    """The path that the names of all ops of a layer start with; empty when there is none."""
    return _prefix(
        [leaf.desc.data for op in iteration for leaf in locations.leaves(op.location) if isinstance(leaf, NameLoc)]
    )


def _prefix(names: Sequence[str]) -> str:
    """The common path of names such as `/h.3/attn/MatMul`, without the last part; empty when there is none."""
    if not names:
        return ""
    low, high = min(names).split("/"), max(names).split("/")
    size = 0
    while size < min(len(low), len(high)) - 1 and low[size] == high[size]:
        size += 1
    return "/".join(low[:size])


def _site(iteration: Sequence[Operation], path: str) -> LocationAttr:
    """The location of a layer: all those of its ops, under the name of its path if it has one."""
    origins = [op.location for op in iteration]
    return locations.standing_for(path, origins) if path else locations.fuse(origins)


def _inner(i: int, layers: Layers, paths: Sequence[str]) -> LocationAttr:
    """The location of op i inside the function: those of all iterations, under what their names share after the layer's
    path, else under the name in the first iteration."""
    rows = [locations.leaves(iteration[i].location) for iteration in layers.iterations]
    if len({len(row) for row in rows}) > 1:
        return locations.fuse(leaf for row in rows for leaf in row)
    relative = {tuple([_relative(leaf, path) for leaf in row]) for row, path in zip(rows, paths, strict=True)}
    names = relative.pop()
    if relative or not all(names):
        names = [locations.text(leaf) for leaf in rows[0]]
    columns = zip(*rows, strict=True)
    return locations.fuse(locations.standing_for(name, column) for name, column in zip(names, columns, strict=True))


def _relative(leaf: LocationAttr, path: str) -> str:
    """What follows the path of the layer in a name; empty when it does not start with it."""
    if not path or not isinstance(leaf, NameLoc) or not leaf.desc.data.startswith(f"{path}/"):
        return ""
    return leaf.desc.data.removeprefix(f"{path}/")
