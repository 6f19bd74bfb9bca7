"""A program with few layers → a program with all of them, which calls a function per kind of layer.

Importing costs what the layers cost that are imported. A program that has two layers of each kind shows what a layer
is: ops that two layers of a kind do alike, on weights, caches and a carried value of their own, are the body of a
function; the program of the whole model calls it as often as there are such layers, with the weights and caches of
each. What a layer does with nothing but weights, or with what all layers share (a mask, positions), is done outside:
weights as they are stored become weights as they are used, once, and what is shared is computed once.

Two layers of a kind that are not alike are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

from xdsl.dialects.builtin import ModuleOp, NameLoc, SymbolRefAttr
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue

from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.locations import Location, named
from headrace.dialects.support.weights import WeightStore
from headrace.dialects.tensor.base import make, operands, tt
from headrace.dialects.tensor.program import set_signature
from headrace.dialects.tensor.storage import ConstantOp, WeightOp, weight
from headrace.frontends.base import ImportResult, Port


@dataclass(frozen=True)
class Layers:
    """Which layers a program has, and which it is to have.

    `path` is where they are in the model: layer i is `path.i`. `kinds` gives each layer of the whole model its kind,
    `sample` the layers that the program has, in order.
    """

    path: str
    kinds: tuple[int, ...]
    sample: tuple[int, ...]

    def of_kind(self, kind: int) -> list[int]:
        """Positions in the sample of the layers of a kind."""
        return [j for j, layer in enumerate(self.sample) if self.kinds[layer] == kind]


Role = tuple[str, int | None]
"""A port: its name, and the position in the sample of the layer that it belongs to."""


def repeat(
    found: ImportResult,
    layers: Layers,
    inputs: Sequence[Role],
    outputs: Sequence[Role],
    states: dict[str, str],
    store: WeightStore,
    name: str,
    prefix: str = "",
    calls: bool = True,
) -> ImportResult:
    """The program of the whole model. `inputs` and `outputs` say what ports of the given program are; those of layer i
    are called `NAME.i.PART` for a role NAME.PART. `states` pairs roles of inputs with roles of outputs. Keys and
    locations lose `prefix`; `store` has the weights of the whole model. Without `calls`, layers are written out."""
    return _Repeater(found, layers, inputs, outputs, states, store, name, prefix, calls).run()


def port(role: Role, layer: int | None) -> str:
    """The name of a port of a layer."""
    first, _, rest = role[0].partition(".")
    return role[0] if layer is None else f"{first}.{layer}.{rest}"


@dataclass
class _Body:
    """What the layer at position j of the sample does: its ops that depend on tokens or its caches, in order. Tokens
    say equal things of layers that are alike: `ops` of ops, `uses` of results that are used outside."""

    ops: list[Operation]
    tokens: list[Any] = field(default_factory=list[Any])
    uses: dict[Any, tuple[int, int]] = field(default_factory=dict[Any, "tuple[int, int]"])


@dataclass
class _Function:
    """A function made of a layer: the tokens of its arguments, by which a call finds its own, and its results by
    use."""

    symbol: SymbolRefAttr
    arguments: list[SSAValue]
    results: list[Any]
    types: list[Any]


class _Repeater:
    def __init__(
        self,
        found: ImportResult,
        layers: Layers,
        inputs: Sequence[Role],
        outputs: Sequence[Role],
        states: dict[str, str],
        store: WeightStore,
        name: str,
        prefix: str,
        calls: bool,
    ) -> None:
        self.found, self.layers, self.states = found, layers, states
        self.inputs, self.outputs = inputs, outputs
        self.given, self.store = found.store, store
        self.name, self.prefix, self.calls = name, prefix, calls
        self.main = next(op for op in found.module.body.block.ops if isinstance(op, FuncOp))
        self.old = self.main.body.block
        self.block = Block()
        self.functions: dict[int, _Function] = {}
        self.shared: dict[Any, SSAValue] = {}
        self.own: dict[Any, SSAValue] = {}
        self.path = re.compile(rf"{re.escape(prefix + layers.path)}\.(\d+)(?=[./])")
        self.layer_of = {id(op): self._layer(op) for op in self.old.ops}
        self.arguments = {id(x): role for x, role in zip(self.old.args, inputs, strict=True)}
        self.varies = self._varying()
        self.first: SSAValue | None = None
        """What the first layer takes."""
        self.carried: SSAValue | None = None
        """What the last layer gives, once all are made."""
        self.made: list[FuncOp] = []
        self.argument: dict[tuple[str, int | None], SSAValue] = {}
        self.bodies = [self._body(j) for j in range(len(layers.sample))]

    def _layer(self, op: Operation) -> int | None:
        """The position in the sample of the layer that an op is of."""
        for leaf in locations.leaves(op.location):
            match = self.path.match(leaf.desc.data) if isinstance(leaf, NameLoc) else None
            if match:
                return int(match[1])
        return None

    def _varying(self) -> set[int]:
        """Values that depend on tokens or on caches, by id."""
        found = {
            id(x) for x in self.old.args if self.arguments[id(x)][1] is not None or self.arguments[id(x)][0] == "tokens"
        }
        for op in self.old.ops:
            if any(id(x) in found for x in operands(op)):
                found.update(map(id, op.results))
        return found

    # What layers are

    @cached_property
    def order(self) -> dict[int, tuple[int, int]]:
        """Of each op of a body its layer and its position there."""
        found: dict[int, tuple[int, int]] = {}
        counts = [0] * len(self.layers.sample)
        for op in self.old.ops:
            j = self.layer_of[id(op)]
            if j is not None and op.results and id(op.results[0]) in self.varies:
                found[id(op)] = j, counts[j]
                counts[j] += 1
        return found

    def _body(self, j: int) -> _Body:
        body = _Body([op for op in self.old.ops if self.order.get(id(op), (-1, 0))[0] == j])
        for op in body.ops:
            attributes = tuple(sorted((key, str(value)) for key, value in op.properties.items()))
            types = tuple(str(x.type) for x in op.results)
            body.tokens.append((op.name, attributes, types, tuple(self._token(j, x) for x in operands(op))))
        last = j == len(self.layers.sample) - 1
        for i, op in enumerate(body.ops):
            for result in op.results:
                for use in result.uses:
                    user = use.operation
                    if self.order.get(id(user), (None,))[0] == j:
                        continue
                    if not last and id(user) not in self.order and not isinstance(user, ReturnOp):
                        self._refuse(j, f"{locations.of(user) or user.name} is no layer and uses what it computes")
                    role = self.outputs[use.index] if isinstance(user, ReturnOp) else None
                    key = role[0] if role is not None and role[1] == j else "carried"
                    if role is not None and role[1] not in (j, None):
                        self._refuse(j, f"result '{role[0]}' of another layer is made in it")
                    if body.uses.setdefault(key, (i, result.index)) != (i, result.index):
                        self._refuse(j, f"more than one value goes on from it, that of {locations.of(op)} among them")
        if missing := {role for role, k in self.outputs if k == j} - body.uses.keys():
            self._refuse(j, f"it does not compute {', '.join(sorted(missing))}")
        return body

    def _token(self, j: int, value: SSAValue) -> Any:
        """What an operand of layer j is, equal for the same thing in another layer of the kind."""
        if isinstance(value, BlockArgument):
            role = self.arguments[id(value)]
            if role[1] is None:
                return "argument", role[0]
            if role[1] != j:
                self._refuse(j, f"it reads the cache of layer {self.layers.sample[role[1]]}")
            return "state", role[0]
        assert isinstance(value, OpResult)
        op = value.op
        if isinstance(op, ConstantOp):
            return "constant", str(op.value), str(value.type)
        if isinstance(op, WeightOp):
            return self._weight_token(j, op)
        place = self.order.get(id(op))
        if place is not None and place[0] == j:
            return "op", place[1], value.index
        if place is not None:
            if place[0] != j - 1:
                self._refuse(j, f"it uses what layer {self.layers.sample[place[0]]} computed, which is not before it")
            return ("carried",)
        if self.layer_of[id(op)] == j:
            attributes = tuple(sorted((key, str(x)) for key, x in op.properties.items()))
            return op.name, attributes, value.index, tuple(self._token(j, x) for x in operands(op))
        if j == 0 and id(value) in self.varies:
            if self.first is not None and self.first is not value:
                self._refuse(j, "it takes more than one value that depends on tokens")
            self.first = value
            return ("carried",)
        return "value", id(op), value.index

    def _weight_token(self, j: int, op: WeightOp) -> Any:
        key, type = op.key.data, str(op.results[0].type)
        own = self.path.match(key)
        if own is None:
            return "weight", key, type
        if int(own[1]) != j:
            self._refuse(j, f"it uses weight '{key}' of another layer")
        return "own weight", key[own.end() :], type

    def _refuse(self, j: int, why: str) -> NoReturn:
        raise CompileError(
            "not-repeatable",
            f"{self.layers.path}.{self.layers.sample[j]} cannot stand for other layers",
            why=why,
            fix="import every layer: distinct=False",
            location=f"{self.layers.path}.{self.layers.sample[j]}",
        )

    def _check(self) -> None:
        """Layers of a kind are alike."""
        for kind in dict.fromkeys(self.layers.kinds):
            first, *others = self.layers.of_kind(kind)
            a = self.bodies[first]
            for other in others:
                b = self.bodies[other]
                at = next((i for i, (x, y) in enumerate(zip(a.tokens, b.tokens, strict=False)) if x != y), None)
                if at is not None or len(a.tokens) != len(b.tokens):
                    op = a.ops[at] if at is not None else a.ops[-1]
                    where = locations.of(op) or op.name
                    layer = self.layers.sample[first]
                    self._refuse(other, f"it is of the kind of layer {layer} but differs from it at {where}")
                if a.uses != b.uses:
                    self._refuse(other, f"not the same of its results are used as of layer {self.layers.sample[first]}")

    # The program of the whole model

    def run(self) -> ImportResult:
        """The program."""
        self._check()
        layers = self.layers
        count = len(layers.kinds)
        ports: list[Port] = []
        states = self.argument
        roles = list(dict.fromkeys(role for role, j in self.inputs if j is not None))
        types = {self._of(role, j): x.type for x, (role, j) in zip(self.old.args, self.inputs, strict=True)}

        def argument(name: str, type: Any) -> SSAValue:
            value = self.block.insert_arg(type, len(self.block.args))
            value.location = named(name)
            value.name_hint = name if name.isidentifier() else None
            ports.append(Port(name, tt(value)))
            return value

        for role, j in self.inputs:
            if j is None:
                states[role, None] = argument(role, types[role, None])
        for i in range(count):
            for role in roles:
                if (role, layers.kinds[i]) in types:
                    states[role, i] = argument(port((role, i), i), types[role, layers.kinds[i]])
        results: dict[tuple[str, int | None], SSAValue] = {}
        carried: SSAValue | None = None
        for i, kind in enumerate(layers.kinds):
            j = layers.of_kind(kind)[0]
            self.own = {}
            made = self._layer_of_kind(i, kind, j, carried)
            carried = made.pop("carried", None)
            results.update({(role, i): value for role, value in made.items()})
        self.carried = carried
        given: dict[str, SSAValue] = {}
        end = self.main.body.block.last_op
        assert isinstance(end, ReturnOp)
        out_roles = list(dict.fromkeys(role for role, j in self.outputs if j is not None))
        for value, (role, j) in zip(operands(end), self.outputs, strict=True):
            if j is None:
                given[role] = self._outer(value)
        for i in range(count):
            given |= {port((role, i), i): results[role, i] for role in out_roles if (role, i) in results}
        return self._finish(ports, given)

    def _of(self, role: str, j: int | None) -> tuple[str, int | None]:
        return role, None if j is None else self.layers.kinds[self.layers.sample[j]]

    def _finish(self, ports: Sequence[Port], given: dict[str, SSAValue]) -> ImportResult:
        end = ReturnOp(*given.values())
        end.location = named("outputs")
        self.block.add_op(end)
        func = FuncOp("main", ([x.type for x in self.block.args], [x.type for x in given.values()]), Region(self.block))
        func.location = named(self.name)
        pairs: list[tuple[str, str]] = []
        for past, present in self.states.items():
            for i in range(len(self.layers.kinds)):
                name, follows = port((past, i), i), port((present, i), i)
                if follows in given:
                    pairs.append((name, follows))
        pairs.sort(key=lambda pair: [one.name for one in ports].index(pair[0]))
        set_signature(func, [one.name for one in ports], list(given), pairs)
        module = ModuleOp([func, *self.made])
        module.location = named(self.name)
        outputs = tuple(Port(name, tt(value)) for name, value in given.items())
        return ImportResult(
            module, self.store, tuple(ports), outputs, tuple(pairs), self.found.coverage, self.name, self.found.initial
        )

    # Layers

    def _layer_of_kind(self, i: int, kind: int, j: int, carried: SSAValue | None) -> dict[str, SSAValue]:
        """Layer i of the whole model, made as layer j of the program; its results by use."""
        body = self.bodies[j]
        if not self.calls or self.layers.kinds.count(kind) == 1:
            inside: dict[int, SSAValue] = {}
            for op in body.ops:
                values = [inside.get(id(x)) or self._value(x, i, j, carried) for x in operands(op)]
                new = self._clone(op, values, i)
                inside.update({id(x): y for x, y in zip(op.results, new.results, strict=True)})
            return {use: inside[id(body.ops[at].results[k])] for use, (at, k) in body.uses.items()}
        function = self.functions.get(kind)
        if function is None:
            function = self.functions[kind] = self._function(kind, j)
        values = [self._value(x, i, j, carried) for x in function.arguments]
        site = named(f"{self.layers.path}.{i}")
        call = make(CallOp, values, function.types, {"callee": function.symbol}, site)
        self.block.add_op(call)
        return dict(zip(function.results, call.results, strict=True))

    def _function(self, kind: int, j: int) -> _Function:
        body = self.bodies[j]
        block = Block()
        inside: dict[int, SSAValue] = {}
        by_token: dict[Any, SSAValue] = {}
        arguments: list[SSAValue] = []

        def outside(value: SSAValue) -> SSAValue:
            token = self._token(j, value)
            if token not in by_token:
                if token[0] == "constant":
                    assert isinstance(value, OpResult)
                    copy = value.op.clone_without_regions()
                    copy.location = self._relative(value.op.location, kind)
                    block.add_op(copy)
                    by_token[token] = copy.results[0]
                else:
                    argument = block.insert_arg(value.type, len(block.args))
                    argument.location = self._relative(locations.of_value(value), kind)
                    argument.name_hint = _hint(token)
                    arguments.append(value)
                    by_token[token] = argument
            return by_token[token]

        first = next((x for op in body.ops for x in operands(op) if self._token(j, x) == ("carried",)), None)
        if first is not None:
            outside(first)
        for op in body.ops:
            values = [inside.get(id(x)) or outside(x) for x in operands(op)]
            copy = make(type(op), values, [x.type for x in op.results], dict(op.properties))
            copy.location = self._relative(op.location, kind)
            block.add_op(copy)
            inside.update({id(x): y for x, y in zip(op.results, copy.results, strict=True)})
        results = [inside[id(body.ops[at].results[k])] for at, k in body.uses.values()]
        end = ReturnOp(*results)
        end.location = named("outputs")
        block.add_op(end)
        name = "layer" if not self.made else f"layer_{len(self.made)}"
        types = [x.type for x in block.args], [x.type for x in results]
        func = FuncOp(name, types, Region(block), "private")
        mine = [i for i, one in enumerate(self.layers.kinds) if one == kind]
        func.location = locations.fuse(named(f"{self.layers.path}.{i}") for i in mine)
        self.made.append(func)
        return _Function(SymbolRefAttr(name), arguments, list(body.uses), types[1])

    def _value(self, value: SSAValue, i: int, j: int, carried: SSAValue | None) -> SSAValue:
        """What an operand of layer j is for layer i."""
        token = self._token(j, value)
        if token == ("carried",):
            return carried if carried is not None else self._outer(value)
        if token[0] == "state":
            return self.argument[token[1], i]
        if isinstance(value, OpResult) and self._owns(value, j):
            if id(value) not in self.own:
                self.own[id(value)] = self._remade(
                    value, [self._value(x, i, j, carried) for x in operands(value.op)], i
                )
            return self.own[id(value)]
        return self._outer(value)

    def _owns(self, value: OpResult, j: int) -> bool:
        """Whether a value outside a body depends on weights of layer j."""
        if isinstance(value.op, WeightOp):
            return self.path.match(value.op.key.data) is not None
        if self.layer_of[id(value.op)] != j:
            return False
        return any(isinstance(x, OpResult) and self._owns(x, j) for x in operands(value.op))

    def _outer(self, value: SSAValue) -> SSAValue:
        """A value that no layer has to itself."""
        if id(value) in self.shared:
            return self.shared[id(value)]
        if isinstance(value, BlockArgument):
            return self.argument[self.arguments[id(value)][0], None]
        assert isinstance(value, OpResult)
        if id(value.op) in self.order:  # what the last layer gives
            if self.carried is None:
                self._refuse(self.order[id(value.op)][0], "what it computes goes through ops of no layer to a layer")
            return self.carried
        self.shared[id(value)] = made = self._remade(value, [self._outer(x) for x in operands(value.op)], None)
        return made

    def _remade(self, value: OpResult, values: Sequence[SSAValue], i: int | None) -> SSAValue:
        op = value.op
        if not isinstance(op, WeightOp):
            return self._clone(op, values, i).results[value.index]
        key = self._renamed(op.key.data, i)
        if key not in self.store:
            held = self.given[op.key.data]
            self.store.add(key, held.shape, held.dtype, held.load)
        new = weight(key, tt(op.results[0]), named(key))
        self.block.add_op(new)
        return new.results[0]

    def _clone(self, op: Operation, values: Sequence[SSAValue], i: int | None) -> Operation:
        new = make(type(op), values, [x.type for x in op.results], dict(op.properties))
        new.location = locations.fuse(self._moved(leaf, i) for leaf in locations.leaves(op.location))
        self.block.add_op(new)
        return new

    # Names

    def _renamed(self, text: str, i: int | None) -> str:
        if i is not None:
            text = self.path.sub(f"{self.prefix}{self.layers.path}.{i}", text, count=1)
        return text.removeprefix(self.prefix)

    def _moved(self, leaf: Location, i: int | None) -> Location:
        return named(self._renamed(leaf.desc.data, i)) if isinstance(leaf, NameLoc) else leaf

    def _relative(self, location: Location, kind: int) -> Location:
        """The location of an op of a function: its place in the layer, standing for that place in all of them."""
        found: list[Location] = []
        for leaf in locations.leaves(location):
            match = self.path.match(leaf.desc.data) if isinstance(leaf, NameLoc) else None
            if match is None or not isinstance(leaf, NameLoc):
                found.append(self._moved(leaf, None))
                continue
            rest = leaf.desc.data[match.end() + 1 :]
            mine = [i for i, one in enumerate(self.layers.kinds) if one == kind]
            every = [named(f"{self.layers.path}.{i}{leaf.desc.data[match.end() :]}") for i in mine]
            found.append(locations.standing_for(rest, every))
        return locations.fuse(found)


def _hint(token: Any) -> str | None:
    """A name for an argument."""
    if token[0] in ("own weight", "state"):
        return re.sub(r"\W+", "_", token[1]).strip("_") or None
    if token == ("carried",):
        return "hidden"
    inner = token[3] if len(token) == 4 and isinstance(token[3], tuple) else ()
    return next((hint for one in inner if (hint := _hint(one))), None)
