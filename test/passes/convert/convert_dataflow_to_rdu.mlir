// Sections become configs of units and flows; functions become launches over off-chip regions.
// RUN: headrace-opt %s -p convert-dataflow-to-rdu --split-input-file | filecheck %s

builtin.module attributes {machine.device = #machine.device<"sn40l">} {
// A buffer becomes memory units, a load and a store address generators, a stage compute units that share its tile: the
// columns of the result and of the weights move over the units, the rows are the same for both. Address generators that
// are left over go to what moves most, as long as both ends can use them.
// CHECK-LABEL: rdu.config @s0 virtual ("x" in tensor<8x4xf32>, "encoder.w" in tensor<4x6xf32>, "out0" out tensor<8x6xf32>) {
// CHECK-NEXT:    rdu.agcu @load_x load param 0 x 2
// CHECK-NEXT:    rdu.pmu @buffer tensor<8x4xf32> x 2 split 1 frames 1 copies 2 banks 32
// CHECK-NEXT:    rdu.flow @load_x -> @buffer carries tensor<4x4xf32> time [2 on 0 by 4] from at 0 [4, 1] to at 0 [4, 1]
// CHECK-NEXT:    rdu.agcu @load_encoder.w load param 1
// CHECK-NEXT:    rdu.pmu @buffer.1 tensor<4x6xf32> fill 1.5
// CHECK-NEXT:    rdu.flow @load_encoder.w -> @buffer.1 carries tensor<4x6xf32> from at 0 [6, 1] to at 0 [6, 1]
// CHECK-NEXT:    rdu.pcu @gemm systolic x 2 (%[[X:.*]]: tensor<4x4xf32>, %[[W:.*]]: tensor<4x3xf32>) {
// CHECK-NEXT:      %[[Y:.*]] = tensor.matmul %[[X]], %[[W]] : tensor<4x4xf32>, tensor<4x3xf32> -> tensor<4x3xf32>
// CHECK-NEXT:      rdu.yield %[[Y]] : tensor<4x3xf32>
// CHECK-NEXT:    }
// CHECK-NEXT:    rdu.flow @buffer -> @gemm carries tensor<4x4xf32> time [2 on 0 by 4] space [2 repeat] from at 0 [4, 1]
// CHECK-NEXT:    rdu.flow @buffer.1 -> @gemm:1 carries tensor<4x3xf32> time [2 repeat] space [2 on 1 by 3] from at 0 [6, 1]
// CHECK-NEXT:    rdu.agcu @store store param 2 x 2
// CHECK-NEXT:    rdu.flow @gemm -> @store carries tensor<4x3xf32> time [2 on 0 by 4] space [2 on 1 by 3] to at 0 [6, 1]
// CHECK:       rdu.program @main {
// CHECK-NEXT:    rdu.region @x input tensor<8x4xf32>
// CHECK-NEXT:    rdu.region @encoder.w weight tensor<4x6xf32> key "encoder.w"
// CHECK-NEXT:    rdu.region @s0.out0 output tensor<8x6xf32>
// CHECK-NEXT:    rdu.port input "x" tensor<8x4xf32> in @x
// CHECK-NEXT:    rdu.port output "y" tensor<8x6xf32> in @s0.out0
// CHECK-NEXT:    rdu.launch @s0 (@x, @encoder.w, @s0.out0) sw
// CHECK-NOT:   func.func
func.func @main(%x: tensor<8x4xf32> {tensor.name = "x"}) -> tensor<8x6xf32> attributes {tensor.result_names = ["y"]} {
  %w = tensor.weight "encoder.w" : tensor<4x6xf32>
  %y = dataflow.section "s0"(%x, %w) : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32> {
  ^bb0(%a: tensor<8x4xf32>, %b: tensor<4x6xf32>):
    %0 = dataflow.load %a at 0 [4, 1] : tensor<8x4xf32> -> !dataflow.stream<tensor<4x4xf32>, [2 on 0 by 4]>
    %1 = dataflow.buffer [8, 4] (%0 at 0 [4, 1]) to (at 0 [4, 1]) {frames = 1, copies = 2, split_dim = 1, units = 2, banks = 32} : (!dataflow.stream<tensor<4x4xf32>, [2 on 0 by 4]>) -> !dataflow.stream<tensor<4x4xf32>, [2 on 0 by 4]>
    %2 = dataflow.load %b at 0 [6, 1] : tensor<4x6xf32> -> !dataflow.stream<tensor<4x6xf32>>
    %3 = dataflow.buffer [4, 6] (%2 at 0 [6, 1]) to (at 0 [6, 1]) {fill = 1.5} : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>, [2 repeat]>
    %4 = dataflow.stage "gemm"(%1, %3) par [1 by 2] : (!dataflow.stream<tensor<4x4xf32>, [2 on 0 by 4]>, !dataflow.stream<tensor<4x6xf32>, [2 repeat]>) -> !dataflow.stream<tensor<4x6xf32>, [2 on 0 by 4]> {
    ^bb1(%p: tensor<4x4xf32>, %q: tensor<4x6xf32>):
      %r = tensor.matmul %p, %q : tensor<4x4xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
      dataflow.yield %r : tensor<4x6xf32>
    }
    %5 = dataflow.store (%4 at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>, [2 on 0 by 4]>) -> tensor<8x6xf32>
    dataflow.yield %5 : tensor<8x6xf32>
  }
  func.return %y : tensor<8x6xf32>
}
}

// -----

// A shared layer is one config launched once a call. Dense slices become offsets into the region they are of, and the
// parts of a concatenation are written where they belong.
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
// CHECK-LABEL: rdu.config @layer
// CHECK-NOT:   rdu.config
// CHECK:       rdu.program @main {
// CHECK-NEXT:    rdu.region @x input tensor<4x8xf32>
// CHECK-NEXT:    rdu.region @main.concat output tensor<4x8xf32>
// CHECK-NEXT:    rdu.region @w0 weight tensor<8xf32> key "w0"
// CHECK-NEXT:    rdu.region @w1 weight tensor<8xf32> key "w1"
// CHECK-NEXT:    rdu.port input "x" tensor<4x8xf32> in @x
// CHECK-NEXT:    rdu.port output "y" tensor<4x8xf32> in @main.concat
// CHECK-NEXT:    rdu.launch @layer (@x, @w0, @main.concat) sw
// CHECK-NEXT:    rdu.launch @layer (@x at 16, @w1, @main.concat at 16) hw
func.func @f(%x: tensor<2x8xf32>, %w: tensor<8xf32>) -> tensor<2x8xf32> {
  %y = dataflow.section "layer"(%x, %w) : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32> {
  ^bb0(%a: tensor<2x8xf32>, %b: tensor<8xf32>):
    %0 = dataflow.load %a at 0 [8, 1] : tensor<2x8xf32> -> !dataflow.stream<tensor<2x8xf32>>
    %1 = dataflow.load %b at 0 [1] : tensor<8xf32> -> !dataflow.stream<tensor<8xf32>>
    %2 = dataflow.stage "mul"(%0, %1) : (!dataflow.stream<tensor<2x8xf32>>, !dataflow.stream<tensor<8xf32>>) -> !dataflow.stream<tensor<2x8xf32>> {
    ^bb1(%p: tensor<2x8xf32>, %q: tensor<8xf32>):
      %r = tensor.mul %p, %q : tensor<2x8xf32>, tensor<8xf32> -> tensor<2x8xf32>
      dataflow.yield %r : tensor<2x8xf32>
    }
    %3 = dataflow.store (%2 at 0 [8, 1]) : (!dataflow.stream<tensor<2x8xf32>>) -> tensor<2x8xf32>
    dataflow.yield %3 : tensor<2x8xf32>
  }
  func.return %y : tensor<2x8xf32>
}
func.func @main(%x: tensor<4x8xf32> {tensor.name = "x"}) -> tensor<4x8xf32> attributes {tensor.result_names = ["y"]} {
  %w0 = tensor.weight "w0" : tensor<8xf32>
  %w1 = tensor.weight "w1" : tensor<8xf32>
  %a = tensor.slice %x {starts = array<i64: 0, 0>, stops = array<i64: 2, 8>, steps = array<i64: 1, 1>} : tensor<4x8xf32> -> tensor<2x8xf32>
  %b = tensor.slice %x {starts = array<i64: 2, 0>, stops = array<i64: 4, 8>, steps = array<i64: 1, 1>} : tensor<4x8xf32> -> tensor<2x8xf32>
  %p = func.call @f(%a, %w0) : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  %q = func.call @f(%b, %w1) : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  %r = tensor.concat %p, %q {axis = 0 : i64} : tensor<2x8xf32>, tensor<2x8xf32> -> tensor<4x8xf32>
  func.return %r : tensor<4x8xf32>
}
}

// -----

// A state is one region for its input and its output: rows are written in place. Rows of a table come by number.
builtin.module attributes {machine.device = #machine.device<"sn10">} {
// CHECK-LABEL: rdu.config @step virtual ("past" in tensor<8x4xf32>, "at" in tensor<1xi64>, "table" in tensor<9x4xf32>, "out0" inout tensor<8x4xf32>) {
// CHECK:         rdu.agcu @gather gather param 2
// CHECK-NEXT:    rdu.flow @load_at -> @gather carries tensor<1xi64> from at 0 [1]
// CHECK-NEXT:    rdu.agcu @scatter scatter param 3
// CHECK-NEXT:    rdu.flow @load_at -> @scatter carries tensor<1xi64> from at 0 [1]
// CHECK-NEXT:    rdu.flow @gather -> @scatter:1 carries tensor<1x4xf32>
// CHECK:       rdu.program @main states {{\[\["past", "present"\]\]}} {
// CHECK:         rdu.region @past state tensor<8x4xf32>
// CHECK:         rdu.port input "past" tensor<8x4xf32> in @past
// CHECK:         rdu.port output "present" tensor<8x4xf32> in @past
// CHECK-NEXT:    rdu.launch @step (@past, @at, @table, @past) sw
func.func @main(%past: tensor<8x4xf32> {tensor.name = "past"}, %at: tensor<1xi64> {tensor.name = "at"}) -> tensor<8x4xf32> attributes {tensor.result_names = ["present"], tensor.states = [["past", "present"]]} {
  %t = tensor.weight "table" : tensor<9x4xf32>
  %y = dataflow.section "step"(%past, %at, %t) : (tensor<8x4xf32>, tensor<1xi64>, tensor<9x4xf32>) -> tensor<8x4xf32> {
  ^bb0(%a: tensor<8x4xf32>, %i: tensor<1xi64>, %b: tensor<9x4xf32>):
    %0 = dataflow.load %i at 0 [1] : tensor<1xi64> -> !dataflow.stream<tensor<1xi64>>
    %1 = dataflow.gather %b[%0] : tensor<9x4xf32>, !dataflow.stream<tensor<1xi64>> -> !dataflow.stream<tensor<1x4xf32>>
    %2 = dataflow.scatter %a[%0] = %1 : tensor<8x4xf32>, !dataflow.stream<tensor<1xi64>>, !dataflow.stream<tensor<1x4xf32>> -> tensor<8x4xf32>
    dataflow.yield %2 : tensor<8x4xf32>
  }
  func.return %y : tensor<8x4xf32>
}
}
