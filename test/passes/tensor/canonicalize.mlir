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

// -----

// Few rows of heads that share keys are rows of one product.
// CHECK-LABEL: @shared
// CHECK-NEXT:    [[K:%.*]] = tensor.transpose %k {perm = array<i64: 0, 1, 3, 2>}
// CHECK-NEXT:    [[Q:%.*]] = tensor.reshape %q {shape = array<i64: 1, 4, 4, 4>}
// CHECK-NEXT:    [[P:%.*]] = tensor.matmul [[Q]], [[K]] : tensor<1x4x4x4xf32>, tensor<1x4x4x16xf32> -> tensor<1x4x4x16xf32>
// CHECK-NEXT:    tensor.reshape [[P]] {shape = array<i64: 1, 8, 2, 16>}
// CHECK-NEXT:    func.return
func.func @shared(%q : tensor<1x8x2x4xf32>, %k : tensor<1x4x16x4xf32>) -> tensor<1x8x2x16xf32> {
  %0 = tensor.reshape %k {shape = array<i64: 1, 4, 1, 16, 4>} : tensor<1x4x16x4xf32> -> tensor<1x4x1x16x4xf32>
  %1 = tensor.broadcast %0 {shape = array<i64: 1, 4, 2, 16, 4>} : tensor<1x4x1x16x4xf32> -> tensor<1x4x2x16x4xf32>
  %2 = tensor.reshape %1 {shape = array<i64: 1, 8, 16, 4>} : tensor<1x4x2x16x4xf32> -> tensor<1x8x16x4xf32>
  %3 = tensor.transpose %2 {perm = array<i64: 0, 1, 3, 2>} : tensor<1x8x16x4xf32> -> tensor<1x8x4x16xf32>
  %4 = tensor.matmul %q, %3 : tensor<1x8x2x4xf32>, tensor<1x8x4x16xf32> -> tensor<1x8x2x16xf32>
  return %4 : tensor<1x8x2x16xf32>
}

// -----

// Not when they are as many as the keys, nor where whole runs of heads are repeated.
// CHECK-LABEL: @many
// CHECK:         tensor.broadcast
// CHECK-LABEL: @runs
// CHECK:         tensor.broadcast
func.func @many(%q : tensor<8x16x4xf32>, %v : tensor<4x16x4xf32>, %w : tensor<8x16x16xf32>) -> tensor<8x16x4xf32> {
  %0 = tensor.reshape %v {shape = array<i64: 4, 1, 16, 4>} : tensor<4x16x4xf32> -> tensor<4x1x16x4xf32>
  %1 = tensor.broadcast %0 {shape = array<i64: 4, 2, 16, 4>} : tensor<4x1x16x4xf32> -> tensor<4x2x16x4xf32>
  %2 = tensor.reshape %1 {shape = array<i64: 8, 16, 4>} : tensor<4x2x16x4xf32> -> tensor<8x16x4xf32>
  %3 = tensor.matmul %w, %2 : tensor<8x16x16xf32>, tensor<8x16x4xf32> -> tensor<8x16x4xf32>
  return %3 : tensor<8x16x4xf32>
}
func.func @runs(%v : tensor<4x16x4xf32>, %w : tensor<8x2x16xf32>) -> tensor<8x2x4xf32> {
  %0 = tensor.reshape %v {shape = array<i64: 1, 4, 16, 4>} : tensor<4x16x4xf32> -> tensor<1x4x16x4xf32>
  %1 = tensor.broadcast %0 {shape = array<i64: 2, 4, 16, 4>} : tensor<1x4x16x4xf32> -> tensor<2x4x16x4xf32>
  %2 = tensor.reshape %1 {shape = array<i64: 8, 16, 4>} : tensor<2x4x16x4xf32> -> tensor<8x16x4xf32>
  %3 = tensor.matmul %w, %2 : tensor<8x2x16xf32>, tensor<8x16x4xf32> -> tensor<8x2x4xf32>
  return %3 : tensor<8x2x4xf32>
}
