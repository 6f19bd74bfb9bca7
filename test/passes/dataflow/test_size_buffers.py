"""Buffers hold what is on its way between sockets, so that collectives of tiles follow each other."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from headrace.backend.encode import encode
from headrace.compiler import lower
from headrace.dialects.dataflow.ops import BufferOp, StageOp
from headrace.dialects.machine.device import load_device
from headrace.runtime.timing import time_program
from headrace.tools.opt import context, parse

SUMMED = """
builtin.module attributes {tensor.mesh = {tp = 8 : i64}} {
func.func @main(%x : tensor<2048x64xbf16>, %w : tensor<64x64xbf16>) -> tensor<2048x64xbf16> {
  %0 = tensor.matmul %x, %w : tensor<2048x64xbf16>, tensor<64x64xbf16> -> tensor<2048x64xbf16>
  %1 = tensor.all_reduce %0 {axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>}
    : tensor<2048x64xbf16> -> tensor<2048x64xbf16>
  %2 = tensor.softmax %1 {axis = -1 : i64} : tensor<2048x64xbf16> -> tensor<2048x64xbf16>
  func.return %2 : tensor<2048x64xbf16>
}
}
"""


def summed() -> ModuleOp:
    module, _ = parse(context(), SUMMED, "summed.mlir")
    return module


def copies(latency: float) -> dict[str, int]:
    """Copies of each buffer by the op that fills it."""
    device = load_device("sn50").with_values(sockets__latency=latency)
    module = summed()
    lower(module, device, stop="dataflow")
    found: dict[str, int] = {}
    for op in module.walk():
        if isinstance(op, BufferOp) and isinstance(stage := op.ins[0].owner, StageOp):
            found[stage.sym.data] = op.copies.value.data
    return found


def test_a_buffer_behind_a_collective_holds_what_is_on_its_way() -> None:
    near, far = copies(0.0), copies(4e-6)
    grown = {name for name in near if far[name] > near[name]}
    assert len(grown) == 1
    assert all("reduce" in name for name in grown)


def test_collectives_of_tiles_do_not_wait_for_each_other() -> None:
    """32 tiles that each wait microseconds for their messages take little more than one of them."""
    module = summed()
    lower(module, "sn50")
    timing = time_program(encode(module))
    one = 2.0e-6 * timing.clock
    assert timing.bounds["peer"] < 6 * one
