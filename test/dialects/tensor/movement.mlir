// Movement: both printed forms parse to the same; defaults are not printed.
// RUN: headrace-opt %s | filecheck %s
// RUN: headrace-opt %s | headrace-opt | filecheck %s
// RUN: headrace-opt %s --print-op-generic | headrace-opt | filecheck %s

// CHECK-LABEL: func.func @movement(
func.func @movement(%x: tensor<2x3xf32>, %y: tensor<2x4xf32>, %s: tensor<f32>) {
  // CHECK: tensor.reshape %x {shape = array<i64: 3, 2>} : tensor<2x3xf32> -> tensor<3x2xf32>
  %0 = tensor.reshape %x {shape = array<i64: 3, 2>} : tensor<2x3xf32> -> tensor<3x2xf32>
  // CHECK: tensor.reshape %s {shape = array<i64: 1, 1>} : tensor<f32> -> tensor<1x1xf32>
  %1 = tensor.reshape %s {shape = array<i64: 1, 1>} : tensor<f32> -> tensor<1x1xf32>
  // CHECK: tensor.reshape %1 {shape = array<i64>} : tensor<1x1xf32> -> tensor<f32>
  %2 = tensor.reshape %1 {shape = array<i64>} : tensor<1x1xf32> -> tensor<f32>
  // CHECK: tensor.transpose %x {perm = array<i64: 1, 0>} : tensor<2x3xf32> -> tensor<3x2xf32>
  %3 = tensor.transpose %x {perm = array<i64: 1, 0>} : tensor<2x3xf32> -> tensor<3x2xf32>
  // CHECK: tensor.broadcast %x {shape = array<i64: 4, 2, 3>} : tensor<2x3xf32> -> tensor<4x2x3xf32>
  %4 = tensor.broadcast %x {shape = array<i64: 4, 2, 3>} : tensor<2x3xf32> -> tensor<4x2x3xf32>
  // CHECK: tensor.broadcast %s {shape = array<i64: 4>} : tensor<f32> -> tensor<4xf32>
  %5 = tensor.broadcast %s {shape = array<i64: 4>} : tensor<f32> -> tensor<4xf32>
  // CHECK: tensor.slice %x {starts = array<i64: 0, 1>, stops = array<i64: 2, 3>, steps = array<i64: 1, 1>} : tensor<2x3xf32> -> tensor<2x2xf32>
  %6 = tensor.slice %x {starts = array<i64: 0, 1>, stops = array<i64: 2, 3>, steps = array<i64: 1, 1>} : tensor<2x3xf32> -> tensor<2x2xf32>
  // CHECK: tensor.slice %x {starts = array<i64: 1, 2>, stops = array<i64: -1, -1>, steps = array<i64: -1, -2>} : tensor<2x3xf32> -> tensor<2x2xf32>
  %7 = tensor.slice %x {starts = array<i64: 1, 2>, stops = array<i64: -1, -1>, steps = array<i64: -1, -2>} : tensor<2x3xf32> -> tensor<2x2xf32>
  // CHECK: tensor.slice %x {starts = array<i64: 0, 2>, stops = array<i64: 2, 2>, steps = array<i64: 1, 1>} : tensor<2x3xf32> -> tensor<2x0xf32>
  %8 = tensor.slice %x {starts = array<i64: 0, 2>, stops = array<i64: 2, 2>, steps = array<i64: 1, 1>} : tensor<2x3xf32> -> tensor<2x0xf32>
  // CHECK: tensor.concat %x, %y {axis = -1 : i64} : tensor<2x3xf32>, tensor<2x4xf32> -> tensor<2x7xf32>
  %9 = tensor.concat %x, %y {axis = -1 : i64} : tensor<2x3xf32>, tensor<2x4xf32> -> tensor<2x7xf32>
  // CHECK: tensor.concat %x {axis = 0 : i64} : tensor<2x3xf32> -> tensor<2x3xf32>
  %10 = tensor.concat %x {axis = 0 : i64} : tensor<2x3xf32> -> tensor<2x3xf32>
  // CHECK: tensor.split %x {axis = 1 : i64, sizes = array<i64: 1, 2>} : tensor<2x3xf32> -> tensor<2x1xf32>, tensor<2x2xf32>
  %11, %12 = tensor.split %x {axis = 1 : i64, sizes = array<i64: 1, 2>} : tensor<2x3xf32> -> tensor<2x1xf32>, tensor<2x2xf32>
  // CHECK: tensor.pad %x {lo = array<i64: 0, 1>, hi = array<i64: 2, 0>} : tensor<2x3xf32> -> tensor<4x4xf32>
  %13 = tensor.pad %x {lo = array<i64: 0, 1>, hi = array<i64: 2, 0>} : tensor<2x3xf32> -> tensor<4x4xf32>
  // CHECK: tensor.pad %x {lo = array<i64: 0, 1>, hi = array<i64: 0, 0>, value = 0xfff0000000000000 : f64} : tensor<2x3xf32> -> tensor<2x4xf32>
  %14 = tensor.pad %x {lo = array<i64: 0, 1>, hi = array<i64: 0, 0>, value = 0xfff0000000000000 : f64} : tensor<2x3xf32> -> tensor<2x4xf32>
  // CHECK: tensor.pad %x {lo = array<i64: 1, 2>, hi = array<i64: 1, 2>, mode = "reflect"} : tensor<2x3xf32> -> tensor<4x7xf32>
  %15 = tensor.pad %x {lo = array<i64: 1, 2>, hi = array<i64: 1, 2>, mode = "reflect"} : tensor<2x3xf32> -> tensor<4x7xf32>
  func.return
}
