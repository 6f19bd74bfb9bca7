// Launches run their configs for as many inputs as the module says, and memories that hold all of their weights are kept.
// RUN: headrace-opt %s -p stream-runs --split-input-file | filecheck %s
// RUN: headrace-opt %s -p stream-runs,allocate-memory --split-input-file | filecheck %s --check-prefix=PLACED

// @ws holds its weights whole and is kept; @part holds two of its four frames, and @xs what differs from run to run.
// CHECK-LABEL: rdu.config @s0
// CHECK:         rdu.pmu @xs tensor<8x4xf32> frames 1 copies 2{{$}}
// CHECK:         rdu.pmu @ws tensor<4x4xf32> kept{{$}}
// CHECK:         rdu.pmu @part tensor<8x4xf32> frames 1 copies 2{{$}}
// CHECK-LABEL: rdu.program @main {
// CHECK-NEXT:    rdu.region @x input tensor<8x4xf32> runs 8{{$}}
// CHECK-NEXT:    rdu.region @w weight tensor<4x4xf32> key "w"{{$}}
// CHECK-NEXT:    rdu.region @v weight tensor<8x4xf32> key "v"{{$}}
// CHECK-NEXT:    rdu.region @t temp tensor<8x4xf32> runs 8{{$}}
// CHECK-NEXT:    rdu.region @y output tensor<8x4xf32> runs 8{{$}}
// CHECK:         rdu.launch @s0 (@x, @w, @v, @t) sw runs 8{{$}}
// CHECK-NEXT:    rdu.launch @s0 (@t, @w, @v, @y) hw runs 8{{$}}
// Eight tensors of 128 bytes lie one behind the other.
// PLACED:        rdu.region @x input tensor<8x4xf32> runs 8 in hbm at 192{{$}}
// PLACED:        rdu.region @t temp tensor<8x4xf32> runs 8 in hbm at 1216{{$}}
// PLACED-NEXT:   rdu.region @y output tensor<8x4xf32> runs 8 in hbm at 2240{{$}}
builtin.module attributes {machine.device = #machine.device<"sn40l">, dataflow.runs = 8 : i64} {
rdu.config @s0 virtual ("x" in tensor<8x4xf32>, "w" in tensor<4x4xf32>, "v" in tensor<8x4xf32>, "y" out tensor<8x4xf32>) {
  rdu.agcu @load_x load param 0
  rdu.pmu @xs tensor<8x4xf32> frames 1 copies 2
  rdu.flow @load_x -> @xs carries tensor<2x4xf32> time [4 on 0 by 2] from at 0 [4, 1] to at 0 [4, 1]
  rdu.agcu @load_w load param 1
  rdu.pmu @ws tensor<4x4xf32>
  rdu.flow @load_w -> @ws carries tensor<4x4xf32> from at 0 [4, 1] to at 0 [4, 1]
  rdu.agcu @load_v load param 2
  rdu.pmu @part tensor<8x4xf32> frames 1 copies 2
  rdu.flow @load_v -> @part carries tensor<2x4xf32> time [4 on 0 by 2] from at 0 [4, 1] to at 0 [4, 1]
  rdu.pcu @gemm systolic (%x: tensor<2x4xf32>, %w: tensor<4x4xf32>, %v: tensor<2x4xf32>) {
    %0 = tensor.matmul %x, %w : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    %1 = tensor.add %0, %v : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<2x4xf32>
    rdu.yield %1 : tensor<2x4xf32>
  }
  rdu.flow @xs -> @gemm carries tensor<2x4xf32> time [4 on 0 by 2] from at 0 [4, 1]
  rdu.flow @ws -> @gemm:1 carries tensor<4x4xf32> time [4 repeat] from at 0 [4, 1]
  rdu.flow @part -> @gemm:2 carries tensor<2x4xf32> time [4 on 0 by 2] from at 0 [4, 1]
  rdu.agcu @store store param 3
  rdu.flow @gemm -> @store carries tensor<2x4xf32> time [4 on 0 by 2] to at 0 [4, 1]
}
rdu.program @main {
  rdu.region @x input tensor<8x4xf32>
  rdu.region @w weight tensor<4x4xf32> key "w"
  rdu.region @v weight tensor<8x4xf32> key "v"
  rdu.region @t temp tensor<8x4xf32>
  rdu.region @y output tensor<8x4xf32>
  rdu.port input "x" tensor<8x4xf32> in @x
  rdu.port output "y" tensor<8x4xf32> in @y
  rdu.launch @s0 (@x, @w, @v, @t) sw
  rdu.launch @s0 (@t, @w, @v, @y) hw
}
}

// -----

// What one launch takes from a weight and another from a temporary is not the same in every run: it is not kept. Nor is
// what comes with something else from one generator.
// CHECK-LABEL: rdu.config @both
// CHECK:         rdu.pmu @ws tensor<4xf32>{{$}}
// CHECK-LABEL: rdu.config @fork
// CHECK:         rdu.pmu @whole tensor<8xf32>{{$}}
// CHECK:         rdu.pmu @part tensor<8xf32> frames 1 copies 2{{$}}
// CHECK-LABEL: rdu.program @main {
// CHECK:         rdu.launch @fork (@v, @z) hw runs 4{{$}}
builtin.module attributes {machine.device = #machine.device<"sn40l">, dataflow.runs = 4 : i64} {
rdu.config @both virtual ("w" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load load param 0
  rdu.pmu @ws tensor<4xf32>
  rdu.flow @load -> @ws carries tensor<4xf32> from at 0 [1] to at 0 [1]
  rdu.agcu @store store param 1
  rdu.flow @ws -> @store carries tensor<4xf32> from at 0 [1] to at 0 [1]
}
rdu.config @fork virtual ("w" in tensor<8xf32>, "y" out tensor<8xf32>) {
  rdu.agcu @load load param 0
  rdu.pmu @whole tensor<8xf32>
  rdu.pmu @part tensor<8xf32> frames 1 copies 2
  rdu.flow @load -> @whole carries tensor<2xf32> time [4 on 0 by 2] from at 0 [1] to at 0 [1]
  rdu.flow @load -> @part carries tensor<2xf32> time [4 on 0 by 2] from at 0 [1] to at 0 [1]
  rdu.pcu @add simd (%a: tensor<2xf32>, %b: tensor<2xf32>) {
    %0 = tensor.add %a, %b : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
    rdu.yield %0 : tensor<2xf32>
  }
  rdu.flow @whole -> @add carries tensor<2xf32> time [4 on 0 by 2] from at 0 [1]
  rdu.flow @part -> @add:1 carries tensor<2xf32> time [4 on 0 by 2] from at 0 [1]
  rdu.agcu @store store param 1
  rdu.flow @add -> @store carries tensor<2xf32> time [4 on 0 by 2] to at 0 [1]
}
rdu.program @main {
  rdu.region @w weight tensor<4xf32> key "w"
  rdu.region @t temp tensor<4xf32>
  rdu.region @y output tensor<4xf32>
  rdu.region @v weight tensor<8xf32> key "v"
  rdu.region @z output tensor<8xf32>
  rdu.port output "y" tensor<4xf32> in @y
  rdu.port output "z" tensor<8xf32> in @z
  rdu.launch @both (@w, @t) sw
  rdu.launch @both (@t, @y) hw
  rdu.launch @fork (@v, @z) hw
}
}

// -----

// Without the attribute the program stays as it is.
// CHECK-LABEL: rdu.program @main {
// CHECK-NEXT:    rdu.region @x input tensor<4xf32>{{$}}
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
rdu.program @main {
  rdu.region @x input tensor<4xf32>
  rdu.port output "x" tensor<4xf32> in @x
}
}
