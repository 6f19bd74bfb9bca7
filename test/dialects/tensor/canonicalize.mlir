// Canonical forms of movement, indexing and unit reductions.
// RUN: headrace-opt %s -p canonicalize | filecheck %s

// What moves nothing goes.
// CHECK-LABEL: func.func @identities(
// CHECK-NEXT: func.return %x, %x, %x, %x, %x, %x, %x, %x :
func.func @identities(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %0 = tensor.reshape %x {shape = array<i64: 2, 3>} : tensor<2x3xf32> -> tensor<2x3xf32>
  %1 = tensor.transpose %x {perm = array<i64: 0, 1>} : tensor<2x3xf32> -> tensor<2x3xf32>
  %2 = tensor.broadcast %x {shape = array<i64: 2, 3>} : tensor<2x3xf32> -> tensor<2x3xf32>
  %3 = tensor.slice %x {starts = array<i64: 0, 0>, stops = array<i64: 2, 3>, steps = array<i64: 1, 1>} : tensor<2x3xf32> -> tensor<2x3xf32>
  %4 = tensor.concat %x {axis = 0 : i64} : tensor<2x3xf32> -> tensor<2x3xf32>
  %5 = tensor.split %x {axis = 0 : i64, sizes = array<i64: 2>} : tensor<2x3xf32> -> tensor<2x3xf32>
  %6 = tensor.pad %x {lo = array<i64: 0, 0>, hi = array<i64: 0, 0>} : tensor<2x3xf32> -> tensor<2x3xf32>
  %7 = tensor.reduce_sum %x {axes = array<i64>} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return %0, %1, %2, %3, %4, %5, %6, %7 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// A reverse is no identity.
// CHECK-LABEL: func.func @reverse(
// CHECK-NEXT: tensor.slice
func.func @reverse(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = tensor.slice %x {starts = array<i64: 2>, stops = array<i64: -1>, steps = array<i64: -1>} : tensor<3xf32> -> tensor<3xf32>
  func.return %0 : tensor<3xf32>
}

// CHECK-LABEL: func.func @reshapes(
// CHECK-NEXT: %0 = tensor.reshape %x {shape = array<i64: 4, 6>} : tensor<2x3x4xf32> -> tensor<4x6xf32>
// CHECK-NEXT: func.return %0, %x :
func.func @reshapes(%x: tensor<2x3x4xf32>) -> (tensor<4x6xf32>, tensor<2x3x4xf32>) {
  %0 = tensor.reshape %x {shape = array<i64: 24>} : tensor<2x3x4xf32> -> tensor<24xf32>
  %1 = tensor.reshape %0 {shape = array<i64: 4, 6>} : tensor<24xf32> -> tensor<4x6xf32>
  %2 = tensor.reshape %1 {shape = array<i64: 2, 3, 4>} : tensor<4x6xf32> -> tensor<2x3x4xf32>
  func.return %1, %2 : tensor<4x6xf32>, tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @transposes(
// CHECK-NEXT: %0 = tensor.transpose %x {perm = array<i64: 2, 0, 1>} : tensor<2x3x4xf32> -> tensor<4x2x3xf32>
// CHECK-NEXT: func.return %0, %x :
func.func @transposes(%x: tensor<2x3x4xf32>) -> (tensor<4x2x3xf32>, tensor<2x3x4xf32>) {
  %0 = tensor.transpose %x {perm = array<i64: 1, 2, 0>} : tensor<2x3x4xf32> -> tensor<3x4x2xf32>
  %1 = tensor.transpose %0 {perm = array<i64: 1, 2, 0>} : tensor<3x4x2xf32> -> tensor<4x2x3xf32>
  %2 = tensor.transpose %1 {perm = array<i64: 1, 2, 0>} : tensor<4x2x3xf32> -> tensor<2x3x4xf32>
  func.return %1, %2 : tensor<4x2x3xf32>, tensor<2x3x4xf32>
}

// A transpose of unit dims moves no element.
// CHECK-LABEL: func.func @unit_transpose(
// CHECK-NEXT: tensor.reshape %x {shape = array<i64: 2, 1, 3>} : tensor<1x2x3xf32> -> tensor<2x1x3xf32>
func.func @unit_transpose(%x: tensor<1x2x3xf32>) -> tensor<2x1x3xf32> {
  %0 = tensor.transpose %x {perm = array<i64: 1, 0, 2>} : tensor<1x2x3xf32> -> tensor<2x1x3xf32>
  func.return %0 : tensor<2x1x3xf32>
}

// CHECK-LABEL: func.func @unit_reduction(
// CHECK-NEXT: tensor.reshape %x {shape = array<i64: 3>} : tensor<1x3xf32> -> tensor<3xf32>
func.func @unit_reduction(%x: tensor<1x3xf32>) -> tensor<3xf32> {
  %0 = tensor.reduce_mean %x {axes = array<i64: 0>, keepdims = false} : tensor<1x3xf32> -> tensor<3xf32>
  func.return %0 : tensor<3xf32>
}

// CHECK-LABEL: func.func @broadcasts(
// CHECK-NEXT: %0 = tensor.broadcast %x {shape = array<i64: 5, 4, 3>} : tensor<1x3xf32> -> tensor<5x4x3xf32>
// CHECK-NEXT: func.return %0
func.func @broadcasts(%x: tensor<1x3xf32>) -> tensor<5x4x3xf32> {
  %0 = tensor.broadcast %x {shape = array<i64: 4, 3>} : tensor<1x3xf32> -> tensor<4x3xf32>
  %1 = tensor.broadcast %0 {shape = array<i64: 5, 4, 3>} : tensor<4x3xf32> -> tensor<5x4x3xf32>
  func.return %1 : tensor<5x4x3xf32>
}

// An elementwise op repeats by itself, if another operand has the full shape.
// CHECK-LABEL: func.func @implicit_broadcast(
// CHECK-NEXT: %0 = tensor.broadcast %x
// CHECK-NEXT: %1 = tensor.add %y, %x : tensor<4x3xf32>, tensor<1x3xf32> -> tensor<4x3xf32>
// CHECK-NEXT: %2 = tensor.mul %0, %x
func.func @implicit_broadcast(%x: tensor<1x3xf32>, %y: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %0 = tensor.broadcast %x {shape = array<i64: 4, 3>} : tensor<1x3xf32> -> tensor<4x3xf32>
  %1 = tensor.add %y, %0 : tensor<4x3xf32>, tensor<4x3xf32> -> tensor<4x3xf32>
  %2 = tensor.mul %0, %x : tensor<4x3xf32>, tensor<1x3xf32> -> tensor<4x3xf32>
  func.return %1, %2 : tensor<4x3xf32>, tensor<4x3xf32>
}

// CHECK-LABEL: func.func @slices(
// CHECK-NEXT: %0 = tensor.slice %x {starts = array<i64: 8, 3>, stops = array<i64: -1, 4>, steps = array<i64: -4, 1>} : tensor<10x4xf32> -> tensor<3x1xf32>
// CHECK-NEXT: func.return %0
func.func @slices(%x: tensor<10x4xf32>) -> tensor<3x1xf32> {
  %0 = tensor.slice %x {starts = array<i64: 0, 2>, stops = array<i64: 10, 4>, steps = array<i64: 2, 1>} : tensor<10x4xf32> -> tensor<5x2xf32>
  %1 = tensor.slice %0 {starts = array<i64: 4, 1>, stops = array<i64: -1, 2>, steps = array<i64: -2, 1>} : tensor<5x2xf32> -> tensor<3x1xf32>
  func.return %1 : tensor<3x1xf32>
}

// CHECK-LABEL: func.func @slice_of_concat(
// CHECK-NEXT: %0 = tensor.slice %y {starts = array<i64: 0, 1>, stops = array<i64: 2, 3>, steps = array<i64: 1, 1>} : tensor<2x4xf32> -> tensor<2x2xf32>
// CHECK-NEXT: func.return %x, %0
func.func @slice_of_concat(%x: tensor<2x3xf32>, %y: tensor<2x4xf32>) -> (tensor<2x3xf32>, tensor<2x2xf32>) {
  %0 = tensor.concat %x, %y {axis = -1 : i64} : tensor<2x3xf32>, tensor<2x4xf32> -> tensor<2x7xf32>
  %1 = tensor.slice %0 {starts = array<i64: 0, 0>, stops = array<i64: 2, 3>, steps = array<i64: 1, 1>} : tensor<2x7xf32> -> tensor<2x3xf32>
  %2 = tensor.slice %0 {starts = array<i64: 0, 4>, stops = array<i64: 2, 6>, steps = array<i64: 1, 1>} : tensor<2x7xf32> -> tensor<2x2xf32>
  func.return %1, %2 : tensor<2x3xf32>, tensor<2x2xf32>
}

// CHECK-LABEL: func.func @slice_of_split(
// CHECK-NEXT: %0 = tensor.slice %x {starts = array<i64: 3>, stops = array<i64: 5>, steps = array<i64: 1>} : tensor<6xf32> -> tensor<2xf32>
// CHECK-NEXT: func.return %0
func.func @slice_of_split(%x: tensor<6xf32>) -> tensor<2xf32> {
  %0, %1 = tensor.split %x {axis = 0 : i64, sizes = array<i64: 2, 4>} : tensor<6xf32> -> tensor<2xf32>, tensor<4xf32>
  %2 = tensor.slice %1 {starts = array<i64: 1>, stops = array<i64: 3>, steps = array<i64: 1>} : tensor<4xf32> -> tensor<2xf32>
  func.return %2 : tensor<2xf32>
}

// CHECK-LABEL: func.func @concats(
// CHECK-NEXT: %0 = tensor.concat %x, %y, %x {axis = 0 : i64} : tensor<2xf32>, tensor<3xf32>, tensor<2xf32> -> tensor<7xf32>
// CHECK-NEXT: func.return %0, %z
func.func @concats(%x: tensor<2xf32>, %y: tensor<3xf32>, %e: tensor<0xf32>, %z: tensor<6xf32>) -> (tensor<7xf32>, tensor<6xf32>) {
  %0 = tensor.concat %x, %y {axis = 0 : i64} : tensor<2xf32>, tensor<3xf32> -> tensor<5xf32>
  %1 = tensor.concat %0, %e, %x {axis = -1 : i64} : tensor<5xf32>, tensor<0xf32>, tensor<2xf32> -> tensor<7xf32>
  %2, %3 = tensor.split %z {axis = 0 : i64, sizes = array<i64: 2, 4>} : tensor<6xf32> -> tensor<2xf32>, tensor<4xf32>
  %4 = tensor.concat %2, %3 {axis = 0 : i64} : tensor<2xf32>, tensor<4xf32> -> tensor<6xf32>
  func.return %1, %4 : tensor<7xf32>, tensor<6xf32>
}

// CHECK-LABEL: func.func @pads(
// CHECK-NEXT: %0 = tensor.pad %x {lo = array<i64: 3>, hi = array<i64: 1>} : tensor<2xf32> -> tensor<6xf32>
// CHECK-NEXT: func.return %0
func.func @pads(%x: tensor<2xf32>) -> tensor<6xf32> {
  %0 = tensor.pad %x {lo = array<i64: 1>, hi = array<i64: 0>} : tensor<2xf32> -> tensor<3xf32>
  %1 = tensor.pad %0 {lo = array<i64: 2>, hi = array<i64: 1>} : tensor<3xf32> -> tensor<6xf32>
  func.return %1 : tensor<6xf32>
}

// A gather at known positions is a slice; an index out of range stays, to be refused when the program runs.
// CHECK-LABEL: func.func @gathers(
// CHECK-NEXT: %i2 = tensor.constant dense<5>
// CHECK-NEXT: %0 = tensor.slice %x {starts = array<i64: 4, 0>, stops = array<i64: 5, 4>, steps = array<i64: 1, 1>} : tensor<5x4xf32> -> tensor<1x4xf32>
// CHECK-NEXT: %1 = tensor.reshape %0 {shape = array<i64: 4>} : tensor<1x4xf32> -> tensor<4xf32>
// CHECK-NEXT: %2 = tensor.slice %x {starts = array<i64: 0, 1>, stops = array<i64: 5, 4>, steps = array<i64: 1, 2>} : tensor<5x4xf32> -> tensor<5x2xf32>
// CHECK-NEXT: %3 = tensor.gather %x, %i2 : tensor<5x4xf32>, tensor<i64> -> tensor<4xf32>
// CHECK-NEXT: func.return %1, %2, %3
func.func @gathers(%x: tensor<5x4xf32>) -> (tensor<4xf32>, tensor<5x2xf32>, tensor<4xf32>) {
  %i0 = tensor.constant dense<-1> : tensor<i64>
  %i1 = tensor.constant dense<[1, 3]> : tensor<2xi32>
  %i2 = tensor.constant dense<5> : tensor<i64>
  %0 = tensor.gather %x, %i0 : tensor<5x4xf32>, tensor<i64> -> tensor<4xf32>
  %1 = tensor.gather %x, %i1 {axis = 1 : i64} : tensor<5x4xf32>, tensor<2xi32> -> tensor<5x2xf32>
  %2 = tensor.gather %x, %i2 : tensor<5x4xf32>, tensor<i64> -> tensor<4xf32>
  func.return %0, %1, %2 : tensor<4xf32>, tensor<5x2xf32>, tensor<4xf32>
}

// A constant of equal elements stays one.
// CHECK-LABEL: func.func @constants(
// CHECK-NEXT: tensor.constant dense<0.000000e+00> : tensor<64x64xf32>
// CHECK-NEXT: tensor.constant dense<{{\[\[}}1], [2]]> : tensor<2x1xi64>
// CHECK-NEXT: func.return
func.func @constants() -> (tensor<64x64xf32>, tensor<2x1xi64>) {
  %0 = tensor.constant dense<0.0> : tensor<f32>
  %1 = tensor.broadcast %0 {shape = array<i64: 64, 64>} : tensor<f32> -> tensor<64x64xf32>
  %2 = tensor.constant dense<[1, 2]> : tensor<2xi64>
  %3 = tensor.reshape %2 {shape = array<i64: 2, 1>} : tensor<2xi64> -> tensor<2x1xi64>
  func.return %1, %3 : tensor<64x64xf32>, tensor<2x1xi64>
}

// CHECK-LABEL: func.func @nothing_to_scatter(
// CHECK-NEXT: func.return %x
func.func @nothing_to_scatter(%x: tensor<5xf32>, %i: tensor<0xi64>, %u: tensor<0xf32>) -> tensor<5xf32> {
  %0 = tensor.scatter_elements %x, %i, %u : tensor<5xf32>, tensor<0xi64>, tensor<0xf32> -> tensor<5xf32>
  func.return %0 : tensor<5xf32>
}
