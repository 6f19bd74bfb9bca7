// RUN: headrace-opt %s -p cse --split-input-file --print-debuginfo | filecheck %s

// Equal ops are one, with the locations of all; operands of commutative ops may be swapped.
// CHECK-LABEL: @equal
// CHECK-NEXT:    %[[A:.*]] = tensor.exp %x {{.*}} loc(fused["first", "second"])
// CHECK-NEXT:    %[[B:.*]] = tensor.add %[[A]], %x
// CHECK-NEXT:    tensor.mul %[[B]], %[[B]]
func.func @equal(%x : tensor<2xf32>) -> tensor<2xf32> {
  %0 = tensor.exp %x : tensor<2xf32> -> tensor<2xf32> loc("first")
  %1 = tensor.exp %x : tensor<2xf32> -> tensor<2xf32> loc("second")
  %2 = tensor.add %0, %x : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
  %3 = tensor.add %x, %1 : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
  %4 = tensor.mul %2, %3 : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
  return %4 : tensor<2xf32>
}

// -----

// Other attributes, other types of a source, swapped operands of a subtraction: not equal.
// CHECK-LABEL: @different
// CHECK-COUNT-2: tensor.slice
// CHECK-COUNT-2: tensor.constant
// CHECK-COUNT-2: tensor.sub
func.func @different(%x : tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<f32>, tensor<f64>) {
  %0 = tensor.slice %x {starts = array<i64: 0>, stops = array<i64: 2>, steps = array<i64: 1>} : tensor<4xf32> -> tensor<2xf32>
  %1 = tensor.slice %x {starts = array<i64: 2>, stops = array<i64: 4>, steps = array<i64: 1>} : tensor<4xf32> -> tensor<2xf32>
  %2 = tensor.constant dense<1.0> : tensor<f32>
  %3 = tensor.constant dense<1.0> : tensor<f64>
  %4 = tensor.sub %0, %1 : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
  %5 = tensor.sub %1, %0 : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
  return %4, %5, %2, %3 : tensor<2xf32>, tensor<2xf32>, tensor<f32>, tensor<f64>
}
