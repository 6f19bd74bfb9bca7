"""Routed programs that the tests of the audit start from."""

from __future__ import annotations

from functools import cache

import workloads
from xdsl.dialects.builtin import ModuleOp

from headrace.compiler import import_model, lower
from headrace.passes.infra.manager import PassManager
from headrace.passes.infra.registry import build
from headrace.tools.opt import context, parse

DIAMOND = """
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
// Every row of @rows waits until the copy of all of them is there, so @rows holds all four.
rdu.config @c virtual ("x" in tensor<4x64xf32>, "y" out tensor<4x64xf32>) {
  rdu.agcu @load load param 0
  rdu.pmu @rows tensor<4x64xf32> split 1 frames 1 copies 4
  rdu.flow @load -> @rows carries tensor<1x64xf32> time [4 on 0 by 1] from at 0 [64, 1] to at 0 [64, 1]
  rdu.pcu @neg simd x 2 (%a: tensor<1x32xf32>) {
    %0 = tensor.neg %a : tensor<1x32xf32> -> tensor<1x32xf32>
    rdu.yield %0 : tensor<1x32xf32>
  }
  rdu.flow @rows -> @neg carries tensor<1x32xf32> time [4 on 0 by 1] space [2 on 1 by 32] from at 0 [64, 1]
  rdu.pmu @all tensor<4x64xf32> x 2 split 1
  rdu.flow @neg -> @all carries tensor<1x32xf32> time [4 on 0 by 1] space [2 on 1 by 32] to at 0 [64, 1]
  rdu.pcu @add simd x 2 (%a: tensor<1x32xf32>, %b: tensor<1x32xf32>) {
    %0 = tensor.add %a, %b : tensor<1x32xf32>, tensor<1x32xf32> -> tensor<1x32xf32>
    rdu.yield %0 : tensor<1x32xf32>
  }
  rdu.flow @rows:1 -> @add carries tensor<1x32xf32> time [4 on 0 by 1] space [2 on 1 by 32] from at 0 [64, 1]
  rdu.flow @all -> @add:1 carries tensor<1x32xf32> time [4 on 0 by 1] space [2 on 1 by 32] from at 192 [-64, 1]
  rdu.agcu @store store param 1
  rdu.flow @add -> @store carries tensor<1x32xf32> time [4 on 0 by 1] space [2 on 1 by 32] to at 0 [64, 1]
}
rdu.program @main {
  rdu.region @x input tensor<4x64xf32>
  rdu.region @z temp tensor<4x64xf32>
  rdu.region @v temp tensor<4x64xf32>
  rdu.region @y output tensor<4x64xf32>
  rdu.port input "x" tensor<4x64xf32> in @x
  rdu.port output "y" tensor<4x64xf32> in @y
  rdu.launch @c (@x, @z) sw
  rdu.launch @c (@z, @v) hw
  rdu.launch @c (@v, @y) hw
}
}
"""


SOCKETS = """
builtin.module attributes {machine.device = #machine.device<"sn50">, tensor.mesh = {dp = 2 : i64, tp = 8 : i64}} {
func.func @main(%x : tensor<64x32xf32>, %w : tensor<32x64xf32>) -> tensor<64x64xf32> {
  %0 = tensor.matmul %x, %w : tensor<64x32xf32>, tensor<32x64xf32> -> tensor<64x64xf32>
  %1 = tensor.all_reduce %0 {axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>}
    : tensor<64x64xf32> -> tensor<64x64xf32>
  %2 = tensor.permute %1 {axes = ["dp"], sizes = array<i64: 2>, strides = array<i64: 8>}
    : tensor<64x64xf32> -> tensor<64x64xf32>
  %3 = tensor.add %1, %2 : tensor<64x64xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
  func.return %3 : tensor<64x64xf32>
}
}
"""


@cache
def _diamond() -> ModuleOp:
    module, _ = parse(context(), DIAMOND, "diamond.mlir")
    PassManager(context(), build("allocate-memory,loop-launches,place,route")).run(module)
    return module


@cache
def _sockets() -> ModuleOp:
    module, _ = parse(context(), SOCKETS, "sockets.mlir")
    lower(module, "sn50")
    return module


@cache
def _workload(name: str) -> ModuleOp:
    module = import_model(workloads.small(name).model()).module
    lower(module, "sn40l")
    return module


def routed(name: str) -> ModuleOp:
    """A copy of a routed program: `diamond`, `sockets` (of a mesh), or a small workload."""
    made = {"diamond": _diamond, "sockets": _sockets}
    return (made[name]() if name in made else _workload(name)).clone()
