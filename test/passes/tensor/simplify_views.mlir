// RUN: headrace-opt %s -p simplify-views --split-input-file | filecheck %s

// A unit dim put in and taken out around an op goes.
// BEGIN CHECK (generated: `python -m headrace.tools.update_tests`)
// CHECK-LABEL: func.func @around(
// CHECK-SAME:  %[[X:.*]]: tensor<4x8xf32>) -> tensor<4x8xf32> {
// CHECK-NEXT:    %[[RELU:.*]] = tensor.relu %[[X]] : tensor<4x8xf32> -> tensor<4x8xf32>
// CHECK-NEXT:    func.return %[[RELU]] : tensor<4x8xf32>
// CHECK-NEXT:  }
// END CHECK
func.func @around(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = tensor.reshape %x {shape = array<i64: 4, 1, 8>} : tensor<4x8xf32> -> tensor<4x1x8xf32>
  %1 = tensor.relu %0 : tensor<4x1x8xf32> -> tensor<4x1x8xf32>
  %2 = tensor.reshape %1 {shape = array<i64: 4, 8>} : tensor<4x1x8xf32> -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}

// -----

// Through a chain, scalars included; what is left of the transposes is their product.
// BEGIN CHECK (generated: `python -m headrace.tools.update_tests`)
// CHECK-LABEL: func.func @chain(
// CHECK-SAME:  %[[X:.*]]: tensor<2x3x4xf32>) -> tensor<4x2x3xf32> {
// CHECK-NEXT:    %[[C:.*]] = tensor.constant dense<2.000000e+00> : tensor<f32>
// CHECK-NEXT:    %[[MUL:.*]] = tensor.mul %[[X]], %[[C]] : tensor<2x3x4xf32>, tensor<f32> -> tensor<2x3x4xf32>
// CHECK-NEXT:    %[[RELU:.*]] = tensor.relu %[[MUL]] : tensor<2x3x4xf32> -> tensor<2x3x4xf32>
// CHECK-NEXT:    %[[TRANSPOSE:.*]] = tensor.transpose %[[RELU]] {perm = array<i64: 2, 0, 1>} : tensor<2x3x4xf32> -> tensor<4x2x3xf32>
// CHECK-NEXT:    func.return %[[TRANSPOSE]] : tensor<4x2x3xf32>
// CHECK-NEXT:  }
// END CHECK
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
// BEGIN CHECK (generated: `python -m headrace.tools.update_tests`)
// CHECK-LABEL: func.func @both(
// CHECK-SAME:  %[[X:.*]]: tensor<4x8xf32>, %[[Y:.*]]: tensor<4x8xf32>) -> tensor<32xf32> {
// CHECK-NEXT:    %[[ADD:.*]] = tensor.add %[[X]], %[[Y]] : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
// CHECK-NEXT:    %[[RESHAPE:.*]] = tensor.reshape %[[ADD]] {shape = array<i64: 32>} : tensor<4x8xf32> -> tensor<32xf32>
// CHECK-NEXT:    func.return %[[RESHAPE]] : tensor<32xf32>
// CHECK-NEXT:  }
// END CHECK
func.func @both(%x : tensor<4x8xf32>, %y : tensor<4x8xf32>) -> tensor<32xf32> {
  %0 = tensor.reshape %x {shape = array<i64: 32>} : tensor<4x8xf32> -> tensor<32xf32>
  %1 = tensor.reshape %y {shape = array<i64: 32>} : tensor<4x8xf32> -> tensor<32xf32>
  %2 = tensor.add %0, %1 : tensor<32xf32>, tensor<32xf32> -> tensor<32xf32>
  return %2 : tensor<32xf32>
}

// -----

// Nothing to gain: one move before, one after.
// BEGIN CHECK (generated: `python -m headrace.tools.update_tests`)
// CHECK-LABEL: func.func @one(
// CHECK-SAME:  %[[X:.*]]: tensor<4x8xf32>) -> tensor<32xf32> {
// CHECK-NEXT:    %[[RESHAPE:.*]] = tensor.reshape %[[X]] {shape = array<i64: 32>} : tensor<4x8xf32> -> tensor<32xf32>
// CHECK-NEXT:    %[[RELU:.*]] = tensor.relu %[[RESHAPE]] : tensor<32xf32> -> tensor<32xf32>
// CHECK-NEXT:    func.return %[[RELU]] : tensor<32xf32>
// CHECK-NEXT:  }
// END CHECK
func.func @one(%x : tensor<4x8xf32>) -> tensor<32xf32> {
  %0 = tensor.reshape %x {shape = array<i64: 32>} : tensor<4x8xf32> -> tensor<32xf32>
  %1 = tensor.relu %0 : tensor<32xf32> -> tensor<32xf32>
  return %1 : tensor<32xf32>
}

// -----

// A broadcast operand cannot go along, and a move that others need stays.
// BEGIN CHECK (generated: `python -m headrace.tools.update_tests`)
// CHECK-LABEL: func.func @stay(
// CHECK-SAME:  %[[X:.*]]: tensor<4x8xf32>, %[[B:.*]]: tensor<8xf32>, %[[Y:.*]]: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<1x4x8xf32>) {
// CHECK-NEXT:    %[[RESHAPE:.*]] = tensor.reshape %[[X]] {shape = array<i64: 1, 4, 8>} : tensor<4x8xf32> -> tensor<1x4x8xf32>
// CHECK-NEXT:    %[[RESHAPE_2:.*]] = tensor.reshape %[[Y]] {shape = array<i64: 1, 4, 8>} : tensor<4x8xf32> -> tensor<1x4x8xf32>
// CHECK-NEXT:    %[[ADD:.*]] = tensor.add %[[RESHAPE]], %[[B]] : tensor<1x4x8xf32>, tensor<8xf32> -> tensor<1x4x8xf32>
// CHECK-NEXT:    %[[RESHAPE_3:.*]] = tensor.reshape %[[ADD]] {shape = array<i64: 4, 8>} : tensor<1x4x8xf32> -> tensor<4x8xf32>
// CHECK-NEXT:    %[[MUL:.*]] = tensor.mul %[[RESHAPE]], %[[ADD]] : tensor<1x4x8xf32>, tensor<1x4x8xf32> -> tensor<1x4x8xf32>
// CHECK-NEXT:    func.return %[[RESHAPE_3]], %[[MUL]] : tensor<4x8xf32>, tensor<1x4x8xf32>
// CHECK-NEXT:  }
// END CHECK
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
// BEGIN CHECK (generated: `python -m headrace.tools.update_tests`)
// CHECK-LABEL: func.func @slices(
// CHECK-SAME:  %[[X:.*]]: tensor<4x8xf32>) -> tensor<4x6xf32> {
// CHECK-NEXT:    %[[SLICE:.*]] = tensor.slice %[[X]] {starts = array<i64: 0, 2>, stops = array<i64: 4, 8>, steps = array<i64: 1, 1>} : tensor<4x8xf32> -> tensor<4x6xf32>
// CHECK-NEXT:    func.return %[[SLICE]] : tensor<4x6xf32>
// CHECK-NEXT:  }
// END CHECK
func.func @slices(%x : tensor<4x8xf32>) -> tensor<4x6xf32> {
  %0 = tensor.slice %x {starts = array<i64: 0, 2>, stops = array<i64: 4, 4>, steps = array<i64: 1, 1>} : tensor<4x8xf32> -> tensor<4x2xf32>
  %1 = tensor.slice %x {starts = array<i64: 0, 4>, stops = array<i64: 4, 5>, steps = array<i64: 1, 1>} : tensor<4x8xf32> -> tensor<4x1xf32>
  %2 = tensor.slice %x {starts = array<i64: 0, 5>, stops = array<i64: 4, 8>, steps = array<i64: 1, 1>} : tensor<4x8xf32> -> tensor<4x3xf32>
  %3 = tensor.concat %0, %1, %2 {axis = 1 : i64} : tensor<4x2xf32>, tensor<4x1xf32>, tensor<4x3xf32> -> tensor<4x6xf32>
  return %3 : tensor<4x6xf32>
}

// -----

// Swapped slices are not.
// BEGIN CHECK (generated: `python -m headrace.tools.update_tests`)
// CHECK-LABEL: func.func @swapped(
// CHECK-SAME:  %[[X:.*]]: tensor<8xf32>) -> tensor<8xf32> {
// CHECK-NEXT:    %[[SLICE:.*]] = tensor.slice %[[X]] {starts = array<i64: 0>, stops = array<i64: 4>, steps = array<i64: 1>} : tensor<8xf32> -> tensor<4xf32>
// CHECK-NEXT:    %[[SLICE_2:.*]] = tensor.slice %[[X]] {starts = array<i64: 4>, stops = array<i64: 8>, steps = array<i64: 1>} : tensor<8xf32> -> tensor<4xf32>
// CHECK-NEXT:    %[[CONCAT:.*]] = tensor.concat %[[SLICE_2]], %[[SLICE]] {axis = 0 : i64} : tensor<4xf32>, tensor<4xf32> -> tensor<8xf32>
// CHECK-NEXT:    func.return %[[CONCAT]] : tensor<8xf32>
// CHECK-NEXT:  }
// END CHECK
func.func @swapped(%x : tensor<8xf32>) -> tensor<8xf32> {
  %0 = tensor.slice %x {starts = array<i64: 0>, stops = array<i64: 4>, steps = array<i64: 1>} : tensor<8xf32> -> tensor<4xf32>
  %1 = tensor.slice %x {starts = array<i64: 4>, stops = array<i64: 8>, steps = array<i64: 1>} : tensor<8xf32> -> tensor<4xf32>
  %2 = tensor.concat %1, %0 {axis = 0 : i64} : tensor<4xf32>, tensor<4xf32> -> tensor<8xf32>
  return %2 : tensor<8xf32>
}
