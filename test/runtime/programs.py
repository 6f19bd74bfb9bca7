"""Small programs written by hand, for tests of the runtime: each with inputs, weights and what NumPy makes of
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headrace.dialects.support.access import Loop, Stream, View, identity, row_major
from headrace.dialects.tensor import shapes
from headrace.dialects.tensor.shapes import TT
from headrace.runtime import geometry
from headrace.runtime.check import source_sites
from headrace.runtime.program import (
    Agcu,
    BodyOp,
    Config,
    Flow,
    Launch,
    LaunchLoop,
    Param,
    Pcu,
    Pmu,
    Port,
    Program,
    Region,
    Unit,
)

Array = np.ndarray[Any, np.dtype[Any]]
F = np.float32
DEVICE = {"name": "toy", "clock": 1.0e9}


@dataclass
class Case:
    """A program with everything that a test needs to run and judge it."""

    program: Program
    inputs: dict[str, Array]
    weights: dict[str, Array]
    expected: dict[str, Array]

    def array(self, key: str) -> Array:
        return self.weights[key]


@dataclass
class Body:
    """Builds a PCU body on tile types."""

    types: list[TT]
    ops: list[BodyOp] = field(default_factory=list[BodyOp])

    def __post_init__(self) -> None:
        self.inputs = len(self.types)

    def op(self, name: str, *operands: int, **attrs: Any) -> int:
        name = f"tensor.{name}"
        (type,) = shapes.infer(name, attrs, [self.types[v] for v in operands])
        self.types.append(type)
        self.ops.append(BodyOp(name, attrs, tuple(operands), (len(self.types) - 1,)))
        return len(self.types) - 1

    def constant(self, value: Array) -> int:
        from headrace.dialects.support import dtypes

        self.types.append(TT(value.shape, dtypes.from_numpy(value.dtype)))
        self.ops.append(BodyOp("tensor.constant", {"value": value.tobytes()}, (), (len(self.types) - 1,)))
        return len(self.types) - 1


class Builder:
    """Collects the parts of a config; sites are handed out in order, pairs follow from the address programs."""

    def __init__(self, name: str = "c") -> None:
        self.name = name
        self.params: list[Param] = []
        self.units: list[Unit] = []
        self.flows: list[Flow] = []
        self._at = 0

    def sites(self, count: int) -> Any:
        found = [((self._at + i) % 16, (self._at + i) // 16) for i in range(count)]
        self._at += count
        return np.array(found, np.int32)

    def param(self, name: str, shape: Sequence[int], direction: str = "in", dtype: str = "f32") -> int:
        self.params.append(Param(name, TT(tuple(shape), dtype), direction))
        return len(self.params) - 1

    def agcu(self, direction: str, param: int, count: int = 1) -> int:
        self.units.append(Agcu(f"{direction}_{self.params[param].name}", direction, param, self.sites(count), "model"))
        return len(self.units) - 1

    def pmu(self, name: str, shape: Sequence[int], *, frames: int = 0, copies: int = 1, fill: float = 0.0,
            split: int = 0, count: int = 1, dtype: str = "f32") -> int:  # fmt: skip
        self.units.append(Pmu(name, tuple(shape), dtype, frames, copies, fill, split, 1, self.sites(count), "model"))
        return len(self.units) - 1

    def pcu(self, name: str, body: Body, outputs: Sequence[int], count: int = 1, mode: str = "simd") -> int:
        self.units.append(
            Pcu(name, mode, body.inputs, tuple(body.ops), tuple(outputs), tuple(body.types), self.sites(count), "model")
        )
        return len(self.units) - 1

    def flow(self, src: int, dst: int, tile: Sequence[int], time: Sequence[tuple[int, int, int]] = (),
             space: Sequence[tuple[int, int, int]] = (), *, from_: View | None = None, to: View | None = None,
             src_port: int | None = None, dst_port: int | None = None, dtype: str = "f32",
             credits: int = 2) -> None:  # fmt: skip
        stream = Stream(tuple(tile), dtype, tuple(Loop(*x) for x in time), tuple(Loop(*x) for x in space))
        if src_port is None:
            src_port = sum(f.src == src for f in self.flows) if isinstance(self.units[src], Pmu) else 0
        if dst_port is None:
            dst_port = sum(f.dst == dst for f in self.flows)
        pairs = self._pairs(src, dst, stream, from_, to)
        empty = np.zeros(0, np.int32)
        self.flows.append(Flow(src, src_port, dst, dst_port, stream, from_, to, pairs, empty, empty, credits))

    def _pairs(self, src: int, dst: int, stream: Stream, from_: View | None, to: View | None) -> Any:
        def side(unit: Unit, view: View | None, sends: bool) -> Array:
            at = (
                geometry.shifts(stream.space, view).reshape(-1, 1)
                if view is not None
                else np.zeros((stream.sites, 1), int)
            )
            if isinstance(unit, Pcu):
                places = source_sites(stream, len(unit.sites)) if sends else range(len(unit.sites))
                return np.array(places).reshape(-1, 1)
            if isinstance(unit, Agcu):
                return np.zeros((1, 1), int)
            terms = (*geometry.tile_terms(stream, view), *geometry.loop_terms(stream.time, view))  # pyright: ignore
            return geometry.owner_of(
                at + geometry.addresses(terms, view.offset), unit.shape, unit.split_dim, len(unit.sites)
            )  # pyright: ignore

        a, b = np.broadcast_arrays(side(self.units[src], from_, True), side(self.units[dst], to, False))
        return np.unique(np.stack([a.ravel(), b.ravel()], 1), axis=0).astype(np.int32)

    def config(self) -> Config:
        return Config(self.name, tuple(self.params), tuple(self.units), tuple(self.flows))


def program(
    configs: Sequence[Config],
    regions: Sequence[Region],
    launches: Sequence[tuple[int, Sequence[int | tuple[int, int]]]],
    states: Sequence[tuple[str, str]] = (),
    extra_outputs: Sequence[Port] = (),
) -> Program:
    """A program whose inputs and outputs are its regions of that kind; addresses are handed out in order."""
    from headrace.dialects.support import dtypes

    at = 0
    placed: list[Region] = []
    for r in regions:
        placed.append(Region(r.name, r.kind, r.type, r.memory, at, r.key))
        at += -(-r.type.elements * dtypes.byte_size(r.type.dtype) // 64) * 64
    return Program(
        DEVICE,
        tuple(placed),
        tuple(configs),
        tuple(
            Launch(c, tuple(a if isinstance(a, tuple) else (a, 0) for a in args), "sw", "model") for c, args in launches
        ),
        tuple(Port(r.name, r.type, i) for i, r in enumerate(placed) if r.kind in ("input", "state")),
        (*(Port(r.name, r.type, i) for i, r in enumerate(placed) if r.kind == "output"), *extra_outputs),
        tuple(states),
        {"model": "toy", "pipeline": ""},
    )


def region(name: str, kind: str, shape: Sequence[int], dtype: str = "f32") -> Region:
    return Region(name, kind, TT(tuple(shape), dtype), "hbm", 0, name if kind == "weight" else "")


def rand(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def gelu(x: Array) -> Array:
    from headrace.dialects.tensor.meaning import evaluate

    return evaluate("tensor.gelu", {"approximate": "none"}, x)[0]


def ffn(rows: int = 128, inner: int = 64, columns: int = 96, *, block: int = 16, row_sites: int = 2,
        column_sites: int = 2, mem_sites: int = 4) -> Case:  # fmt: skip
    """x·w + b, gelu: 2×2 compute sites, weights and rows held in memory units split over several sites."""
    b = Builder("ffn")
    x, w, bias, y = (b.param("x", (rows, inner)), b.param("w", (inner, columns)), b.param("b", (columns,)),
                     b.param("y", (rows, columns), "out"))  # fmt: skip
    nb = columns // column_sites  # columns of a site
    steps = rows // (block * row_sites)
    time = [(steps, 0, block * row_sites)]
    space = [(row_sites, 0, block), (column_sites, 1, nb)]
    mx = b.pmu("mx", (rows, inner), frames=1, copies=2, count=mem_sites)
    mw = b.pmu("mw", (inner, columns), split=1, count=column_sites)
    mb = b.pmu("mb", (columns,))
    my = b.pmu("my", (rows, columns), frames=1, copies=2, count=mem_sites)
    body = Body([TT((block, inner), "f32"), TT((inner, nb), "f32"), TT((nb,), "f32")])
    h = body.op("matmul", 0, 1, accumulate="f32")
    g = body.op("add", h, 2)
    dot = b.pcu("dot", body, [g], row_sites * column_sites, "systolic")
    tail = Body([TT((block, nb), "f32")])
    act = b.pcu("act", tail, [tail.op("gelu", 0, approximate="none")], row_sites * column_sites)
    load_x, load_w, load_b, store = b.agcu("load", x), b.agcu("load", w), b.agcu("load", bias), b.agcu("store", y)
    b.flow(load_x, mx, (block * row_sites, inner), time, from_=identity((rows, inner)), to=identity((rows, inner)))
    b.flow(load_w, mw, (inner, columns), from_=identity((inner, columns)), to=identity((inner, columns)))
    b.flow(load_b, mb, (columns,), from_=identity((columns,)), to=identity((columns,)))
    b.flow(mx, dot, (block, inner), time, [(row_sites, 0, block), (column_sites, -1, 0)], from_=identity((rows, inner)))
    repeat = [(steps, -1, 0)]
    b.flow(mw, dot, (inner, nb), repeat, [(row_sites, -1, 0), (column_sites, 1, nb)], from_=identity((inner, columns)))
    b.flow(mb, dot, (nb,), repeat, [(row_sites, -1, 0), (column_sites, 0, nb)], from_=identity((columns,)))
    b.flow(dot, act, (block, nb), time, space)
    b.flow(act, my, (block, nb), time, space, to=identity((rows, columns)))
    b.flow(my, store, (block * row_sites, columns), time, from_=identity((rows, columns)), to=identity((rows, columns)))
    made = program(
        [b.config()],
        [region("x", "input", (rows, inner)), region("w", "weight", (inner, columns)),
         region("b", "weight", (columns,)),
         region("y", "output", (rows, columns))],
        [(0, [0, 1, 2, 3])],
    )  # fmt: skip
    inputs = {"x": rand(0, rows, inner)}
    weights = {"w": rand(1, inner, columns) / 8, "b": rand(2, columns)}
    return Case(made, inputs, weights, {"y": gelu(inputs["x"] @ weights["w"] + weights["b"])})


def looped() -> Case:
    """Three equal layers with weights of their own, which the chip repeats by itself."""
    size, made = 96, ffn(inner=96)
    names = ("x", "t", "u", "y")
    kinds = ("input", "temp", "temp", "output")
    regions = [region(name, kind, (128, size)) for name, kind in zip(names, kinds, strict=True)]
    regions += [region(f"w{i}", "weight", (size, size)) for i in range(3)] + [region("b", "weight", (size,))]
    launches = [(0, [i, 4 + i, 7, i + 1]) for i in range(3)]
    found = program(made.program.configs, regions, launches)
    ours = tuple(replace(launch, mode="hw" if i else "sw") for i, launch in enumerate(found.launches))
    weights = {f"w{i}": rand(3 + i, size, size) / 8 for i in range(3)} | {"b": rand(2, size)}
    y = made.inputs["x"]
    for i in range(3):
        y = gelu(y @ weights[f"w{i}"] + weights["b"])
    return Case(replace(found, launches=ours, loops=(LaunchLoop(0, 1, 3),)), made.inputs, weights, {"y": y})


def transposed() -> Case:
    """Scores of heads: q·kᵀ, softmax, ·v with k read transposed and a double-buffered score frame a head and row
    block."""
    heads, t, d, block = 3, 16, 8, 4
    model = heads * d
    b = Builder("attention")
    qkv, y = b.param("qkv", (t, 3 * model)), b.param("y", (t, model), "out")
    buffer = b.pmu("qkv", (t, 3 * model), count=2)
    score = b.pmu("score", (heads, t, t), frames=2, copies=2, split=1, count=2)
    prob = b.pmu("prob", (heads, t, t), frames=2, copies=2)
    out = b.pmu("out", (t, model))
    row = 3 * model
    first = Body([TT((block, d), "f32"), TT((d, t), "f32")])
    s = first.op("mul", first.op("matmul", 0, 1, accumulate="f32"), first.constant(np.array(d**-0.5, F)))
    one = b.pcu("qk", first, [s])
    second = Body([TT((block, t), "f32")])
    two = b.pcu("softmax", second, [second.op("softmax", 0, axis=-1)])
    third = Body([TT((block, t), "f32"), TT((t, d), "f32")])
    three = b.pcu("pv", third, [third.op("matmul", 0, 1, accumulate="f32")])
    load, store = b.agcu("load", qkv), b.agcu("store", y)
    b.flow(load, buffer, (t, row), from_=identity((t, row)), to=identity((t, row)))
    # denoted tensors have a leading dim of heads that tiles drop: heads are columns of the buffer
    per_row = [(heads, 1, d), (t // block, 0, block)]
    b.flow(buffer, one, (block, d), per_row, from_=View(0, (row, 1)))
    b.flow(buffer, one, (d, t), [(heads, 0, d), (t // block, -1, 0)], from_=View(model, (1, row)))
    heads_rows = [(heads, 0, t), (t // block, 0, block)]
    flat = View(0, (t, 1))
    b.flow(one, score, (block, t), heads_rows, to=flat)
    b.flow(score, two, (block, t), heads_rows, from_=flat)
    b.flow(two, prob, (block, t), heads_rows, to=flat)
    b.flow(prob, three, (block, t), heads_rows, from_=flat)
    b.flow(buffer, three, (t, d), [(heads, 1, d), (t // block, -1, 0)], from_=View(2 * model, (row, 1)))
    b.flow(three, out, (block, d), per_row, to=identity((t, model)))
    b.flow(out, store, (t, model), from_=identity((t, model)), to=identity((t, model)))
    made = program([b.config()], [region("qkv", "input", (t, row)), region("y", "output", (t, model))], [(0, [0, 1])])
    x = rand(3, t, row)
    q, k, v = x.reshape(t, 3, heads, d).transpose(1, 2, 0, 3)
    e = np.exp((z := q @ k.swapaxes(1, 2) * F(d**-0.5)) - z.max(-1, keepdims=True))
    return Case(made, {"qkv": x}, {}, {"y": ((e / e.sum(-1, keepdims=True)) @ v).transpose(1, 0, 2).reshape(t, model)})


def batched_heads() -> Case:
    """The same attention with tiles that keep the head as a dim of size 1."""
    heads, t, d, block = 3, 16, 8, 4
    model, row = heads * d, 3 * heads * d
    b = Builder("attention")
    qkv, y = b.param("qkv", (t, row)), b.param("y", (t, model), "out")
    buffer = b.pmu("qkv", (t, row), count=2)
    score = b.pmu("score", (heads, t, t), frames=1, copies=2, split=1, count=2)
    out = b.pmu("out", (t, model))
    first = Body([TT((1, block, d), "f32"), TT((1, d, t), "f32")])
    one = b.pcu("qk", first, [first.op("matmul", 0, 1, accumulate="f32")])
    third = Body([TT((1, block, t), "f32"), TT((1, t, d), "f32")])
    three = b.pcu("pv", third, [third.op("matmul", third.op("softmax", 0, axis=-1), 1, accumulate="f32")])
    load, store = b.agcu("load", qkv), b.agcu("store", y)
    loops = [(heads, 0, 1), (t // block, 1, block)]
    repeat = [(heads, 0, 1), (t // block, -1, 0)]
    b.flow(load, buffer, (t, row), from_=identity((t, row)), to=identity((t, row)))
    b.flow(buffer, one, (1, block, d), loops, from_=View(0, (d, row, 1)))
    b.flow(buffer, one, (1, d, t), repeat, from_=View(model, (d, 1, row)))
    b.flow(one, score, (1, block, t), loops, to=identity((heads, t, t)))
    b.flow(score, three, (1, block, t), loops, from_=identity((heads, t, t)))
    b.flow(buffer, three, (1, t, d), repeat, from_=View(2 * model, (d, row, 1)))
    b.flow(three, out, (1, block, d), loops, to=View(0, (d, model, 1)))
    b.flow(out, store, (t, model), from_=identity((t, model)), to=identity((t, model)))
    made = program([b.config()], [region("qkv", "input", (t, row)), region("y", "output", (t, model))], [(0, [0, 1])])
    x = rand(3, t, row)
    q, k, v = x.reshape(t, 3, heads, d).transpose(1, 2, 0, 3)
    e = np.exp((z := q @ k.swapaxes(1, 2)) - z.max(-1, keepdims=True))
    return Case(made, {"qkv": x}, {}, {"y": ((e / e.sum(-1, keepdims=True)) @ v).transpose(1, 0, 2).reshape(t, model)})


def padded_conv() -> Case:
    """A 3×3 convolution of stride 2 whose input sits inside a buffer with margins of zeros; rows come in windows."""
    c, o, n = 4, 6, 8
    b = Builder("conv")
    x, w, y = b.param("x", (1, c, n, n)), b.param("w", (o, c, 3, 3)), b.param("y", (1, o, n // 2, n // 2), "out")
    pad = n + 2
    padded = (1, c, pad, pad)
    mx = b.pmu("mx", padded, split=1, count=2)
    mw, my = b.pmu("mw", (o, c, 3, 3), count=2), b.pmu("my", (1, o, n // 2, n // 2))
    body = Body([TT((1, c, 3, pad), "f32"), TT((o // 2, c, 3, 3), "f32")])
    conv = body.op("conv", 0, 1, strides=(2, 2), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1, accumulate="f32")
    dim = body.types[conv].shape[3]
    out = b.pcu("conv", body, [body.op("relu", conv)], 2)
    load_x, load_w, store = b.agcu("load", x), b.agcu("load", w), b.agcu("store", y)
    strides = row_major(padded)
    b.flow(load_x, mx, (1, c, n, n), from_=identity((1, c, n, n)), to=View(pad + 1, strides))
    b.flow(load_w, mw, (o, c, 3, 3), from_=identity((o, c, 3, 3)), to=identity((o, c, 3, 3)))
    b.flow(mx, out, (1, c, 3, pad), [(n // 2, 2, 2)], [(2, -1, 0)], from_=identity(padded))
    b.flow(mw, out, (o // 2, c, 3, 3), [(n // 2, -1, 0)], [(2, 0, o // 2)], from_=identity((o, c, 3, 3)))
    b.flow(out, my, (1, o // 2, 1, dim), [(n // 2, 2, 1)], [(2, 1, o // 2)], to=identity((1, o, n // 2, n // 2)))
    whole = (1, o, n // 2, n // 2)
    b.flow(my, store, whole, from_=identity(whole), to=identity(whole))
    made = program(
        [b.config()],
        [region("x", "input", (1, c, n, n)), region("w", "weight", (o, c, 3, 3)), region("y", "output", whole)],
        [(0, [0, 1, 2])],
    )
    from headrace.dialects.tensor.meaning import evaluate

    inputs, weights = {"x": rand(4, 1, c, n, n)}, {"w": rand(5, o, c, 3, 3)}
    attrs: Mapping[str, Any] = {
        "strides": (2, 2),
        "pads": (1, 1, 1, 1),
        "dilations": (1, 1),
        "groups": 1,
        "accumulate": "f32",
    }
    (z,) = evaluate("tensor.conv", attrs, inputs["x"], weights["w"])
    return Case(made, inputs, weights, {"y": np.maximum(z, 0)[:, :, : n // 2, : n // 2]})


def gathered() -> Case:
    """Rows of a table by index, plus one row of another."""
    v, d, n = 10, 8, 4
    b = Builder("embed")
    ids, table, pos, y = (b.param("ids", (n, 1), dtype="i64"), b.param("table", (v, d)), b.param("pos", (d,)),
                          b.param("y", (n, 1, d), "out"))  # fmt: skip
    buffer = b.pmu("rows", (n, 1, d))
    load, take, load_pos, store = b.agcu("load", ids), b.agcu("gather", table), b.agcu("load", pos), b.agcu("store", y)
    body = Body([TT((1, 1, d), "f32"), TT((d,), "f32")])
    add = b.pcu("add", body, [body.op("add", 0, 1)])
    b.flow(load, take, (1, 1), [(n, 0, 1)], from_=identity((n, 1)), dtype="i64")
    b.flow(take, buffer, (1, 1, d), [(n, 0, 1)], to=identity((n, 1, d)))
    b.flow(buffer, add, (1, 1, d), [(n, 0, 1)], from_=identity((n, 1, d)))
    b.flow(load_pos, add, (d,), [(n, -1, 0)], from_=identity((d,)))
    b.flow(add, store, (1, 1, d), [(n, 0, 1)], to=identity((n, 1, d)))
    made = program(
        [b.config()],
        [region("ids", "input", (n, 1), "i64"), region("table", "weight", (v, d)), region("pos", "weight", (d,)),
         region("y", "output", (n, 1, d))],
        [(0, [0, 1, 2, 3])],
    )  # fmt: skip
    weights = {"table": rand(6, v, d), "pos": rand(7, d)}
    inputs = {"ids": np.array([[3], [0], [-1], [7]], np.int64)}
    return Case(made, inputs, weights, {"y": weights["table"][inputs["ids"]] + weights["pos"]})


def concat() -> Case:
    """Two writers fill one buffer, whose softmax is stored; then a second launch of the same config on other
    regions."""
    n, a, c = 6, 5, 3
    b = Builder("concat")
    x, z, y = b.param("x", (n, a)), b.param("z", (n, c)), b.param("y", (n, a + c), "out")
    buffer = b.pmu("joined", (n, a + c), frames=1, copies=2)
    neg = Body([TT((1, c), "f32")])
    minus = b.pcu("neg", neg, [neg.op("neg", 0)])
    body = Body([TT((1, a + c), "f32")])
    soft = b.pcu("softmax", body, [body.op("softmax", 0, axis=-1)])
    load_x, load_z, store = b.agcu("load", x), b.agcu("load", z), b.agcu("store", y)
    rows = [(n, 0, 1)]
    whole = row_major((n, a + c))
    b.flow(load_x, buffer, (1, a), rows, from_=identity((n, a)), to=View(0, whole))
    b.flow(load_z, minus, (1, c), rows, from_=identity((n, c)))
    b.flow(minus, buffer, (1, c), rows, to=View(a, whole))
    b.flow(buffer, soft, (1, a + c), rows, from_=identity((n, a + c)))
    b.flow(soft, store, (1, a + c), rows, to=identity((n, a + c)))
    regions = [region("x", "input", (n, a)), region("z", "input", (2 * n, c)), region("y", "output", (n, a + c)),
               region("y2", "output", (n, a + c))]  # fmt: skip
    made = program([b.config()], regions, [(0, [0, 1, 2]), (0, [0, (1, n * c), 3])])
    inputs = {"x": rand(8, n, a), "z": rand(9, 2 * n, c)}

    def soft_of(part: Array) -> Array:
        e = np.exp((k := np.concatenate([inputs["x"], -part], 1)) - k.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return Case(made, inputs, {}, {"y": soft_of(inputs["z"][:n]), "y2": soft_of(inputs["z"][n:])})


def cache() -> Case:
    """A state whose rows are overwritten in place at a given place, after the launch has read the old contents."""
    t, d = 8, 4
    b = Builder("cache")
    old, new, at, state, y = (b.param("old", (t, d)), b.param("new", (1, d)), b.param("at", (1,), dtype="i64"),
                              b.param("state", (t, d), "inout"), b.param("y", (d,), "out"))  # fmt: skip
    body = Body([TT((t, d), "f32")])
    total = b.pcu("sum", body, [body.op("reduce_sum", 0, axes=(0,), keepdims=False)])
    load, load_new, load_at, write, store = (b.agcu("load", old), b.agcu("load", new), b.agcu("load", at),
                                             b.agcu("scatter", state), b.agcu("store", y))  # fmt: skip
    b.flow(load_at, write, (1,), from_=identity((1,)), dtype="i64")
    b.flow(load_new, write, (1, d), from_=identity((1, d)))
    b.flow(load, total, (t, d), from_=identity((t, d)))
    b.flow(total, store, (d,), to=identity((d,)))
    regions = [region("cache", "state", (t, d)), region("new", "input", (1, d)), region("at", "input", (1,), "i64"),
               region("y", "output", (d,))]  # fmt: skip
    made = program(
        [b.config()],
        regions,
        [(0, [0, 1, 2, 0, 3])],
        [("cache", "cache_out")],
        [Port("cache_out", TT((t, d), "f32"), 0)],
    )
    past, row = rand(10, t, d), rand(11, 1, d)
    present = past.copy()
    present[5] = row
    inputs = {"cache": past, "new": row, "at": np.array([5], np.int64)}
    return Case(made, inputs, {}, {"y": past.sum(0), "cache_out": present})


CASES: dict[str, Callable[[], Case]] = {
    f.__name__: f for f in (ffn, looped, transposed, batched_heads, padded_conv, gathered, concat, cache)
}
