// Reductions: both printed forms parse to the same; defaults are not printed.
// RUN: headrace-opt %s | filecheck %s
// RUN: headrace-opt %s | headrace-opt | filecheck %s
// RUN: headrace-opt %s --print-op-generic | headrace-opt | filecheck %s

// CHECK-LABEL: func.func @reductions(
func.func @reductions(%x: tensor<2x3xf32>, %t: tensor<2x3xi1>) {
  // CHECK: tensor.reduce_sum %x {axes = array<i64: -1>} : tensor<2x3xf32> -> tensor<2x1xf32>
  %0 = tensor.reduce_sum %x {axes = array<i64: -1>} : tensor<2x3xf32> -> tensor<2x1xf32>
  // CHECK: tensor.reduce_sum %x {axes = array<i64: 0, 1>, keepdims = false} : tensor<2x3xf32> -> tensor<f32>
  %1 = tensor.reduce_sum %x {axes = array<i64: 0, 1>, keepdims = false} : tensor<2x3xf32> -> tensor<f32>
  // CHECK: tensor.reduce_mean %x {axes = array<i64: 0>} : tensor<2x3xf32> -> tensor<1x3xf32>
  %2 = tensor.reduce_mean %x {axes = array<i64: 0>} : tensor<2x3xf32> -> tensor<1x3xf32>
  // CHECK: tensor.reduce_max %x {axes = array<i64: 1>, keepdims = false} : tensor<2x3xf32> -> tensor<2xf32>
  %3 = tensor.reduce_max %x {axes = array<i64: 1>, keepdims = false} : tensor<2x3xf32> -> tensor<2xf32>
  // CHECK: tensor.reduce_max %t {axes = array<i64: 1>} : tensor<2x3xi1> -> tensor<2x1xi1>
  %4 = tensor.reduce_max %t {axes = array<i64: 1>} : tensor<2x3xi1> -> tensor<2x1xi1>
  // CHECK: tensor.reduce_min %x {axes = array<i64: -2>} : tensor<2x3xf32> -> tensor<1x3xf32>
  %5 = tensor.reduce_min %x {axes = array<i64: -2>} : tensor<2x3xf32> -> tensor<1x3xf32>
  // CHECK: tensor.reduce_prod %x {axes = array<i64>} : tensor<2x3xf32> -> tensor<2x3xf32>
  %6 = tensor.reduce_prod %x {axes = array<i64>} : tensor<2x3xf32> -> tensor<2x3xf32>
  // CHECK: tensor.argmax %x {axis = -1 : i64} : tensor<2x3xf32> -> tensor<2x1xi64>
  %7 = tensor.argmax %x {axis = -1 : i64} : tensor<2x3xf32> -> tensor<2x1xi64>
  // CHECK: tensor.argmax %x {axis = 1 : i64, keepdims = false, select_last = true} : tensor<2x3xf32> -> tensor<2xi64>
  %8 = tensor.argmax %x {axis = 1 : i64, keepdims = false, select_last = true} : tensor<2x3xf32> -> tensor<2xi64>
  // CHECK: tensor.argmin %x {axis = 0 : i64} : tensor<2x3xf32> -> tensor<1x3xi64>
  %9 = tensor.argmin %x {axis = 0 : i64} : tensor<2x3xf32> -> tensor<1x3xi64>
  // CHECK: tensor.cumsum %x {axis = 1 : i64} : tensor<2x3xf32> -> tensor<2x3xf32>
  %10 = tensor.cumsum %x {axis = 1 : i64} : tensor<2x3xf32> -> tensor<2x3xf32>
  // CHECK: tensor.cumsum %x {axis = 0 : i64, exclusive = true, reverse = true} : tensor<2x3xf32> -> tensor<2x3xf32>
  %11 = tensor.cumsum %x {axis = 0 : i64, exclusive = true, reverse = true} : tensor<2x3xf32> -> tensor<2x3xf32>
  // CHECK: tensor.sort %x {axis = -1 : i64} : tensor<2x3xf32> -> tensor<2x3xf32>, tensor<2x3xi64>
  %12, %13 = tensor.sort %x {axis = -1 : i64} : tensor<2x3xf32> -> tensor<2x3xf32>, tensor<2x3xi64>
  // CHECK: tensor.sort %t {axis = 0 : i64, descending = true} : tensor<2x3xi1> -> tensor<2x3xi1>, tensor<2x3xi64>
  %14, %15 = tensor.sort %t {axis = 0 : i64, descending = true} : tensor<2x3xi1> -> tensor<2x3xi1>, tensor<2x3xi64>
  func.return
}
