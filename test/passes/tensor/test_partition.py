"""Programs over several sockets give what they give on one: each socket of a mesh is run, what they return joined."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from headrace.compiler import lower, weight_store, with_device
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.journal import Journal, recording
from headrace.dialects.support.weights import from_arrays
from headrace.dialects.tensor.base import tt
from headrace.dialects.tensor.interpreter import Interpreter
from headrace.dialects.tensor.meaning.collective import on_each
from headrace.dialects.tensor.program import entry, mesh_of, signature
from headrace.dialects.tensor.shapes import TT
from headrace.frontends.decoder import LLAMA_3_1_8B, TINY, TINY_MOE, DecoderConfig, build_decoder
from headrace.passes.analysis.sharding import Form, Mesh, Step, joined, spread, steps
from headrace.passes.tensor import partition
from headrace.passes.tensor.partition import PartitionPass
from headrace.tools.fuzz import disagreement, random_program
from headrace.tools.opt import context, parse

Array = Any


def partitioned(module: ModuleOp, mesh: str) -> ModuleOp:
    """The program of one socket; the module after phase tensor otherwise."""
    assert PartitionPass(mesh=mesh).run(context(), module)
    module.verify()
    return module


def place(mesh: Mapping[str, int], dims: Any, shape: tuple[int, ...], socket: int) -> tuple[slice, ...]:
    """Where the block of a socket is; `shape` is that of the block."""
    at: dict[str, int] = {}
    for axis in reversed(mesh):
        at[axis], socket = socket % mesh[axis], socket // mesh[axis]
    found: list[slice] = []
    for size, axes in zip(shape, dims, strict=True):
        number = 0
        for axis in axes:
            number = number * mesh[axis] + at[axis]
        found.append(slice(number * size, (number + 1) * size))
    return tuple(found)


def run(module: ModuleOp, store: Any, inputs: dict[str, Array], like: dict[str, Array]) -> dict[str, Array]:
    """What all sockets together return."""
    main, mesh = entry(module), mesh_of(module)
    told = signature(main)
    blocks = {n: tt(a).shape for n, a in zip(told.inputs, main.body.block.args, strict=True)}

    def dims(name: str, rank: int) -> Any:
        return told.shardings.get(name, ((),) * rank)

    def one(socket: int) -> dict[str, Array]:
        mine = {n: x[place(mesh, dims(n, x.ndim), blocks[n], socket)] for n, x in inputs.items()}
        return Interpreter(module, store).run("main", mine)

    parts = on_each(int(np.prod([*mesh.values()])), one)
    found = {name: np.full_like(x, 7) for name, x in like.items()}
    for socket, part in enumerate(parts):
        for name, x in part.items():
            found[name][place(mesh, dims(name, x.ndim), x.shape, socket)] = x
    return found


def agrees(module: ModuleOp, store: Any, mesh: str, inputs: dict[str, Array]) -> ModuleOp:
    """The program of one socket, which gives what the program gave."""
    lower(module, "sn40l", stop="tensor")
    before = Interpreter(module, store).run("main", inputs)
    partitioned(module, mesh)
    after = run(module, store, inputs, before)
    for name, x in before.items():
        np.testing.assert_allclose(after[name], x, rtol=1e-5, atol=1e-5, err_msg=name)
    return module


def random_inputs(module: ModuleOp, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    main = entry(module)
    found: dict[str, Array] = {}
    for name, arg in zip(signature(main).inputs, main.body.block.args, strict=True):
        shape, dtype = tt(arg)
        ints = dtype.startswith("i")
        found[name] = (
            rng.integers(0, 8, shape).astype(dtype.replace("i", "int"))
            if ints
            else rng.standard_normal(shape).astype(np.float32)
        )
    return found


def counts(module: ModuleOp) -> Counter[str]:
    """How many collectives of each kind the functions of a module have."""
    names = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    return Counter(name for op in module.walk() for name in names if op.name == f"tensor.{name}")


@pytest.mark.parametrize("mode", ["prefill", "decode"])
@pytest.mark.parametrize(
    ("config", "mesh", "batch"),
    [
        (TINY, "tp=2", 1),
        (TINY, "tp=4", 2),
        (TINY, "tp=8", 1),
        (TINY, "dp=2", 2),
        (TINY, "dp=2,tp=2", 4),
        (TINY_MOE, "tp=2", 1),
        (TINY_MOE, "tp=4", 2),
        (TINY_MOE, "tp=8", 1),
        (TINY_MOE, "dp=2,tp=2", 2),
    ],
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_decoders_agree(config: DecoderConfig, mesh: str, batch: int, mode: Any) -> None:
    found = build_decoder(config, mode, batch=batch, tokens=6, context=8, seed=1)
    inputs = random_inputs(found.module)
    if mode == "decode":
        inputs["position"] = np.array([5], np.int32)
    agrees(found.module, found.store, mesh, inputs)


@pytest.mark.parametrize("dispatch", ["dense", "indexed"])
@pytest.mark.parametrize("mode", ["prefill", "decode"])
@pytest.mark.parametrize("mesh", ["ep=2", "ep=4", "ep=2,tp=2", "dp=2,ep=2"])
def test_experts_agree(mesh: str, mode: Any, dispatch: Any) -> None:
    """Each socket has some of the experts. Where all are computed it computes its own; where the chosen ones' weights
    are taken by index it takes from its own, and what others have of the rest is no part of the sum."""
    found = build_decoder(TINY_MOE, mode, batch=2, tokens=4, context=8, seed=2, dispatch=dispatch)
    module = agrees(found.module, found.store, mesh, random_inputs(found.module))
    layer = next(op for op in module.body.block.ops if isinstance(op, FuncOp) and op.sym_name.data == "layer")
    experts = [tt(arg).shape[0] for arg in layer.body.block.args if len(tt(arg).shape) == 3 and 32 in tt(arg).shape]
    assert len(experts) >= 3 and max(experts) <= 4 // mesh_of(module)["ep"]


@pytest.mark.parametrize("norm", ["head", "full"])
@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_norms_of_queries_agree(norm: Any, mode: Any) -> None:
    """A norm over all heads where heads are cut sums up the squares of all sockets."""
    config = DecoderConfig("normed", 2, 32, 4, 4, 8, intermediate=48, vocab=64, qk_norm=norm)
    found = build_decoder(config, mode, batch=1, tokens=6, context=8, seed=3)
    agrees(found.module, found.store, "tp=4", random_inputs(found.module))


def test_a_layer_has_two_sums_and_is_there_once() -> None:
    """Queries, keys, values, gate and up are cut by columns, the products behind them by rows."""
    found = build_decoder(LLAMA_3_1_8B, "decode", context=64, dtype="bf16")
    lower(found.module, "sn40l", stop="tensor")
    module = partitioned(found.module, "tp=8")
    functions = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp)}
    assert list(functions) == ["main", "layer"]
    layer = [op.name for op in functions["layer"].body.block.ops]
    assert layer.count("tensor.all_reduce") == 2
    assert counts(module) == {"all_reduce": 2, "all_gather": 1}, "the other is behind the embedding"
    told = signature(functions["main"])
    assert told.shardings["past.3.key"] == ((), (), ("tp",), ())
    assert told.shardings["logits"] == ((), ("tp",))


def test_fewer_heads_than_sockets_are_cut_along_a_factor() -> None:
    """Eight heads of keys over sixteen sockets: the same on pairs; queries are cut along all."""
    found = build_decoder(LLAMA_3_1_8B, "decode", context=64, dtype="bf16")
    lower(found.module, "sn40l", stop="tensor")
    module = partitioned(found.module, "tp=16")
    assert mesh_of(module) == {"tp.0": 8, "tp.1": 2}
    told = signature(entry(module))
    assert told.shardings["past.0.key"] == ((), (), ("tp.0",), ())
    layer = next(op for op in module.body.block.ops if isinstance(op, FuncOp) and op.sym_name.data == "layer")
    assert sum(1 for op in layer.body.block.ops if op.name.startswith("tensor.all_")) in (2, 3)
    assert (4096, 256) in [tt(arg).shape for arg in layer.body.block.args], "queries of two heads"


def test_cost_grows_with_distinct_layers_only() -> None:
    """A layer is planned once however often it is called: what is planned and written is as long."""

    def size(layers: int) -> tuple[int, int]:
        config = DecoderConfig("deep", layers, 32, 4, 2, 8, intermediate=48, vocab=64)
        found = build_decoder(config, "decode", context=8)
        lower(found.module, "sn40l", stop="tensor")
        partitioned(found.module, "tp=2")
        functions = [op for op in found.module.body.block.ops if isinstance(op, FuncOp)]
        return len(functions), sum(1 for op in functions[1].body.block.ops)

    assert size(2) == size(12)


def program(text: str) -> ModuleOp:
    """A module of functions on the default device."""
    head = 'builtin.module attributes {machine.device = #machine.device<"sn40l">} {\n'
    return parse(context(), head + text + "\n}", "test")[0]


def store_of(module: ModuleOp, seed: int = 0) -> Any:
    return weight_store(f"random:{seed}", module)


ATTENTION = """
func.func @main(%x : tensor<6x32xf32> {tensor.name = "x"}) -> tensor<6x32xf32> {
  %wq = tensor.weight "q" : tensor<32x32xf32>
  %wk = tensor.weight "k" : tensor<32x16xf32>
  %wv = tensor.weight "v" : tensor<32x16xf32>
  %wo = tensor.weight "o" : tensor<32x32xf32>
  %q = tensor.matmul %x, %wq : tensor<6x32xf32>, tensor<32x32xf32> -> tensor<6x32xf32>
  %k = tensor.matmul %x, %wk : tensor<6x32xf32>, tensor<32x16xf32> -> tensor<6x16xf32>
  %v = tensor.matmul %x, %wv : tensor<6x32xf32>, tensor<32x16xf32> -> tensor<6x16xf32>
  %q4 = tensor.reshape %q {shape = array<i64: 6, 2, 2, 8>} : tensor<6x32xf32> -> tensor<6x2x2x8xf32>
  %qt = tensor.transpose %q4 {perm = array<i64: 1, 2, 0, 3>} : tensor<6x2x2x8xf32> -> tensor<2x2x6x8xf32>
  %k4 = tensor.reshape %k {shape = array<i64: 6, 2, 1, 8>} : tensor<6x16xf32> -> tensor<6x2x1x8xf32>
  %kt = tensor.transpose %k4 {perm = array<i64: 1, 2, 0, 3>} : tensor<6x2x1x8xf32> -> tensor<2x1x6x8xf32>
  %v4 = tensor.reshape %v {shape = array<i64: 6, 2, 1, 8>} : tensor<6x16xf32> -> tensor<6x2x1x8xf32>
  %vt = tensor.transpose %v4 {perm = array<i64: 1, 2, 0, 3>} : tensor<6x2x1x8xf32> -> tensor<2x1x6x8xf32>
  %a = tensor.attention %qt, %kt, %vt {causal = true}
    : tensor<2x2x6x8xf32>, tensor<2x1x6x8xf32>, tensor<2x1x6x8xf32> -> tensor<2x2x6x8xf32>
  %at = tensor.transpose %a {perm = array<i64: 2, 0, 1, 3>} : tensor<2x2x6x8xf32> -> tensor<6x2x2x8xf32>
  %j = tensor.reshape %at {shape = array<i64: 6, 32>} : tensor<6x2x2x8xf32> -> tensor<6x32xf32>
  %y = tensor.matmul %j, %wo : tensor<6x32xf32>, tensor<32x32xf32> -> tensor<6x32xf32>
  return %y : tensor<6x32xf32>
}
"""


@pytest.mark.parametrize("mesh", ["tp=2", "tp=4", "tp=8"])
def test_attention_of_shared_heads_agrees(mesh: str) -> None:
    module = program(ATTENTION)
    agrees(module, store_of(module), mesh, random_inputs(module))


CONVOLUTIONS = """
func.func @main(%x : tensor<4x2x8x8xf32> {tensor.name = "x"}) -> tensor<4x5xf32> {
  %f = tensor.weight "f" : tensor<8x2x3x3xf32>
  %b = tensor.weight "b" : tensor<8xf32>
  %g = tensor.weight "g" : tensor<4x8x3x3xf32>
  %w = tensor.weight "w" : tensor<64x5xf32>
  %scale = tensor.weight "s" : tensor<4xf32>
  %1 = tensor.conv %x, %f, %b {pads = array<i64: 1, 1, 1, 1>}
    : tensor<4x2x8x8xf32>, tensor<8x2x3x3xf32>, tensor<8xf32> -> tensor<4x8x8x8xf32>
  %2 = tensor.relu %1 : tensor<4x8x8x8xf32> -> tensor<4x8x8x8xf32>
  %3 = tensor.conv %2, %g {pads = array<i64: 1, 1, 1, 1>}
    : tensor<4x8x8x8xf32>, tensor<4x8x3x3xf32> -> tensor<4x4x8x8xf32>
  %m = tensor.reduce_mean %3 {axes = array<i64: 0, 2, 3>, keepdims = false} : tensor<4x4x8x8xf32> -> tensor<4xf32>
  %mr = tensor.reshape %m {shape = array<i64: 4, 1, 1>} : tensor<4xf32> -> tensor<4x1x1xf32>
  %c = tensor.sub %3, %mr : tensor<4x4x8x8xf32>, tensor<4x1x1xf32> -> tensor<4x4x8x8xf32>
  %q = tensor.mul %c, %c : tensor<4x4x8x8xf32>, tensor<4x4x8x8xf32> -> tensor<4x4x8x8xf32>
  %v = tensor.reduce_mean %q {axes = array<i64: 0, 2, 3>, keepdims = false} : tensor<4x4x8x8xf32> -> tensor<4xf32>
  %n = tensor.batch_norm %3, %scale, %scale, %m, %v
    : tensor<4x4x8x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<4x4x8x8xf32>
  %p = tensor.max_pool %n {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>}
    : tensor<4x4x8x8xf32> -> tensor<4x4x4x4xf32>
  %r = tensor.reshape %p {shape = array<i64: 4, 64>} : tensor<4x4x4x4xf32> -> tensor<4x64xf32>
  %y = tensor.matmul %r, %w : tensor<4x64xf32>, tensor<64x5xf32> -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}
"""


@pytest.mark.parametrize("mesh", ["dp=2", "dp=4", "tp=2", "dp=2,tp=4"])
def test_convolutions_and_statistics_of_a_batch_agree(mesh: str) -> None:
    """Mean and variance are of the whole batch, wherever its parts are."""
    module = program(CONVOLUTIONS)
    module = agrees(module, store_of(module), mesh, random_inputs(module))
    if mesh == "dp=2":
        assert counts(module) == {"all_reduce": 2}, "one for the mean, one for the variance"


TRAINING = """
func.func @main(
    %x : tensor<8x6xf32> {tensor.name = "x"}, %t : tensor<8x4xf32> {tensor.name = "t"},
    %w : tensor<6x16xf32> {tensor.name = "w"}, %u : tensor<16x4xf32> {tensor.name = "u"},
    %m : tensor<16x4xf32> {tensor.name = "m"}
) -> (tensor<f32>, tensor<6x16xf32>, tensor<16x4xf32>, tensor<16x4xf32>) attributes {
    tensor.result_names = ["loss", "w_new", "u_new", "m_new"],
    tensor.states = [["w", "w_new"], ["u", "u_new"], ["m", "m_new"]]
} {
  %rate = tensor.constant dense<0.1> : tensor<f32>
  %decay = tensor.constant dense<0.9> : tensor<f32>
  %zero = tensor.constant dense<0.0> : tensor<f32>
  %a = tensor.matmul %x, %w : tensor<8x6xf32>, tensor<6x16xf32> -> tensor<8x16xf32>
  %h = tensor.relu %a : tensor<8x16xf32> -> tensor<8x16xf32>
  %y = tensor.matmul %h, %u : tensor<8x16xf32>, tensor<16x4xf32> -> tensor<8x4xf32>
  %d = tensor.sub %y, %t : tensor<8x4xf32>, tensor<8x4xf32> -> tensor<8x4xf32>
  %s = tensor.mul %d, %d : tensor<8x4xf32>, tensor<8x4xf32> -> tensor<8x4xf32>
  %loss = tensor.reduce_mean %s {axes = array<i64: 0, 1>, keepdims = false} : tensor<8x4xf32> -> tensor<f32>
  %ht = tensor.transpose %h {perm = array<i64: 1, 0>} : tensor<8x16xf32> -> tensor<16x8xf32>
  %gu = tensor.matmul %ht, %d : tensor<16x8xf32>, tensor<8x4xf32> -> tensor<16x4xf32>
  %ut = tensor.transpose %u {perm = array<i64: 1, 0>} : tensor<16x4xf32> -> tensor<4x16xf32>
  %dh = tensor.matmul %d, %ut : tensor<8x4xf32>, tensor<4x16xf32> -> tensor<8x16xf32>
  %on = tensor.greater %a, %zero : tensor<8x16xf32>, tensor<f32> -> tensor<8x16xi1>
  %da = tensor.select %on, %dh, %zero : tensor<8x16xi1>, tensor<8x16xf32>, tensor<f32> -> tensor<8x16xf32>
  %xt = tensor.transpose %x {perm = array<i64: 1, 0>} : tensor<8x6xf32> -> tensor<6x8xf32>
  %gw = tensor.matmul %xt, %da : tensor<6x8xf32>, tensor<8x16xf32> -> tensor<6x16xf32>
  %gws = tensor.mul %gw, %rate : tensor<6x16xf32>, tensor<f32> -> tensor<6x16xf32>
  %wn = tensor.sub %w, %gws : tensor<6x16xf32>, tensor<6x16xf32> -> tensor<6x16xf32>
  %md = tensor.mul %m, %decay : tensor<16x4xf32>, tensor<f32> -> tensor<16x4xf32>
  %mn = tensor.add %md, %gu : tensor<16x4xf32>, tensor<16x4xf32> -> tensor<16x4xf32>
  %ms = tensor.mul %mn, %rate : tensor<16x4xf32>, tensor<f32> -> tensor<16x4xf32>
  %un = tensor.sub %u, %ms : tensor<16x4xf32>, tensor<16x4xf32> -> tensor<16x4xf32>
  return %loss, %wn, %un, %mn : tensor<f32>, tensor<6x16xf32>, tensor<16x4xf32>, tensor<16x4xf32>
}
"""


@pytest.mark.parametrize("mesh", ["dp=2", "dp=8", "tp=2", "tp=4", "dp=2,tp=2"])
def test_training_step_agrees(mesh: str) -> None:
    """Gradients are summed up over the batch's parts; weights, which are states here, are cut as any."""
    module = agrees(program(TRAINING), None, mesh, random_inputs(program(TRAINING)))
    if mesh == "dp=2":
        assert counts(module) == {"all_reduce": 3}, "two gradients and the loss"
        told = signature(entry(module)).shardings
        assert told["x"] == (("dp",), ()) and "w" not in told


def test_a_bias_is_added_once() -> None:
    """What is to be combined is so before a bias is added to it."""
    module = program("""
func.func @main(%x : tensor<2x4x5xf32> {tensor.name = "x"}) -> tensor<2x3x5xf32> {
  %f = tensor.weight "f" : tensor<8x4x1xf32>
  %g = tensor.weight "g" : tensor<2x8x1xf32>
  %h = tensor.weight "h" : tensor<3x2x1xf32>
  %b = tensor.weight "b" : tensor<3xf32>
  %1 = tensor.conv %x, %f : tensor<2x4x5xf32>, tensor<8x4x1xf32> -> tensor<2x8x5xf32>
  %2 = tensor.conv %1, %g : tensor<2x8x5xf32>, tensor<2x8x1xf32> -> tensor<2x2x5xf32>
  %3 = tensor.conv %2, %h, %b : tensor<2x2x5xf32>, tensor<3x2x1xf32>, tensor<3xf32> -> tensor<2x3x5xf32>
  return %3 : tensor<2x3x5xf32>
}""")
    agrees(module, store_of(module), "tp=2", random_inputs(module))


@pytest.mark.parametrize(
    "last",
    [
        "tensor.div %y, %three : tensor<2x4xi32>, tensor<i32> -> tensor<2x4xi32>",
        "tensor.reduce_mean %y {axes = array<i64: 0, 1>} : tensor<2x4xi32> -> tensor<1x1xi32>",
    ],
    ids=["div", "mean"],
)
def test_integers_are_divided_when_they_are_summed_up(last: str) -> None:
    """Quotients and means of integers are truncated: those of parts do not add up."""
    type = last.rpartition(" ")[2]
    module = program(f"""
func.func @main(%x : tensor<2x4xi32> {{tensor.name = "x"}}) -> {type} {{
  %w = tensor.weight "w" : tensor<4x8xi32>
  %v = tensor.weight "v" : tensor<8x4xi32>
  %three = tensor.constant dense<3> : tensor<i32>
  %h = tensor.matmul %x, %w : tensor<2x4xi32>, tensor<4x8xi32> -> tensor<2x8xi32>
  %r = tensor.relu %h : tensor<2x8xi32> -> tensor<2x8xi32>
  %y = tensor.matmul %r, %v : tensor<2x8xi32>, tensor<8x4xi32> -> tensor<2x4xi32>
  %d = {last}
  return %d : {type}
}}""")
    rng = np.random.default_rng(0)
    store = from_arrays({"w": rng.integers(1, 9, (4, 8), np.int32), "v": rng.integers(-9, 9, (8, 4), np.int32)})
    agrees(module, store, "tp=8", {"x": rng.integers(1, 9, (2, 4), np.int32)})


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs that are cut in any way: every op comes to have operands cut along dims that it needs whole."""
    rng = random.Random(seed)

    def forms(mesh: Mesh, inputs: Mapping[str, TT]) -> dict[str, Form]:
        found: dict[str, Form] = {}
        for name, (shape, _) in inputs.items():
            cuts: list[tuple[int, ...]] = [()] * len(shape)
            for part in rng.sample(range(len(mesh.parts)), len(mesh.parts)):
                fits = [d for d, n in enumerate(shape) if n and n // mesh.size(cuts[d]) % mesh.parts[part].size == 0]
                if fits:
                    d = rng.choice(fits)
                    cuts[d] = (*cuts[d], part)
            found[name] = Form(tuple(cuts))
        return found

    monkeypatch.setattr(partition, "input_forms", forms)
    monkeypatch.setattr(partition, "refuse_unused", lambda *_: None)
    made = random_program(seed)
    module = with_device(made.module.clone(), "sn40l")
    expected = Interpreter(made.module, made.store).run("main", made.inputs)
    partitioned(module, rng.choice(["tp=2", "tp=4", "tp=6", "tp=2,dp=3", "ep=2,tp=2"]))
    assert not disagreement(expected, run(module, made.store, made.inputs, expected))


EXPERTS = """
func.func @main(%x : tensor<3x4xf32> {tensor.name = "x"}, %i : tensor<3xi32> {tensor.name = "i"})
    -> (tensor<3x8xf32>, tensor<8xf32>, tensor<3x1x8xf32>) {
  %w = tensor.weight "w" : tensor<4x4x6xf32>
  %b = tensor.weight "b" : tensor<4x1x6xf32>
  %v = tensor.weight "v" : tensor<4x6x8xf32>
  %rows = tensor.reshape %x {shape = array<i64: 3, 1, 4>} : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %wi = tensor.gather %w, %i : tensor<4x4x6xf32>, tensor<3xi32> -> tensor<3x4x6xf32>
  %bi = tensor.gather %b, %i : tensor<4x1x6xf32>, tensor<3xi32> -> tensor<3x1x6xf32>
  %vi = tensor.gather %v, %i : tensor<4x6x8xf32>, tensor<3xi32> -> tensor<3x6x8xf32>
  %h = tensor.matmul %rows, %wi : tensor<3x1x4xf32>, tensor<3x4x6xf32> -> tensor<3x1x6xf32>
  %hb = tensor.add %h, %bi : tensor<3x1x6xf32>, tensor<3x1x6xf32> -> tensor<3x1x6xf32>
  %a = tensor.sigmoid %hb : tensor<3x1x6xf32> -> tensor<3x1x6xf32>
  %y = tensor.matmul %a, %vi : tensor<3x1x6xf32>, tensor<3x6x8xf32> -> tensor<3x1x8xf32>
  %r = tensor.reshape %y {shape = array<i64: 3, 8>} : tensor<3x1x8xf32> -> tensor<3x8xf32>
  %m = tensor.reduce_max %r {axes = array<i64: 0>, keepdims = false} : tensor<3x8xf32> -> tensor<8xf32>
  return %r, %m, %y : tensor<3x8xf32>, tensor<8xf32>, tensor<3x1x8xf32>
}
"""


@pytest.mark.parametrize("mesh", ["ep=2", "ep=4", "ep=2,tp=2"])
def test_experts_with_biases_and_any_activation_agree(mesh: str) -> None:
    """What a socket has not may be anything until it is a part of something; indices may count from the back."""
    module = program(EXPERTS)
    inputs = random_inputs(module) | {"i": np.array([3, -4, 1], np.int32)}
    agrees(module, store_of(module), mesh, inputs)
    assert len([op for op in module.walk() if op.name == "tensor.socket_index"]) == 1


def test_what_is_cut_and_needed_whole_is_joined() -> None:
    """Orders along a cut dim, a running sum, an argmax: whole on every socket."""
    module = program("""
func.func @main(%x : tensor<2x8xf32> {tensor.name = "x"})
    -> (tensor<2x8xf32>, tensor<2x1xi64>, tensor<2x8xf32>, tensor<2x1xf32>) {
  %w = tensor.weight "w" : tensor<8x8xf32>
  %h = tensor.matmul %x, %w : tensor<2x8xf32>, tensor<8x8xf32> -> tensor<2x8xf32>
  %s, %i = tensor.sort %h {axis = 1 : i64} : tensor<2x8xf32> -> tensor<2x8xf32>, tensor<2x8xi64>
  %a = tensor.argmax %h {axis = 1 : i64} : tensor<2x8xf32> -> tensor<2x1xi64>
  %c = tensor.cumsum %h {axis = 1 : i64} : tensor<2x8xf32> -> tensor<2x8xf32>
  %m = tensor.reduce_max %h {axes = array<i64: 1>} : tensor<2x8xf32> -> tensor<2x1xf32>
  return %s, %a, %c, %m : tensor<2x8xf32>, tensor<2x1xi64>, tensor<2x8xf32>, tensor<2x1xf32>
}""")
    agrees(module, store_of(module), "tp=4", random_inputs(module))


def test_choices_are_told() -> None:
    module = program(ATTENTION)
    lower(module, "sn40l", stop="tensor")
    with recording(Journal()) as journal:
        partitioned(module, "tp=2")
    found = {d.chosen for d in journal.decisions}
    assert "dim 1 over tp" in found
    lost = [c for d in journal.decisions for c in d.candidates if c.reason]
    assert any(c.name == "whole on every socket" for c in lost)


@pytest.mark.parametrize(
    ("mesh", "code", "says"),
    [
        ("tp=5", "bad-mesh", "sizes that fit: 2, 4, 8, 16"),
        ("tp=10", "bad-mesh", "a factor 5 of tp=10"),
        ("tp=32", "too-many-sockets", "spans 32 sockets"),
        ("dp=4", "bad-mesh", "dp=2 or 3 or 6"),
        ("ep=2", "bad-mesh", "several experts"),
    ],
)
def test_meshes_that_do_not_fit_are_refused(mesh: str, code: str, says: str) -> None:
    module = program(ATTENTION)
    text = str(module)
    with pytest.raises(CompileError) as caught:
        PartitionPass(mesh=mesh).run(context(), module)
    assert caught.value.code == code
    assert says in str(caught.value)
    assert str(module) == text, "nothing was changed"


def test_programs_with_collectives_are_refused() -> None:
    module = program("""
func.func @main(%x : tensor<2x8xf32>) -> tensor<2x8xf32> {
  %y = tensor.all_reduce %x {axes = ["tp"], sizes = array<i64: 2>, strides = array<i64: 1>}
    : tensor<2x8xf32> -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}""")
    with pytest.raises(CompileError, match="divided among sockets already"):
        PartitionPass(mesh="tp=2").run(context(), module)


MESH = Mesh((("dp", 2), ("tp", 12)))


def test_axes_have_prime_parts() -> None:
    assert [(p.axis, p.size, p.stride) for p in MESH.parts] == [
        ("dp", 2, 12),
        ("tp", 2, 6),
        ("tp", 2, 3),
        ("tp", 3, 1),
    ]
    assert MESH.group((1, 2, 3)) == (("tp",), (12,), (1,))
    assert MESH.group((1, 3)) == (("tp", "tp"), (2, 3), (6, 1))
    assert MESH.text((1, 2)) == "4 of tp"


def test_blocks_of_several_dims_are_contiguous() -> None:
    assert spread(MESH, (1, 2, 3), (4, 6)) == ((1, 2), (3,))
    assert spread(MESH, (1, 2, 3), (8, 6)) is None, "the first dim is not cut to single indices"
    assert spread(MESH, (1, 2), (4, 6)) == ((1, 2), ())
    assert joined(MESH, ((1, 2), (3,)), (4, 6)) == (1, 2, 3)
    assert joined(MESH, ((1,), (3,)), (4, 6)) == (1,), "the second dim's cut is not of contiguous blocks"


@pytest.mark.parametrize(
    ("have", "want", "found"),
    [
        (Form(((), ())), Form(((), (1,))), [Step("socket_slice", (1,), 1)]),
        (Form(((), (1, 2))), Form(((), (1,))), [Step("all_gather", (2,), 1)]),
        (Form(((), (1,))), Form(((1,), ())), [Step("all_to_all", (1,), 0, 1)]),
        (Form(((), ()), (1,)), Form(((), ())), [Step("all_reduce", (1,))]),
        (Form(((), ()), (1,)), Form(((1,), ())), [Step("reduce_scatter", (1,), 0)]),
        (Form(((), ()), (1,)), Form(((0,), ())), [Step("socket_slice", (0,), 0), Step("all_reduce", (1,))]),
        (Form(((), (1, 2))), Form(((), (2, 1))), [Step("all_gather", (1, 2), 1), Step("socket_slice", (2, 1), 1)]),
    ],
)
def test_forms_follow_from_each_other(have: Form, want: Form, found: list[Step]) -> None:
    assert steps(have, want) == tuple(found)


def test_nothing_makes_a_value_partial() -> None:
    assert steps(Form(((), ())), Form(((), ()), (1,))) is None
