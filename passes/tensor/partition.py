"""The program of one socket of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from headrace.dialects.machine.attributes import device_of
from headrace.dialects.support import locations
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.journal import Candidate, count, current, decide, may
from headrace.dialects.tensor.base import create, ir_type, make, operands, tt
from headrace.dialects.tensor.decompositions import Emit
from headrace.dialects.tensor.program import MESH, STAGES, Sharding, set_mesh, set_shardings, signature
from headrace.dialects.tensor.shapes import TT, block_attrs
from headrace.dialects.tensor.shapes.collective import COMMUNICATING, PER_SOCKET
from headrace.dialects.tensor.storage import ConstantOp, LiteralAttr, WeightOp, constant, filled, recipe, weight
from headrace.passes.analysis.derived import Keys, key
from headrace.passes.analysis.partitioning import PRODUCTS, Choice, Plan, Planner, Spec, backward
from headrace.passes.analysis.sharding import Costs, Cut, Form, Mesh, Step, local, mesh_from_text, steps, whole
from headrace.passes.infra.base import Pass, option
from headrace.passes.tensor import _graph, _stages


@dataclass(frozen=True)
class PartitionPass(Pass):
    """Make the program of one socket over a mesh of a program of one socket.

    Assumes a program in main; works best after outline-repeated-layers, so that each layer is partitioned once. What
    axes of the mesh cut goes by their names: `tp` dims of the weights of products (and the heads that follow from
    them), `dp` the first dim of inputs (that of the first input; whatever is as long is cut, too), `ep` the dim of
    weights that counts products side by side, experts, `pp` (the major axis) the row of equal layers. States are cut as
    what becomes of them wants. Which dims are cut is searched for with the device's costs of work, weights and
    collectives. What cannot be cut is computed whole on every socket. A dim that takes not all of an axis is cut along
    a factor of it. Outputs are left as they are cut; sums come in another order.

    Before: `%y = tensor.matmul %h, %w`, where %h is cut along dim 1, and %y is needed whole. After:

        %w = tensor.weight "w|socket_slice(axes=tp,axis=0,sizes=8,strides=1)"
        %p = tensor.matmul %h, %w
        %y = tensor.all_reduce %p {axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>}
    """

    name: ClassVar[str] = "partition"
    requires = ensures = _graph.TENSOR

    mesh: str = option("", "axes of the mesh and their sizes, major first: dp=2,tp=8")

    def run(self, ctx: Context, module: ModuleOp) -> bool:
        given = mesh_from_text(self.mesh)
        if given.count == 1:
            return False
        _refuse_partitioned(module)
        mesh = Mesh(tuple((name, size) for name, size in given.axes if name != STAGES))
        stages = given.count // mesh.count
        if mesh.count > 1 and not self.cut(module, mesh):
            return False
        if stages > 1 and may("divide-layers", _graph.functions(module)[0]):
            _stages.divide(module, stages)
        return True

    def cut(self, module: ModuleOp, mesh: Mesh) -> bool:
        """Cut values along the axes of a mesh."""
        functions = {func.sym_name.data: func for func in _graph.functions(module)}
        main = functions.get("main")
        if main is None:
            raise CompileError("no-entry", "partition: the module has no function 'main'", fix="name the program main")
        planner = Planner(mesh, Costs(mesh, device_of(module)), functions)
        try:
            plan = _plan(planner, main)
            refuse_unused(mesh, main, plan, functions.values())
            if not may("partition", main):
                return False
            _Maker(module, planner).make(main, plan)
        finally:
            for op in reversed(planner.scratch):
                op.drop_all_references()
        for func in functions.values():
            func.detach()
            func.erase(safe_erase=False)
        return True


def _refuse_partitioned(module: ModuleOp) -> None:
    """Refuse a program that is for several sockets already."""
    if MESH in module.attributes:
        raise CompileError("already-partitioned", "partition: the program is one socket's of a mesh already")
    for op in module.walk():
        if op.name in COMMUNICATING or op.name in PER_SOCKET:
            raise CompileError(
                "already-partitioned",
                f"partition: {op.name} says what sockets exchange",
                why="a program that does so has been divided among sockets already",
                fix="give no mesh",
                location=locations.of(op),
            )


def _plan(planner: Planner, main: FuncOp) -> Plan:
    """The best plan of a program: inputs come whole or with the batch cut, states as they are wanted."""
    told = signature(main)
    states = dict(told.states)
    types = {name: tt(arg) for name, arg in zip(told.inputs, main.body.block.args, strict=True)}
    forms = input_forms(planner.mesh, {name: type for name, type in types.items() if name not in states})
    specs = [Spec("fixed", forms[name]) if name in forms else Spec("open") for name in told.inputs]
    args = dict(zip(told.inputs, main.body.block.args, strict=True))
    pasts = {present: past for past, present in told.states}

    def finish(state: Any) -> list[Form | None]:
        """A state has one form, and so have ports of one name."""
        found: list[Form | None] = []
        for name, value in zip(told.results, operands_of_return(main), strict=True):
            past = pasts.get(name, name)
            if past not in args:
                found.append(None)
                continue
            arg = args[past]
            form = state.opened.get(id(arg)) or next(iter(state.forms.get(id(arg), ())), None)
            if form is None and past in states:
                have = state.forms.get(id(value), (whole(len(tt(value).shape)),))
                form = next((f for f in have if not f.partial), have[0].resolved)
                state.open(id(arg), form)
            found.append(form or forms.get(past))
        return found

    return planner.plan(main, tuple(specs), finish)[0]


def operands_of_return(func: FuncOp) -> Sequence[SSAValue]:
    """What a function returns."""
    last = func.body.block.last_op
    assert isinstance(last, ReturnOp)
    return operands(last)


def input_forms(mesh: Mesh, inputs: Mapping[str, TT]) -> dict[str, Form]:
    """How inputs come: whole, but for the batch, which `dp` cuts."""
    found = {name: whole(len(type.shape)) for name, type in inputs.items()}
    batch = mesh.of("dp")
    if not batch:
        return found
    count = mesh.size(batch)
    first, type = next(((n, t) for n, t in inputs.items() if t.shape), ("", TT((0,), "f32")))
    size = type.shape[0]
    if not size or size % count:
        fits = [n for n in range(2, size + 1) if size % n == 0]
        raise CompileError(
            "bad-mesh",
            f"partition: dp={count} cannot cut the batch" + (f", dim 0 of input '{first}', of {size}" if first else ""),
            why=f"{count} sockets do not share {size} evenly" if first else "the program has no input that has dims",
            fix=f"dp={fits[0]}" + "".join(f" or {n}" for n in fits[1:8]) if fits else "give no dp",
        )
    for name, type in inputs.items():
        if type.shape and type.shape[0] == size:
            found[name] = Form((batch, *found[name].cuts[1:]))
    return found


def refuse_unused(mesh: Mesh, main: FuncOp, plan: Plan, functions: Iterable[FuncOp]) -> None:
    """Refuse a mesh of which a part cuts nothing: all sockets along it would do the same."""
    used = set(_used(plan.steps))
    idle = [i for i in range(len(mesh.parts)) if i not in used]
    if not idle:
        return
    axis = mesh.parts[idle[0]].axis
    size, left = mesh.size(mesh.of(axis)), mesh.size(i for i in idle if mesh.parts[i].axis == axis)
    if axis == "ep":
        weights = (tt(op.result).shape for func in functions for op in func.body.block.ops if isinstance(op, WeightOp))
        sizes = {shape[0] for shape in weights if len(shape) > 2}
        what, nothing = "experts of the weights", "no product has weights of several experts side by side"
    else:
        sizes = {n for op in _products(functions) for x in operands(op)[1:] for n in tt(x).shape}
        what, nothing = "dims of the weights of products", "the program has no products with weights"
    fits = [n for n in range(2, 257) if any(s % n == 0 for s in sizes)]
    raise CompileError(
        "bad-mesh",
        f"partition: nothing is cut along {f'a factor {left} of ' if left < size else ''}{axis}={size}",
        why=f"{what} are not shared evenly by so many sockets" if sizes else nothing,
        fix=f"sizes that fit: {', '.join(map(str, fits[:12]))}" if fits else f"give no {axis}",
        location=locations.of(main),
    )


def _products(functions: Iterable[FuncOp]) -> list[Operation]:
    return [op for func in functions for op in func.body.block.ops if op.name in PRODUCTS]


def _used(found: Iterable[tuple[Any, ...]]) -> Iterable[int]:
    """The parts along which something is cut."""
    for _, choice, *_ in found:
        for form in (*choice.wants, *choice.gives):
            for cut in form.cuts if form is not None else ():
                yield from cut
        yield from _used(choice.inner)
        if choice.plan is not None:
            yield from _used(choice.plan.steps)


@dataclass
class _Maker:
    """Writes the functions of one socket."""

    module: ModuleOp
    planner: Planner
    functions: dict[int, FuncOp] = field(default_factory=dict[int, FuncOp])
    """By the id of their plan."""
    names: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.mesh = self.planner.mesh
        self.keys = Keys(self.module)
        self.first = next(op for op in self.module.body.block.ops if isinstance(op, FuncOp))

    def make(self, main: FuncOp, plan: Plan) -> None:
        """Write main, and what it calls, in front of what was there."""
        made = self.function(plan)
        for func in sorted(self.functions.values(), key=lambda x: x is not made):  # main first
            self.module.body.block.insert_op_before(func, self.first)
        told = signature(main)
        forms = {name: form for name, form in zip(told.inputs, plan.args, strict=True) if form is not None}
        forms.update(zip(told.results, plan.gives, strict=True))
        mesh, shardings = ports(self.mesh, forms)
        set_mesh(self.module, mesh)
        set_shardings(made, shardings)

    def function(self, plan: Plan) -> FuncOp:
        """The function of a plan, written once."""
        found = self.functions.get(id(plan))
        if found is None:
            name = plan.func.sym_name.data
            self.names[name] = number = self.names.get(name, 0) + 1
            found = self.functions[id(plan)] = _Writer(self, plan).write(name if number == 1 else f"{name}_{number}")
        return found

    def weight(self, op: WeightOp, form: Form) -> WeightOp:
        """A weight, or a recipe of a socket's block of it."""
        if form.whole:
            return op.clone()
        copy = op.clone()
        ops: list[Operation] = [copy]
        value: SSAValue = copy.result
        for step in steps(whole(len(form.cuts)), form) or ():
            new = create(f"tensor.{step.op}", [value], self.attrs(step), op.location)
            ops.append(new)
            value = new.results[0]
        type = tt(value)
        name = self.keys.add(recipe(key(value), ops, value, op.location), self.first)
        return weight(name, type, op.location)

    def attrs(self, step: Step, kind: str = "add") -> dict[str, Any]:
        """Attributes of a step."""
        group = self.mesh.group(step.cut)
        found: dict[str, Any] = {"axes": group.axes, "sizes": group.sizes, "strides": group.strides}
        match step.op:
            case "all_reduce":
                found["kind"] = kind
            case "reduce_scatter":
                found |= {"kind": kind, "axis": step.dim}
            case "all_to_all":
                found |= {"split": step.dim, "concat": step.other}
            case _:
                found["axis"] = step.dim
        return found


class _Writer:
    """Writes one function by its plan."""

    def __init__(self, maker: _Maker, plan: Plan) -> None:
        self.maker, self.plan = maker, plan
        self.mesh, self.costs = maker.mesh, maker.planner.costs
        self.block = Block()
        self.values: dict[int, dict[Form, SSAValue]] = {}
        """The forms in which a value of the old function is there."""
        self.places: dict[tuple[int, Cut], tuple[SSAValue, SSAValue]] = {}

    def write(self, name: str) -> FuncOp:
        """The function."""
        old = self.plan.func
        for number, (arg, form) in enumerate(zip(old.body.block.args, self.plan.args, strict=True)):
            forms = [f for i, f in self.plan.weights if i == number] if form is None else [form]
            for each in forms:
                new = self.block.insert_arg(ir_type(local(self.mesh, tt(arg), each)), len(self.block.args))
                new.location, new.name_hint = arg.location, arg.name_hint
                self.values.setdefault(id(arg), {})[each] = new
        for op, choice, candidates in self.plan.steps:
            made = self.op(op, choice)
            if len(candidates) > 1 and current() is not None and made is not None:
                decide("cut", made, choice.label, _reasons(candidates, choice), "s")
        last = self.block.last_op
        assert isinstance(last, ReturnOp)
        types = [x.type for x in self.block.args], [x.type for x in last.operands]
        visibility = old.sym_visibility.data if old.sym_visibility is not None else None
        func = FuncOp(name, types, Region(self.block), visibility, arg_attrs=old.arg_attrs, res_attrs=old.res_attrs)
        func.attributes.update(old.attributes)
        func.location = old.location
        return func

    def add(self, op: Operation) -> Operation:
        """Put an op at the end."""
        self.block.add_op(op)
        return op

    # Values

    def value(self, old: SSAValue, want: Form) -> SSAValue:
        """A value of the old function in a form."""
        forms = self.values.get(id(old))
        if forms is None:
            forms = self.values[id(old)] = self.lazy(old, want)
        if want not in forms:
            if _lazy(old) and not any(form.whole for form in forms) and not _argued(old):
                forms |= self.lazy(old, want)
            if want not in forms:
                type = tt(old)
                have = min(forms, key=lambda form: self.costs.lay(type, form, want)[0])
                forms[want] = self.lay(forms[have], have, want, locations.of_value(old))
        return forms[want]

    def lay(self, value: SSAValue, have: Form, want: Form, location: locations.Location) -> SSAValue:
        """Lay a value otherwise."""
        found = steps(have, want)
        assert found is not None, "planned"
        for step in found:
            if step.op == "mask":
                value = self.mask(value, have, location)
                continue
            op = self.add(
                create(
                    f"tensor.{step.op}", [value], self.maker.attrs(step, "add" if have.owned else have.kind), location
                )
            )
            if step.op != "socket_slice":
                count(step.op)
            value = op.results[0]
        return value

    def lazy(self, old: SSAValue, want: Form) -> dict[Form, SSAValue]:
        """A value that is made of weights, constants and arguments alone, in a form from which the one that is wanted
        can be had."""
        op = _graph.producer(old)
        assert op is not None, "arguments are there from the start"
        none = whole(len(want.cuts))
        if type(op) is WeightOp:
            return {want: self.add(self.maker.weight(op, want)).results[0]}
        if type(op) is ConstantOp and op.value.is_splat:
            block = local(self.mesh, tt(old), want)
            return {want: self.add(constant(LiteralAttr.of(block, op.value.data.data), op.location)).results[0]}
        wants = backward(self.maker.planner.info(op), self.mesh, want) if operands(op) else None
        if wants is None:
            if want != none:
                return {none: self.value(old, none)}
            wants = [whole(len(tt(x).shape)) for x in operands(op)]
        return {want: self.block_op(op, wants, (want,)).results[0]}

    # Ops

    def op(self, op: Operation, choice: Choice) -> Operation | None:
        """An op on blocks, as chosen."""
        if isinstance(op, ReturnOp):
            values = [self.value(x, form) for x, form in zip(operands(op), choice.wants, strict=True) if form]
            last = ReturnOp(*values)
            last.location = op.location
            return self.add(last)
        if choice.plan is not None:
            return self.call(op, choice, choice.plan)
        if choice.value is not None:
            made = [self.op(inner, how) for inner, how in choice.inner]
            (form,) = choice.gives
            self.values[id(op.results[0])] = {form: self.value(choice.value, form)}
            return made[-1] if made else None
        if choice.owners >= 0:
            return self.take_own(op, choice)
        made = self.block_op(op, [form for form in choice.wants if form is not None], choice.gives)
        results: list[SSAValue] = list(made.results)
        if choice.scale != 1:
            (result,) = results
            factor = self.add(filled(TT((), tt(result).dtype), choice.scale, op.location)).results[0]
            results = [self.add(create("tensor.mul", [result, factor], {}, op.location)).results[0]]
        for number, form in enumerate(choice.masks):
            results[number] = self.mask(results[number], form, op.location)
        for old, new, form in zip(op.results, results, choice.gives, strict=True):
            self.values[id(old)] = {form: new}
        return made

    # Experts

    def place(self, owners: int, cut: Cut, location: locations.Location) -> tuple[SSAValue, SSAValue]:
        """Where in a socket's experts those are that are asked for (the first one for those that are not there), and
        whether they are there. `cut` is how the dim is cut that has owners."""
        key = owners, cut
        if key not in self.places:
            indices, experts, parts = self.maker.planner.owners[owners]
            e = Emit(self.add, location)
            given = self.value(indices, Form((cut,)))
            group = self.mesh.group(parts)
            size = experts // self.mesh.size(parts)
            number = e.socket_index(axes=group.axes, sizes=group.sizes, strides=group.strides)
            first = e.mul(e.cast_to(number, tt(given).dtype), size)
            at = e.sub(e.select(e.less(given, 0), e.add(given, experts), given), first)
            mine = e.and_(e.greater_equal(at, 0), e.less(at, size))
            self.places[key] = e.select(mine, at, e.filled(TT((), tt(given).dtype), 0)), mine
        return self.places[key]

    def take_own(self, op: Operation, choice: Choice) -> Operation:
        """Take from a socket's own experts; of those that it has not it takes the first one."""
        table, index = choice.wants
        (form,) = choice.gives
        assert table is not None and index is not None and form.owned is not None
        at, _ = self.place(choice.owners, index.cuts[0], op.location)
        attrs = self.maker.planner.info(op).attrs
        made = self.add(create(op.name, [self.value(operands(op)[0], table), at], attrs, op.location))
        self.values[id(op.results[0])] = {form: made.results[0]}
        return made

    def mask(self, value: SSAValue, form: Form, location: locations.Location) -> SSAValue:
        """Zeros for what the socket does not own."""
        assert form.owned is not None
        dim, owners = form.owned
        _, mine = self.place(owners, form.cuts[dim], location)
        e = Emit(self.add, location)
        shape = tt(value).shape
        wide = e.reshape_to(mine, tuple(n if d == dim else 1 for d, n in enumerate(shape)))
        return e.select(wide, value, e.filled(TT((), tt(value).dtype), 0))

    # Ops on blocks

    def block_op(self, op: Operation, wants: Sequence[Form], gives: Sequence[Form]) -> Operation:
        """The op on blocks of these forms."""
        about = self.maker.planner.info(op)
        given = [self.value(x, form) for x, form in zip(operands(op), wants, strict=True)]
        made = [local(self.mesh, type, form) for type, form in zip(about.results, gives, strict=True)]
        if type(op) is ConstantOp or (not any(f.cuts and not f.whole for f in (*wants, *gives))):
            new = op.clone_without_regions(clone_operands=False)
            new.operands = given
        else:
            new = create(op.name, given, block_attrs(op.name, about.attrs, [tt(x) for x in given], made), op.location)
            new.attributes.update(op.attributes)
        assert [tt(x) for x in new.results] == made, f"{op.name}: blocks of {made}"
        return self.add(new)

    def call(self, op: Operation, choice: Choice, plan: Plan) -> Operation:
        """A call of the function that a plan makes."""
        callee = self.maker.function(plan)
        given: list[SSAValue] = []
        for number, (value, form) in enumerate(zip(operands(op), plan.args, strict=True)):
            forms = [f for i, f in plan.weights if i == number] if form is None else [form]
            given += [self.value(value, each) for each in forms]
        symbol = SymbolRefAttr(callee.sym_name.data)
        types = list(callee.function_type.outputs.data)
        new = self.add(make(CallOp, given, types, {"callee": symbol}, op.location))
        for old, result, form in zip(op.results, new.results, choice.gives, strict=True):
            self.values[id(old)] = {form: result}
        return new


def _lazy(value: SSAValue) -> bool:
    return type(_graph.producer(value)) in (WeightOp, ConstantOp)


def _argued(value: SSAValue) -> bool:
    return _graph.producer(value) is None


def _reasons(candidates: Sequence[Candidate], chosen: Choice) -> tuple[Candidate, ...]:
    """What was weighed, and why it lost."""
    taken = next((c.score for c in candidates if c.name == chosen.label), None)
    found: list[Candidate] = []
    for one in candidates:
        reason = ""
        if one.name != chosen.label and one.score is not None and taken is not None:
            reason = "takes longer" if one.score > taken else "what follows takes longer"
        found.append(one._replace(reason=reason))
    return tuple(found)


def ports(mesh: Mesh, forms: Mapping[str, Form]) -> tuple[dict[str, int], dict[str, Sharding]]:
    """The mesh and how ports are cut along its axes. An axis of which a port takes a part is split there."""
    splits: set[int] = set()
    cuts = [cut for form in forms.values() for cut in form.cuts]
    for cut in cuts:
        for at, i in enumerate(cut):
            follows = at > 0 and cut[at - 1] == i - 1 and mesh.parts[i - 1].axis == mesh.parts[i].axis
            if not follows:
                splits.add(i)
            last = at + 1 == len(cut) or cut[at + 1] != i + 1
            if last:
                splits.add(i + 1)
    axes: list[tuple[str, Cut]] = []
    for name, _ in mesh.axes:
        pieces: list[list[int]] = []
        for i in mesh.of(name):
            if not pieces or i in splits:
                pieces.append([])
            pieces[-1].append(i)
        axes += [(name if len(pieces) == 1 else f"{name}.{k}", tuple(piece)) for k, piece in enumerate(pieces)]
    found = {name: mesh.size(piece) for name, piece in axes}
    for name, size in mesh.axes:
        if size == 1:
            found[name] = 1
    owner = {i: name for name, piece in axes for i in piece}

    def names(cut: Cut) -> tuple[str, ...]:
        return tuple(dict.fromkeys(owner[i] for i in cut))

    return found, {port: tuple(map(names, form.cuts)) for port, form in forms.items()}
