"""How values lie on the sockets of a mesh, and what it takes to lay them otherwise.

A `Form` says per dim along which parts of the mesh it is cut, major first, and over which parts it is still to be
combined. Axes of the mesh are split into prime parts, so that a dim may take less than a whole axis: eight heads over
sixteen sockets are cut over the first three parts of two and the same on pairs. A `Rule` says how an op works on blocks
(its dims, which dims of operands and results follow them, and which are reduced and how).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

from headrace.dialects.machine.collectives import collective, of_tensor
from headrace.dialects.machine.device import Device
from headrace.dialects.support import dtypes
from headrace.dialects.support.diagnostics import Collector, nearest
from headrace.dialects.tensor import shapes
from headrace.dialects.tensor.program import STAGES
from headrace.dialects.tensor.shapes import TT, Attrs
from headrace.dialects.tensor.shapes.axes import axes_of
from headrace.dialects.tensor.shapes.broadcasting import NUMERIC
from headrace.dialects.tensor.shapes.contraction import matmul_dims
from headrace.dialects.tensor.shapes.movement import reshape_groups

Cut = tuple[int, ...]
"""Parts of a mesh by number, major first."""


class Part(NamedTuple):
    """A prime factor of an axis of the mesh: a socket's coordinate on it is `socket // stride % size`."""

    axis: str
    size: int
    stride: int


class Group(NamedTuple):
    """Axes, sizes and strides as collectives have them."""

    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


def _primes(n: int) -> Iterator[int]:
    at = 2
    while n > 1:
        while n % at == 0:
            yield at
            n //= at
        at += 1


@dataclass(frozen=True)
class Mesh:
    """The axes of a mesh in order, major first; sockets are numbered row by row."""

    axes: tuple[tuple[str, int], ...]

    @cached_property
    def count(self) -> int:
        """How many sockets."""
        return prod(size for _, size in self.axes)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The prime parts of all axes, major first."""
        found: list[Part] = []
        stride = self.count
        for name, size in self.axes:
            for factor in _primes(size):
                stride //= factor
                found.append(Part(name, factor, stride))
        return tuple(found)

    def of(self, axis: str) -> Cut:
        """The parts of an axis."""
        return tuple(i for i, part in enumerate(self.parts) if part.axis == axis)

    def size(self, cut: Iterable[int]) -> int:
        """Into how many blocks a cut makes a dim."""
        return prod(self.parts[i].size for i in cut)

    def group(self, cut: Cut) -> Group:
        """The parts as axes, sizes and strides, neighbours of one axis together."""
        found: list[Part] = []
        for i in cut:
            part = self.parts[i]
            last = found[-1] if found else None
            if last is not None and last.axis == part.axis and last.stride == part.stride * part.size:
                found[-1] = Part(part.axis, last.size * part.size, part.stride)
            else:
                found.append(part)
        return Group(*map(tuple, zip(*found, strict=True)))

    def text(self, cut: Cut) -> str:
        """The parts for people: `tp`, or `4 of tp`."""
        whole = dict(self.axes)
        group = self.group(cut) if cut else Group((), (), ())
        names = [
            axis if size == whole[axis] else f"{size} of {axis}"
            for axis, size in zip(group.axes, group.sizes, strict=True)
        ]
        return ", ".join(names) or "nothing"


class Form(NamedTuple):
    """How a value lies on the sockets: the parts that each dim is cut along, and the parts along which sockets hold
    what is still to be combined by `kind`: "add", "max", "min" or "mul"; or "own:D:N", where of each index of dim D one
    socket alone has what is right, and others have anything. Which one has it is said by the owners of number N."""

    cuts: tuple[Cut, ...]
    partial: Cut = ()
    kind: str = "add"

    @property
    def whole(self) -> bool:
        """Whether each socket has all of the value."""
        return not self.partial and not any(self.cuts)

    @property
    def owned(self) -> tuple[int, int] | None:
        """The dim whose indices each have an owner, and the number of the owners."""
        if not self.kind.startswith("own"):
            return None
        _, dim, owners = self.kind.split(":")
        return int(dim), int(owners)

    @property
    def resolved(self) -> Form:
        """The same with nothing left to combine."""
        return Form(self.cuts) if self.partial else self


def owned(dim: int, owners: int) -> str:
    """The kind of a form whose dim has owners."""
    return f"own:{dim}:{owners}"


def whole(rank: int) -> Form:
    """The form of a value that each socket has all of."""
    return Form(((),) * rank)


def local(mesh: Mesh, type: TT, form: Form) -> TT:
    """The type of a socket's block."""
    if form.whole:
        return type
    return TT(tuple(n // mesh.size(cut) for n, cut in zip(type.shape, form.cuts, strict=True)), type.dtype)


def spread(mesh: Mesh, cut: Cut, sizes: Sequence[int]) -> tuple[Cut, ...] | None:
    """How dims of these sizes, the first one outermost, are cut when together they are cut into contiguous blocks; None
    when they do not share evenly."""
    rest = list(cut)
    found: list[Cut] = []
    for n in sizes:
        taken: list[int] = []
        while rest and n % mesh.parts[rest[0]].size == 0:
            n //= mesh.parts[rest[0]].size
            taken.append(rest.pop(0))
        found.append(tuple(taken))
        if n > 1:
            break
    if rest:
        return None
    return (*found, *((),) * (len(sizes) - len(found)))


def joined(mesh: Mesh, cuts: Sequence[Cut], sizes: Sequence[int]) -> Cut:
    """The parts along which dims, the first one outermost, are cut together into contiguous blocks: what does not fit
    is left out."""
    found: list[int] = []
    for cut, n in zip(cuts, sizes, strict=True):
        found += cut
        if mesh.size(cut) != n:
            break
    return tuple(found)


# Rules of ops


class Dim(NamedTuple):
    """A dim of an op: how many indices, how its blocks are combined when it is not in the result (empty: they are not),
    and whether leading dims of a product (those of many products side by side) follow it."""

    size: int
    reduce: str = ""
    outer: bool = False


Place = tuple[int, ...]
"""The dims of a value that follow a dim of an op, outermost first."""


class Rule(NamedTuple):
    """The dims along which an op can be cut, and per operand and result the places that follow each of them."""

    dims: tuple[Dim, ...]
    operands: tuple[tuple[Place, ...], ...]
    results: tuple[tuple[Place, ...], ...]
    mean: bool = False
    """Whether blocks of a reduced dim are combined by their mean."""


REDUCTIONS = {
    "tensor.reduce_sum": "add",
    "tensor.reduce_mean": "add",
    "tensor.reduce_max": "max",
    "tensor.reduce_min": "min",
    "tensor.reduce_prod": "mul",
}
CONTRACTIONS = frozenset(("tensor.matmul", "tensor.conv"))
MOVES = frozenset(f"tensor.{n}" for n in ("reshape", "transpose", "slice", "broadcast", "concat", "split"))
"""Ops that only move elements: what is to be combined may be so behind them."""
TOGETHER = frozenset(("tensor.add", "tensor.sub", "tensor.concat"))
"""Ops that are linear in all operands together."""
LINEAR: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(MOVES - TOGETHER, (0,)),
    "tensor.neg": (0,),
    "tensor.mul": (0, 1),
    "tensor.div": (0,),
    "tensor.matmul": (0, 1),
    "tensor.conv": (0, 1),
    "tensor.reduce_sum": (0,),
    "tensor.reduce_mean": (0,),
    "tensor.cumsum": (0,),
    "tensor.gather": (0,),
    "tensor.gather_elements": (0,),
    "tensor.gather_nd": (0,),
}
"""Ops that are linear in one of these operands when the others are given."""
DIVIDING = frozenset(("tensor.div", "tensor.reduce_mean"))
"""Those that are so for floats alone: integers are truncated."""


def rule_of(name: str, attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> Rule:
    """The dims along which an op can be cut."""
    if name == "tensor.reshape":
        return _of_reshape(operands[0].shape, results[0].shape)
    found = _of_tiling(shapes.tiling(name, attrs, operands, results), operands, results)
    if name in REDUCTIONS:
        return _with_reduced(found, REDUCTIONS[name], name == "tensor.reduce_mean", attrs, operands[0])
    if name == "tensor.matmul":
        lhs, rhs = operands[0].shape, operands[1].shape
        sizes = matmul_dims(lhs, rhs)
        outer = len(sizes.batch)
        dims = tuple(d._replace(outer=found.results[0][i][0] < outer) for i, d in enumerate(found.dims))
        return _with_dim(found._replace(dims=dims), sizes.k, ((len(lhs) - 1,), (max(len(rhs) - 2, 0),)))
    if name == "tensor.conv" and attrs["groups"] == 1 and len(operands) == 2:
        return _with_dim(found, operands[0].shape[1], ((1,), (1,)))
    return found


def _of_tiling(tiling: shapes.Tiling, operands: Sequence[TT], results: Sequence[TT]) -> Rule:
    """Dims whose blocks need just the same blocks of what follows them."""
    dims: list[Dim] = []
    columns: list[tuple[list[Place], list[Place]]] = []
    for number, size in enumerate(tiling.dims):
        places: tuple[list[Place], list[Place]] = ([], [])
        fits = size > 1
        for rows, types, into in ((tiling.operands, operands, places[0]), (tiling.results, results, places[1])):
            for row, type in zip(rows, types, strict=True):
                mine = [(d, f) for d, f in enumerate(row) if f is not None and f.dim == number]
                fits &= len(mine) < 2 and all(
                    f.scale == f.extent and f.offset == 0 and type.shape[d] == f.scale * size for d, f in mine
                )
                into.append(tuple(d for d, _ in mine))
        if fits and all(places[1]):
            dims.append(Dim(size))
            columns.append(places)
    return Rule(
        tuple(dims),
        tuple(tuple(c[0][o] for c in columns) for o in range(len(operands))),
        tuple(tuple(c[1][r] for c in columns) for r in range(len(results))),
    )


def _with_dim(rule: Rule, size: int, places: Sequence[Place], kind: str = "add") -> Rule:
    """A rule with a reduced dim more."""
    return rule._replace(
        dims=(*rule.dims, Dim(size, kind)),
        operands=tuple((*row, place) for row, place in zip(rule.operands, places, strict=True)),
        results=tuple((*row, ()) for row in rule.results),
    )


def _with_reduced(rule: Rule, kind: str, mean: bool, attrs: Attrs, x: TT) -> Rule:
    if x.dtype not in NUMERIC or (mean and not dtypes.is_float(x.dtype)):
        return rule
    for axis in axes_of(attrs["axes"], len(x.shape)):
        rule = _with_dim(rule, x.shape[axis], ((axis,),), kind)
    return rule._replace(mean=mean)


def _of_reshape(source: tuple[int, ...], target: tuple[int, ...]) -> Rule:
    """Groups of dims that hold the same elements in the same order; blocks of a group are contiguous."""
    groups = reshape_groups(source, target)
    return Rule(
        tuple(Dim(prod(source[d] for d in left)) for left, _ in groups),
        (tuple(left for left, _ in groups),),
        (tuple(right for _, right in groups),),
    )


# From form to form


class Step(NamedTuple):
    """A tensor op that lays a value otherwise: along parts of the mesh and a dim; `other` is what is joined by an
    all_to_all. A `mask` is no op of that name: it makes zeros of what a socket does not own."""

    op: str
    cut: Cut
    dim: int = -1
    other: int = -1


def _drop(cut: Cut, tail: Cut) -> Cut:
    return cut[: len(cut) - len(tail)]


def after(form: Form, step: Step) -> Form:
    """The form after a step."""
    cuts, partial = list(form.cuts), form.partial
    match step.op:
        case "mask":
            return form._replace(kind="add")
        case "all_reduce":
            partial = tuple(x for x in partial if x not in step.cut)
        case "reduce_scatter":
            partial = tuple(x for x in partial if x not in step.cut)
            cuts[step.dim] += step.cut
        case "socket_slice":
            cuts[step.dim] += step.cut
        case "all_gather":
            cuts[step.dim] = _drop(cuts[step.dim], step.cut)
        case _:  # all_to_all
            cuts[step.other] = _drop(cuts[step.other], step.cut)
            cuts[step.dim] += step.cut
    return Form(tuple(cuts), partial, form.kind if partial else "add")


@lru_cache(1 << 14)
def steps(have: Form, want: Form) -> tuple[Step, ...] | None:
    """What makes one form of another; None when nothing does. What is sent is cut before it is sent where it can be."""
    masked = have.owned is not None and want.kind == "add"
    if not set(want.partial) <= set(have.partial) or (want.partial and want.kind != have.kind and not masked):
        return None
    found: list[Step] = []
    form = have

    def add(step: Step) -> None:
        nonlocal form
        found.append(step)
        form = after(form, step)

    def surplus(d: int) -> Cut:
        keep = 0
        for a, b in zip(form.cuts[d], want.cuts[d], strict=False):
            if a != b:
                break
            keep += 1
        return form.cuts[d][keep:]

    def missing(d: int) -> Cut:
        return () if surplus(d) else want.cuts[d][len(form.cuts[d]) :]

    def combine() -> Cut:
        return tuple(x for x in form.partial if x not in want.partial)

    def slices() -> None:
        for d in dims:
            tail = missing(d)
            if tail and not {*tail} & {*form.partial, *(x for cut in form.cuts for x in cut)}:
                add(Step("socket_slice", tail, d))

    dims = range(len(have.cuts))
    if masked:
        add(Step("mask", have.partial, (have.owned or (0, 0))[0]))
    for d in dims:
        tail = surplus(d)
        for other in dims:
            if tail and other != d and missing(other) == tail:
                add(Step("all_to_all", tail, other, d))
                break
    for d in dims:
        tail = missing(d)
        if tail and {*tail} <= {*combine()}:
            add(Step("reduce_scatter", tail, d))
    slices()
    if rest := combine():
        add(Step("all_reduce", rest))
    for d in dims:
        if tail := surplus(d):
            add(Step("all_gather", tail, d))
    slices()
    return tuple(found) if form == want else None


EACH = 0.2
"""What each collective costs beside its time, in latencies of an all_reduce over the mesh: of two ways that take as
long the one with fewer collectives is taken."""


@dataclass(frozen=True)
class Costs:
    """What work, weights and collectives cost on a device, in seconds."""

    mesh: Mesh
    device: Device

    @cached_property
    def latency(self) -> float:
        """An all_reduce of one element over all sockets."""
        group = self.mesh.group(tuple(range(len(self.mesh.parts))))
        return collective(self.device, "all_reduce", 1, "f32", 4, group.sizes, group.strides).seconds

    @cached_property
    def bandwidth(self) -> float:
        """Bytes a second from the memory that holds weights."""
        memory = self.device.hbm or self.device.ddr
        return memory.bandwidth * memory.efficiency

    def read(self, type: TT) -> float:
        """Reading a tensor from memory."""
        return type.elements * dtypes.byte_size(type.dtype) / self.bandwidth

    def work(self, name: str, attrs: Attrs, operands: Sequence[TT], results: Sequence[TT]) -> float:
        """The operations of an op at the device's full rate."""
        flops = shapes.flops(name, attrs, operands, results)
        dtype = operands[0].dtype if operands else results[0].dtype
        pcu, clock = self.device.pcu, self.device.clock
        units = self.device.count("pcu") * pcu.lanes * pcu.stages * clock
        if name in CONTRACTIONS and pcu.systolic:
            return flops / (2 * units * self.device.systolic_rate(dtype))
        moved = sum(t.elements for t in results)
        return (flops + moved) / (units * self.device.simd_rate(dtype))

    def lay(self, type: TT, have: Form, want: Form) -> tuple[float, Cut]:
        """Making one form of another, and along which parts what was cut is joined; infinite when nothing does."""
        if have == want:
            return 0.0, ()
        found = steps(have, want)
        return self._lay(type, have, found) if found is not None else (float("inf"), ())

    def _lay(self, type: TT, form: Form, found: Sequence[Step]) -> tuple[float, Cut]:
        seconds = 0.0
        gathered: Cut = ()
        for step in found:
            block = local(self.mesh, type, form)
            seconds += self.step(step, block)
            if step.op in ("all_gather", "all_to_all"):
                gathered += step.cut
            form = after(form, step)
        return seconds, gathered

    def step(self, step: Step, block: TT) -> float:
        """One step on a socket's block."""
        if step.op in ("socket_slice", "mask"):
            return 1e-12
        group = self.mesh.group(step.cut)
        nbytes = block.elements * dtypes.byte_size(block.dtype)
        size = block.elements, block.dtype, nbytes
        seconds, _ = of_tensor(self.device, step.op, *size, group.sizes, group.strides)
        return seconds + EACH * self.latency


def cut_of(
    rule: Rule, places: tuple[Place, ...], type: TT, mesh: Mesh, cuts: Mapping[int, Cut]
) -> tuple[Cut, ...] | None:
    """How a value is cut when dims of an op are: the cuts of its dims, or None when a dim does not share evenly."""
    found: list[Cut] = [()] * len(type.shape)
    for number, cut in cuts.items():
        place = places[number]
        if not cut or not place:
            continue
        parts = spread(mesh, cut, [type.shape[d] for d in place])
        if parts is None:
            return None
        for d, part in zip(place, parts, strict=True):
            found[d] = part
    return tuple(found)


def dims_of(places: tuple[Place, ...], type: TT, mesh: Mesh, form: Form) -> dict[int, Cut]:
    """How the dims of an op would be cut to suit a value's form."""
    found: dict[int, Cut] = {}
    for number, place in enumerate(places):
        cut = joined(mesh, [form.cuts[d] for d in place], [type.shape[d] for d in place]) if place else ()
        if cut:
            found[number] = cut
    return found


def plain(value: Any) -> Any:
    """The attributes of an op as something that can be a key."""
    return tuple(sorted(value.items())) if isinstance(value, dict) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


KINDS = {
    "tp": "dims of the weights of products",
    "dp": "batches of inputs",
    "ep": "experts",
    STAGES: "the row of layers",
}
"""What axes of a mesh cut, by their names."""


def mesh_from_text(text: str) -> Mesh:
    """A mesh from `dp=2,tp=8`; `CompileError` lists what is wrong with it."""
    found = Collector()
    axes: list[tuple[str, int]] = []
    for part in filter(None, (x.strip() for x in text.split(","))):
        name, equals, size = (x.strip() for x in part.partition("="))
        if not equals or not size.isdecimal() or int(size) < 1:
            found.add("bad-mesh", f"mesh '{part}' is no axis and its size", fix="tp=8,dp=2")
        elif name == STAGES and axes:
            found.add("bad-mesh", f"axis '{STAGES}' of the mesh is behind '{axes[0][0]}'", fix="it is the first one")
        elif name not in KINDS:
            about = "; ".join(f"{axis} cuts {what}" for axis, what in KINDS.items())
            found.add("bad-mesh", f"there is no axis '{name}' of a mesh", why=about, fix=nearest(name, KINDS))
        elif name in (x for x, _ in axes):
            found.add("bad-mesh", f"axis '{name}' of the mesh is given twice")
        else:
            axes.append((name, int(size)))
    found.raise_if_any()
    return Mesh(tuple(axes))
