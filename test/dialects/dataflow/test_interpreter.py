"""The dataflow interpreter: tiles through real frames, deadlock with its witness, errors with model locations."""

from __future__ import annotations

import random

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Operation

from headrace.dialects.dataflow.interpreter import DataflowInterpreter, run_dataflow
from headrace.dialects.dataflow.network import Network, explain
from headrace.dialects.dataflow.ops import BufferOp, SectionOp, StageOp, views
from headrace.dialects.machine.attributes import set_device
from headrace.dialects.machine.device import load_device
from headrace.dialects.support.diagnostics import CompileError
from headrace.dialects.support.locations import Location
from headrace.dialects.tensor.interpreter import run_function
from headrace.passes.infra.manager import PassManager
from headrace.passes.infra.registry import build
from headrace.tools.fuzz import Distribution, disagreement, random_program
from headrace.tools.fuzz.nearby import Array
from headrace.tools.opt import context, parse

X = "!dataflow.stream<tensor<2xf32>, [4 on 0 by 2]>"


def module_of(text: str) -> ModuleOp:
    return parse(context(), text, "test.mlir")[0]


def section(body: str, arguments: str = "%a: tensor<8xf32>", results: str = "tensor<8xf32>") -> ModuleOp:
    """A program of one section whose body is given; it takes and gives what the section does."""
    names, types = zip(*(part.split(": ") for part in arguments.split(", ")), strict=True)
    outer = ", ".join(f"%x{i}: {t}" for i, t in enumerate(types))
    values = ", ".join(f"%x{i}" for i in range(len(types)))
    inner = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
    count = len(results.split(", "))
    made = ", ".join(f"%r{i}" for i in range(count))
    return module_of(f"""
        func.func @main({outer}) -> ({results}) {{
          {made} = dataflow.section "s"({values}) : ({", ".join(types)}) -> ({results}) {{
          ^bb0({inner}):
            {body}
          }}
          return {made} : {results}
        }}""")


def arange(n: int) -> Array:
    return np.arange(n, dtype=np.float32)


def test_fork_and_merge_go_in_turns() -> None:
    pair = "!dataflow.stream<tensor<1x2xf32>, [4 on 1 by 2, 2 on 0 by 1]>"
    one = "!dataflow.stream<tensor<1x2xf32>, [4 on 1 by 2]>"
    module = section(
        f"""%0 = dataflow.load %a at 0 [0, 1] : tensor<8xf32> -> {one}
            %1, %2 = dataflow.fork %0 : {one} -> {one}, {one}
            %3 = dataflow.stage "neg"(%2) : ({one}) -> {one} {{
            ^bb1(%t: tensor<1x2xf32>):
              %n = tensor.neg %t : tensor<1x2xf32> -> tensor<1x2xf32>
              dataflow.yield %n : tensor<1x2xf32>
            }}
            %4 = dataflow.merge %1, %3 : {one}, {one} -> {pair}
            %5 = dataflow.store (%4 at 0 [8, 1]) : ({pair}) -> tensor<2x8xf32>
            dataflow.yield %5 : tensor<2x8xf32>""",
        results="tensor<2x8xf32>",
    )
    (found,) = run_dataflow(module, [arange(8)], debug=True).values()
    np.testing.assert_array_equal(found, np.stack([arange(8), -arange(8)]))


def test_rows_are_gathered_and_replaced() -> None:
    index, rows = "!dataflow.stream<tensor<1xi64>, [3 on 0 by 1]>", "!dataflow.stream<tensor<1x2xf32>, [3 on 0 by 1]>"
    module = section(
        f"""%0 = dataflow.load %i at 0 [1] : tensor<3xi64> -> {index}
            %1 = dataflow.gather %a[%0] : tensor<4x2xf32>, {index} -> {rows}
            %2 = dataflow.load %j at 0 [1] : tensor<3xi64> -> {index}
            %3 = dataflow.scatter %a[%2] = %1 : tensor<4x2xf32>, {index}, {rows} -> tensor<4x2xf32>
            dataflow.yield %3 : tensor<4x2xf32>""",
        "%a: tensor<4x2xf32>, %i: tensor<3xi64>, %j: tensor<3xi64>",
        "tensor<4x2xf32>",
    )
    table = arange(8).reshape(4, 2)
    kept = table.copy()
    (found,) = run_dataflow(module, [table, np.array([3, -4, 1]), np.array([0, 1, 0])]).values()
    np.testing.assert_array_equal(found, table[[1, 0, 2, 3]])  # rows 3 then 1 into row 0, row 0 into row 1
    np.testing.assert_array_equal(table, kept)
    with pytest.raises(CompileError, match=r"at test\.mlir:.*index 4 at position"):
        run_dataflow(module, [table, np.array([4, 0, 0]), np.array([0, 1, 0])])


def buffered(frames: int, copies: int) -> str:
    return f"""%0 = dataflow.load %a at 0 [1] : tensor<8xf32> -> {X}
            %1 = dataflow.buffer [8] (%0 at 0 [1]) to (at 0 [1]) {{frames = {frames}, copies = {copies}}} : ({X}) -> {X}
            %2 = dataflow.store (%1 at 0 [1]) : ({X}) -> tensor<8xf32>
            dataflow.yield %2 : tensor<8xf32>"""


@pytest.mark.parametrize(("frames", "copies", "slots"), [(0, 1, (1, 8)), (1, 1, (1, 2)), (1, 3, (3, 2))])
def test_a_buffer_holds_copies_of_a_frame(
    frames: int, copies: int, slots: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is `copies` slots of one frame, and a frame lies where an earlier one lay."""
    from headrace.dialects.dataflow import interpreter

    made: list[tuple[int, ...]] = []
    original = interpreter._Memory.__init__  # pyright: ignore[reportPrivateUsage]

    def init(self: interpreter._Memory, *arguments: object) -> None:  # pyright: ignore[reportPrivateUsage]
        original(self, *arguments)  # pyright: ignore[reportArgumentType]
        made.append(self.slots.shape)

    monkeypatch.setattr(interpreter._Memory, "__init__", init)  # pyright: ignore[reportPrivateUsage]
    (found,) = run_dataflow(section(buffered(frames, copies)), [arange(8)], debug=True).values()
    np.testing.assert_array_equal(found, arange(8))
    assert made == [slots]


def test_cells_that_nobody_writes_hold_the_fill() -> None:
    whole, pair = "!dataflow.stream<tensor<6xi32>>", "!dataflow.stream<tensor<2xi32>>"
    module = section(
        f"""%0 = dataflow.load %a at 0 [1] : tensor<2xi32> -> {pair}
            %1 = dataflow.buffer [6] (%0 at 1 [3]) to (at 5 [-1]) {{fill = 7}} : ({pair}) -> {whole}
            %2 = dataflow.store (%1 at 0 [1]) : ({whole}) -> tensor<6xi32>
            dataflow.yield %2 : tensor<6xi32>""",
        "%a: tensor<2xi32>",
        "tensor<6xi32>",
    )
    for debug in (False, True):
        (found,) = run_dataflow(module, [np.array([1, 2], np.int32)], debug=debug).values()
        assert found.tolist() == [7, 2, 7, 7, 1, 7]


def test_a_buffer_may_feed_a_buffer() -> None:
    module = section(
        f"""%0 = dataflow.load %a at 0 [1] : tensor<8xf32> -> {X}
            %1 = dataflow.buffer [8] (%0 at 0 [1]) to (at 7 [-1]) : ({X}) -> {X}
            %2, %3 = dataflow.buffer [8] (%1 at 0 [1]) to (at 0 [1], at 7 [-1]) : ({X}) -> ({X}, {X})
            %4 = dataflow.store (%2 at 0 [2], %3 at 1 [2]) : ({X}, {X}) -> tensor<16xf32>
            dataflow.yield %4 : tensor<16xf32>""",
        results="tensor<16xf32>",
    )
    (found,) = run_dataflow(module, [arange(8)], debug=True).values()
    np.testing.assert_array_equal(found, np.stack([arange(8)[::-1], arange(8)], axis=1).reshape(-1))


def test_two_writers_of_one_cell_are_refused() -> None:
    one = "!dataflow.stream<tensor<1xf32>>"
    module = section(
        f"""%0 = dataflow.load %a at 0 [1] : tensor<8xf32> -> {X}
            %1 = dataflow.load %a at 0 [0] : tensor<8xf32> -> {one}
            %2 = dataflow.buffer [8] (%0 at 0 [1], %1 at 5 [1]) to (at 0 [1]) : ({X}, {one}) -> {X}
            %3 = dataflow.store (%2 at 0 [1]) : ({X}) -> tensor<8xf32>
            dataflow.yield %3 : tensor<8xf32>"""
    )
    with pytest.raises(CompileError, match=r"overlapping-writes.* at test\.mlir:7:13"):
        run_dataflow(module, [arange(8)], debug=True)


def test_a_stage_body_must_be_interpretable() -> None:
    module = section(buffered(1, 2))
    assert DataflowInterpreter(module).run("main", [arange(8)])["result0"].tolist() == arange(8).tolist()
    with pytest.raises(CompileError, match=r"0 inputs given but the program takes 1"):
        run_dataflow(module, [])


def test_functions_calls_weights_and_recipes_run_around_sections() -> None:
    module, inputs, store = random_program(1, Distribution(4, ("f32",), kinds=("layers", "matmul"), plain=True))
    expected = run_function(module, "main", inputs, store)
    pipeline = "fold-constants,outline-repeated-layers{min-ops=2 min-saved=2},convert-tensor-to-dataflow"
    PassManager(Context(), build(pipeline)).run(module)
    names = {op.name for op in module.walk()}
    assert {"func.call", "tensor.weight", "tensor.recipe", "dataflow.section"} <= names
    seen: list[str] = []

    def observe(op: Operation, arrays: tuple[Array, ...], calls: list[Location] | tuple[Location, ...]) -> None:
        if isinstance(op, StageOp):
            seen.append(f"{op.sym.data}{[a.shape for a in arrays]}")

    assert not disagreement(expected, run_dataflow(module, inputs, store, [observe]))
    assert any(text.startswith("matmul_0[(") for text in seen)


def part(module: ModuleOp) -> None:
    """Give every reader of a buffer a buffer of its own, so that paths which part have to meet again."""
    for op in [op for op in module.walk() if isinstance(op, BufferOp) and len(op.outs) > 1]:
        for out, view in zip(op.outs, views(op.out_views), strict=True):
            fill, shape = op.fill.value.data, op.buffer_type.shape
            new = BufferOp(list(op.ins), views(op.in_views), shape, [out.type], [view], fill)
            new.location = op.location
            block = op.parent_block()
            assert block is not None
            block.insert_op_before(new, op)
            out.replace_all_uses_with(new.outs[0])
        op.detach()
        op.erase()


def meeting_paths(seed: int) -> ModuleOp:
    """A program in which values part, some wait for all of a tensor, and meet again."""
    rng = random.Random(seed)
    values, lines = ["%x"], []
    for i in range(6):
        a, b = rng.choice(values), rng.choice(values)
        axes = rng.choice(("0", "1", "0, 1"))
        kept = {"0": "1x6", "1": "8x1", "0, 1": "1x1"}[axes]
        if rng.random() < 0.5:
            lines.append(f"%v{i} = tensor.add {a}, {b} : tensor<8x6xf32>, tensor<8x6xf32> -> tensor<8x6xf32>")
        else:
            lines.append(
                f"%m{i} = tensor.reduce_max {b} {{axes = array<i64: {axes}>}} : tensor<8x6xf32> -> tensor<{kept}xf32>"
            )
            lines.append(f"%v{i} = tensor.sub {a}, %m{i} : tensor<8x6xf32>, tensor<{kept}xf32> -> tensor<8x6xf32>")
        values.append(f"%v{i}")
    body = "\n".join(lines)
    return module_of(
        f"func.func @main(%x: tensor<8x6xf32>) -> tensor<8x6xf32> {{\n{body}\nreturn %v5 : tensor<8x6xf32>\n}}"
    )


def test_every_witness_of_check_deadlock_is_confirmed() -> None:
    """What is found on token counts is what happens with real tiles, and the cure that is named lets the section
    run."""
    stuck_sections = cured = 0
    inputs = {"arg0": np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)}
    for seed in range(30):
        module = meeting_paths(seed)
        expected = run_function(module, "main", inputs)
        set_device(module, load_device("sn40l"))
        PassManager(context(), build("convert-tensor-to-dataflow,tile{rows=1 chunk=64}")).run(module)
        part(module)
        PassManager(context(), build("size-buffers{copies=1}")).run(module)
        for op in module.walk():
            if isinstance(op, BufferOp):
                op.copies = IntegerAttr(min(1 + seed % 2, op.frame_count), i64)
        sections = [op for op in module.walk() if isinstance(op, SectionOp)]
        stuck = [(s, n, found) for s in sections if (found := (n := Network(s)).run()) is not None]
        if not stuck:
            assert not disagreement(expected, run_dataflow(module, inputs, debug=True)), seed
            continue
        stuck_sections += 1
        first = explain(*stuck[0])
        with pytest.raises(CompileError) as caught:
            run_dataflow(module, inputs, debug=True)
        (told,) = caught.value.diagnostics
        assert told == first, seed
        for _, network, found in stuck:
            for op, copies in network.cure(found).items():
                assert op.copies.value.data < copies <= op.frame_count
                op.copies = IntegerAttr(copies, i64)
                cured += 1
                assert Network(op.parent_op()).run({op: copies - 1}) is not None, "fewer copies would do"  # pyright: ignore
        assert not disagreement(expected, run_dataflow(module, inputs, debug=True)), seed
    assert stuck_sections >= 5
    assert cured >= 5
