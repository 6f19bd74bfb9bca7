// RUN: headrace-opt %s -p simplify-views --split-input-file | filecheck %s

// A unit dim put in and taken out around an op goes.
// CHECK-LABEL: @around
// CHECK-NEXT:    %[[R:.*]] = tensor.relu %x : tensor<4x8xf32> -> tensor<4x8xf32>
// CHECK-NEXT:    func.return %[[R]]
func.func @around(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = tensor.reshape %x {shape = array<i64: 4, 1, 8>} : tensor<4x8xf32> -> tensor<4x1x8xf32>
  %1 = tensor.relu %0 : tensor<4x1x8xf32> -> tensor<4x1x8xf32>
  %2 = tensor.reshape %1 {shape = array<i64: 4, 8>} : tensor<4x1x8xf32> -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}

// -----

// Through a chain, scalars included; what is left of the transposes is their product.
// CHECK-LABEL: @chain
// CHECK-NEXT:    %[[C:.*]] = tensor.constant
// CHECK-NEXT:    %[[M:.*]] = tensor.mul %x, %[[C]] : tensor<2x3x4xf32>
// CHECK-NEXT:    %[[R:.*]] = tensor.relu %[[M]] : tensor<2x3x4xf32>
// CHECK-NEXT:    tensor.transpose %[[R]] {perm = array<i64: 2, 0, 1>}
// CHECK-NEXT:    func.return
func.func @chain(%x : tensor<2x3x4xf32>) -> tensor<4x2x3xf32> {
  %c = tensor.constant dense<2.0> : tensor<f32>
  %0 = tensor.transpose %x {perm = array<i64: 1, 2, 0>} : tensor<2x3x4xf32> -> tensor<3x4x2xf32>
  %1 = tensor.mul %0, %c : tensor<3x4x2xf32>, tensor<f32> -> tensor<3x4x2xf32>
  %2 = tensor.relu %1 : tensor<3x4x2xf32> -> tensor<3x4x2xf32>
  %3 = tensor.transpose %2 {perm = array<i64: 1, 2, 0>} : tensor<3x4x2xf32> -> tensor<4x2x3xf32>
  return %3 : tensor<4x2x3xf32>
}

// -----

// Both operands moved alike: one move of the result.
// CHECK-LABEL: @both
// CHECK-NEXT:    %[[A:.*]] = tensor.add %x, %y : tensor<4x8xf32>
// CHECK-NEXT:    tensor.reshape %[[A]] {shape = array<i64: 32>}
// CHECK-NEXT:    func.return
func.func @both(%x : tensor<4x8xf32>, %y : tensor<4x8xf32>) -> tensor<32xf32> {
  %0 = tensor.reshape %x {shape = array<i64: 32>} : tensor<4x8xf32> -> tensor<32xf32>
  %1 = tensor.reshape %y {shape = array<i64: 32>} : tensor<4x8xf32> -> tensor<32xf32>
  %2 = tensor.add %0, %1 : tensor<32xf32>, tensor<32xf32> -> tensor<32xf32>
  return %2 : tensor<32xf32>
}

// -----

// Nothing to gain: one move before, one after.
// CHECK-LABEL: @one
// CHECK-NEXT:    tensor.reshape
// CHECK-NEXT:    tensor.relu
// CHECK-NEXT:    func.return
func.func @one(%x : tensor<4x8xf32>) -> tensor<32xf32> {
  %0 = tensor.reshape %x {shape = array<i64: 32>} : tensor<4x8xf32> -> tensor<32xf32>
  %1 = tensor.relu %0 : tensor<32xf32> -> tensor<32xf32>
  return %1 : tensor<32xf32>
}

// -----

// A broadcast operand cannot go along, and a move that others need stays.
// CHECK-LABEL: @stay
// CHECK-COUNT-2: tensor.reshape
// CHECK-NEXT:    tensor.add
// CHECK-NEXT:    tensor.reshape
// CHECK-NEXT:    tensor.mul
func.func @stay(%x : tensor<4x8xf32>, %b : tensor<8xf32>, %y : tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<1x4x8xf32>) {
  %0 = tensor.reshape %x {shape = array<i64: 1, 4, 8>} : tensor<4x8xf32> -> tensor<1x4x8xf32>
  %1 = tensor.reshape %y {shape = array<i64: 1, 4, 8>} : tensor<4x8xf32> -> tensor<1x4x8xf32>
  %2 = tensor.add %0, %b : tensor<1x4x8xf32>, tensor<8xf32> -> tensor<1x4x8xf32>
  %3 = tensor.reshape %2 {shape = array<i64: 4, 8>} : tensor<1x4x8xf32> -> tensor<4x8xf32>
  %4 = tensor.mul %0, %2 : tensor<1x4x8xf32>, tensor<1x4x8xf32> -> tensor<1x4x8xf32>
  return %3, %4 : tensor<4x8xf32>, tensor<1x4x8xf32>
}

// -----

// Slices side by side are one slice.
// CHECK-LABEL: @slices
// CHECK-NEXT:    tensor.slice %x {starts = array<i64: 0, 2>, stops = array<i64: 4, 8>, steps = array<i64: 1, 1>}
// CHECK-NEXT:    func.return
func.func @slices(%x : tensor<4x8xf32>) -> tensor<4x6xf32> {
  %0 = tensor.slice %x {starts = array<i64: 0, 2>, stops = array<i64: 4, 4>, steps = array<i64: 1, 1>} : tensor<4x8xf32> -> tensor<4x2xf32>
  %1 = tensor.slice %x {starts = array<i64: 0, 4>, stops = array<i64: 4, 5>, steps = array<i64: 1, 1>} : tensor<4x8xf32> -> tensor<4x1xf32>
  %2 = tensor.slice %x {starts = array<i64: 0, 5>, stops = array<i64: 4, 8>, steps = array<i64: 1, 1>} : tensor<4x8xf32> -> tensor<4x3xf32>
  %3 = tensor.concat %0, %1, %2 {axis = 1 : i64} : tensor<4x2xf32>, tensor<4x1xf32>, tensor<4x3xf32> -> tensor<4x6xf32>
  return %3 : tensor<4x6xf32>
}

// -----

// Swapped slices are not.
// CHECK-LABEL: @swapped
// CHECK:         tensor.concat
func.func @swapped(%x : tensor<8xf32>) -> tensor<8xf32> {
  %0 = tensor.slice %x {starts = array<i64: 0>, stops = array<i64: 4>, steps = array<i64: 1>} : tensor<8xf32> -> tensor<4xf32>
  %1 = tensor.slice %x {starts = array<i64: 4>, stops = array<i64: 8>, steps = array<i64: 1>} : tensor<8xf32> -> tensor<4xf32>
  %2 = tensor.concat %1, %0 {axis = 0 : i64} : tensor<4xf32>, tensor<4xf32> -> tensor<8xf32>
  return %2 : tensor<8xf32>
}
