// RUN: headrace-opt %s -p canonicalize --split-input-file --print-debuginfo | filecheck %s

// Patterns apply to what other patterns leave: slice of a gather's slice, then a chain of reshapes.
// CHECK-LABEL: @chain
// CHECK-NEXT:    %[[S:.*]] = tensor.slice %x {starts = array<i64: 1, 0>, stops = array<i64: 2, 4>, steps = array<i64: 1, 1>}
// CHECK-NEXT:    tensor.reshape %[[S]] {shape = array<i64: 2, 2>} {{.*}} loc(fused["pick", "first", "second"])
// CHECK-NEXT:    func.return
func.func @chain(%x : tensor<3x4xf32>) -> tensor<2x2xf32> {
  %one = tensor.constant dense<1> : tensor<i64>
  %0 = tensor.gather %x, %one : tensor<3x4xf32>, tensor<i64> -> tensor<4xf32> loc("pick")
  %1 = tensor.reshape %0 {shape = array<i64: 4, 1>} : tensor<4xf32> -> tensor<4x1xf32> loc("first")
  %2 = tensor.reshape %1 {shape = array<i64: 2, 2>} : tensor<4x1xf32> -> tensor<2x2xf32> loc("second")
  return %2 : tensor<2x2xf32>
}

// -----

// A dead user does not keep a split whole.
// CHECK-LABEL: @dead_user
// CHECK-NEXT:    tensor.slice %x
// CHECK-NEXT:    func.return
func.func @dead_user(%x : tensor<4xf32>) -> tensor<2xf32> {
  %0, %1 = tensor.split %x {axis = 0 : i64, sizes = array<i64: 2, 2>} : tensor<4xf32> -> tensor<2xf32>, tensor<2xf32>
  %2 = tensor.exp %1 : tensor<2xf32> -> tensor<2xf32>
  %3 = tensor.neg %2 : tensor<2xf32> -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
