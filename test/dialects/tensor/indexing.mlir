// Indexing: both printed forms parse to the same; defaults are not printed.
// RUN: headrace-opt %s | filecheck %s
// RUN: headrace-opt %s | headrace-opt | filecheck %s
// RUN: headrace-opt %s --print-op-generic | headrace-opt | filecheck %s

// CHECK-LABEL: func.func @indexing(
func.func @indexing(%x: tensor<9x4xf32>, %i: tensor<2x3xi64>, %j: tensor<5x1xi32>, %u: tensor<5x4xf32>, %v: tensor<2x3xf32>) {
  // CHECK: tensor.gather %x, %i : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2x3x4xf32>
  %0 = tensor.gather %x, %i : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2x3x4xf32>
  // CHECK: tensor.gather %x, %i {axis = -1 : i64} : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<9x2x3xf32>
  %1 = tensor.gather %x, %i {axis = -1 : i64} : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<9x2x3xf32>
  // CHECK: tensor.gather_elements %x, %i {axis = 1 : i64} : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2x3xf32>
  %2 = tensor.gather_elements %x, %i {axis = 1 : i64} : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2x3xf32>
  // CHECK: tensor.gather_nd %x, %j : tensor<9x4xf32>, tensor<5x1xi32> -> tensor<5x4xf32>
  %3 = tensor.gather_nd %x, %j : tensor<9x4xf32>, tensor<5x1xi32> -> tensor<5x4xf32>
  // CHECK: tensor.gather_nd %u, %j {batch_dims = 1 : i64} : tensor<5x4xf32>, tensor<5x1xi32> -> tensor<5xf32>
  %4 = tensor.gather_nd %u, %j {batch_dims = 1 : i64} : tensor<5x4xf32>, tensor<5x1xi32> -> tensor<5xf32>
  // CHECK: tensor.scatter_elements %x, %i, %v {axis = 1 : i64} : tensor<9x4xf32>, tensor<2x3xi64>, tensor<2x3xf32> -> tensor<9x4xf32>
  %5 = tensor.scatter_elements %x, %i, %v {axis = 1 : i64} : tensor<9x4xf32>, tensor<2x3xi64>, tensor<2x3xf32> -> tensor<9x4xf32>
  // CHECK: tensor.scatter_elements %x, %i, %v {reduction = "max"} : tensor<9x4xf32>, tensor<2x3xi64>, tensor<2x3xf32> -> tensor<9x4xf32>
  %6 = tensor.scatter_elements %x, %i, %v {reduction = "max"} : tensor<9x4xf32>, tensor<2x3xi64>, tensor<2x3xf32> -> tensor<9x4xf32>
  // CHECK: tensor.scatter_nd %x, %j, %u {reduction = "add"} : tensor<9x4xf32>, tensor<5x1xi32>, tensor<5x4xf32> -> tensor<9x4xf32>
  %7 = tensor.scatter_nd %x, %j, %u {reduction = "add"} : tensor<9x4xf32>, tensor<5x1xi32>, tensor<5x4xf32> -> tensor<9x4xf32>
  // CHECK: tensor.iota {shape = array<i64: 4>, dtype = "i64"} : tensor<4xi64>
  %8 = tensor.iota {shape = array<i64: 4>, dtype = "i64"} : tensor<4xi64>
  // CHECK: tensor.iota {shape = array<i64: 2, 4>, dtype = "f32", axis = 1 : i64} : tensor<2x4xf32>
  %9 = tensor.iota {shape = array<i64: 2, 4>, dtype = "f32", axis = 1 : i64} : tensor<2x4xf32>
  func.return
}
