"""Layers divided among sockets: each keeps a run of them, and what one makes goes on to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.journal import count
from headrace.dialects.tensor.base import tt
from headrace.dialects.tensor.decompositions import Emit
from headrace.dialects.tensor.program import STAGES as AXIS
from headrace.dialects.tensor.program import mesh_of, set_mesh, set_shardings, set_signature, set_stacks, signature
from headrace.dialects.tensor.shapes import TT
from headrace.dialects.tensor.storage import ConstantOp, WeightOp, recipe, weight
from headrace.passes.analysis.derived import Keys, key
from headrace.passes.tensor import _graph


@dataclass
class _Chain:
    """Calls of one function one after the other: result `gives` of each is argument `takes` of the next."""

    calls: list[CallOp]
    gives: int
    takes: int


def divide(module: ModuleOp, stages: int) -> None:
    """Divide the longest chain of equal layers among `stages` sockets, along a new major axis of the mesh.

    Sockets run in rounds: in each a socket runs its layers, and hands the result to the next. In round r what socket r
    has been given is right; it keeps it, so that what it makes in the last round is what its layers make. What the last
    socket makes then is sent to all. States and other ports of layers are those of the socket's own layers.
    """
    main = next(func for func in _graph.functions(module) if func.sym_name.data == "main")
    chain = _longest(main)
    if chain is None:
        raise CompileError(
            "bad-mesh",
            f"partition: there are no layers to divide among {AXIS}={stages} sockets",
            why="no function is called twice in a row, with what it gave before",
            fix=f"give no {AXIS}",
            location=locations.of(main),
        )
    layers = len(chain.calls)
    if layers % stages:
        fits = [n for n in range(2, layers + 1) if layers % n == 0]
        raise CompileError(
            "bad-mesh",
            f"partition: {layers} layers are not shared evenly by {AXIS}={stages} sockets",
            fix=f"sizes that fit: {', '.join(map(str, fits[:12]))}",
            location=locations.of(main),
        )
    _Stages(module, main, chain, stages).run()


def _longest(main: FuncOp) -> _Chain | None:
    """The longest chain of calls in a function."""
    calls = [op for op in main.body.block.ops if isinstance(op, CallOp)]
    best: _Chain | None = None
    at = 0
    while at < len(calls):
        chain = _chain(calls, at)
        if chain is not None and (best is None or len(chain.calls) > len(best.calls)):
            best = chain
        at += len(chain.calls) if chain is not None else 1
    return best


def _chain(calls: Sequence[CallOp], at: int) -> _Chain | None:
    """The longest chain that begins at a call."""
    if at + 1 >= len(calls) or calls[at].callee != calls[at + 1].callee:
        return None
    links = [
        (value.index, number)
        for number, value in enumerate(calls[at + 1].operands)
        if isinstance(value, OpResult) and value.op is calls[at]
    ]
    if len(links) != 1:
        return None
    gives, takes = links[0]
    found = [calls[at]]
    for call in calls[at + 1 :]:
        if call.callee != found[-1].callee or call.operands[takes] is not found[-1].results[gives]:
            break
        found.append(call)
    return _Chain(found, gives, takes)


class _Stages:
    """Writes the program of one stage."""

    def __init__(self, module: ModuleOp, main: FuncOp, chain: _Chain, stages: int) -> None:
        self.module, self.main, self.chain, self.stages = module, main, chain, stages
        self.layers = len(chain.calls) // stages
        self.block = main.body.block
        self.keys = Keys(module)
        mesh = mesh_of(module)
        self.group: dict[str, Any] = {"axes": (AXIS,), "sizes": (stages,), "strides": (prod(mesh.values()),)}
        self.told = signature(main)
        last = self.block.last_op
        assert isinstance(last, ReturnOp)
        self.last = last
        self.stacks: dict[str, tuple[str, ...]] = {}
        """By the name of a port of the first stage those of all stages."""
        self.gone: set[str] = set()

    def run(self) -> None:
        first = self.chain.calls[0]
        e = Emit(self._put, locations.fuse(call.location for call in self.chain.calls))
        given = [[self._operand(j, number, e) for number in range(len(first.operands))] for j in range(self.layers)]
        stage = e.socket_index(**self.group)
        kept = first.operands[self.chain.takes]
        made = self._round(kept, given)
        for turn in range(1, self.stages):
            handed = e.permute(made[-1].results[self.chain.gives], **self.group)
            kept = e.select(e.greater_equal(stage, turn), handed, kept)
            made = self._round(kept, given)
        out = made[-1].results[self.chain.gives]
        mine = e.select(e.equal(stage, self.stages - 1), out, e.filled(TT((), tt(out).dtype), 0))
        whole = e.all_reduce(mine, kind="add", **self.group)
        self.chain.calls[-1].results[self.chain.gives].replace_uses_with_if(
            whole, lambda use: use.operation not in self.chain.calls
        )
        self._ports(made)
        makers = [op for call in self.chain.calls for op in map(_graph.producer, call.operands)]
        for call in reversed(self.chain.calls):
            call.detach()
            call.erase()
        for op in dict.fromkeys(makers):
            if isinstance(op, WeightOp | ConstantOp) and not any(result.uses for result in op.results):
                op.detach()
                op.erase()
        self._sign()
        count("layers of a stage", self.layers)

    def _put(self, op: Operation) -> Operation:
        """Put an op in front of the layers."""
        self.block.insert_op_before(op, self.chain.calls[0])
        return op

    def _round(self, given: SSAValue, operands: Sequence[Sequence[SSAValue | None]]) -> list[CallOp]:
        """The layers of a stage on what it was given."""
        found: list[CallOp] = []
        for j, own in enumerate(operands):
            old = self.chain.calls[j]
            values = [given if value is None else value for value in own]
            call = CallOp(old.callee, values, [x.type for x in old.results])
            call.location = locations.fuse(one.location for one in self.chain.calls[j :: self.layers])
            self._put(call)
            given = call.results[self.chain.gives]
            found.append(call)
        return found

    def _operand(self, j: int, number: int, e: Emit) -> SSAValue | None:
        """What layer j of a stage takes as an argument; None for what the layer before gives."""
        if number == self.chain.takes:
            return None
        values = [call.operands[number] for call in self.chain.calls[j :: self.layers]]
        if all(value is values[0] for value in values):
            return values[0]
        makers = [_graph.producer(value) for value in values]
        if all(isinstance(op, WeightOp | ConstantOp) for op in makers):
            return self._choice([op for op in makers if op is not None])
        arguments = [value for value in values if isinstance(value, BlockArgument)]
        if len(arguments) == len(values):
            names = tuple(self.told.inputs[value.index] for value in arguments)
            others = [call for call in self.chain.calls if call not in self.chain.calls[j :: self.layers]]
            if not any(use.operation in others for value in values for use in value.uses):
                self._stack(names)
                return values[0]
        raise CompileError(
            "not-supported",
            f"partition: argument {number} of layer {j} cannot be divided among {AXIS}={self.stages} sockets",
            why="it is neither the same for all layers, nor a weight, nor a port of the layer's own",
            fix=f"give no {AXIS}",
            location=locations.of(self.chain.calls[j]),
        )

    def _choice(self, makers: Sequence[Operation]) -> SSAValue:
        """A weight that each socket has its own of."""
        if all(op.is_structurally_equivalent(makers[0]) for op in makers):
            return self._put(makers[0].clone()).results[0]
        where = locations.fuse(op.location for op in makers)
        copies = [op.clone() for op in makers]
        body = list(copies)
        chosen = Emit(lambda op: body.append(op) or op, where).socket_choose(
            *[op.results[0] for op in copies], **self.group
        )
        name = self.keys.add(recipe(key(chosen), body, chosen, where), self.main)
        made = self._put(weight(name, tt(chosen), where))
        return made.results[0]

    def _stack(self, names: tuple[str, ...]) -> None:
        """Note that ports are one port, each stage's own."""
        self.stacks[names[0]] = names
        self.gone |= set(names[1:])

    def _ports(self, made: Sequence[CallOp]) -> None:
        """Return what the layers of a stage give in place of what all layers give."""
        place = {call: i for i, call in enumerate(self.chain.calls)}
        results: dict[str, SSAValue] = {}
        for name, value in zip(self.told.results, self.last.operands, strict=True):
            if not isinstance(value, OpResult) or not isinstance(value.op, CallOp) or value.op not in place:
                results[name] = value
            elif (layer := place[value.op]) < self.layers:
                results[name] = made[layer].results[value.index]
                self._stack(tuple(self._same(value.index, layer + r * self.layers) for r in range(self.stages)))
        inner = [
            use.operation
            for call in self.chain.calls
            for result in call.results
            for use in result.uses
            if use.operation not in place and use.operation is not self.last
        ]
        if inner:
            raise CompileError(
                "not-supported",
                f"partition: {inner[0].name} takes what a layer in the middle gives",
                why=f"with {AXIS} only the last stage hands on what it makes",
                fix=f"give no {AXIS}",
                location=locations.of(inner[0]),
            )
        self.results = {name: value for name, value in results.items() if name not in self.gone}
        self.last.operands = [*self.results.values()]

    def _same(self, index: int, layer: int) -> str:
        """The name of the port that a result of a layer is."""
        value = self.chain.calls[layer].results[index]
        found = [n for n, v in zip(self.told.results, self.last.operands, strict=True) if v is value]
        if len(found) != 1:
            raise CompileError(
                "not-supported",
                f"partition: result {index} of layer {layer} is {len(found)} outputs",
                why=f"with {AXIS} what layers give is one output of each layer",
                fix=f"give no {AXIS}",
                location=locations.of(self.chain.calls[layer]),
            )
        return found[0]

    def _sign(self) -> None:
        """Write names, types, states and shardings of what is left."""
        args = [(name, arg) for name, arg in zip(self.told.inputs, self.block.args, strict=True)]
        for name, arg in reversed(args):
            if name in self.gone:
                self.block.erase_arg(arg)
        inputs = [name for name, _ in args if name not in self.gone]
        types = [arg.type for arg in self.block.args], [value.type for value in self.last.operands]
        self.main.function_type = FunctionType.from_lists(*types)
        states = [(past, present) for past, present in self.told.states if past in inputs]
        set_signature(self.main, inputs, [*self.results], states)
        ports = {*inputs, *self.results}
        set_shardings(self.main, {name: cut for name, cut in self.told.shardings.items() if name in ports})
        set_stacks(self.main, self.stacks)
        set_mesh(self.module, {AXIS: self.stages, **mesh_of(self.module)})
