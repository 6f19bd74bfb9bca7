// RUN: headrace-opt %s -p linearize-scatters --split-input-file | filecheck %s

// An index pair into a cache becomes one row number of the cache seen as rows.

// CHECK-LABEL: @tuples
// CHECK-SAME: (%[[C:[a-z]+]]: tensor<2x8x4xf32>
// CHECK: [[ROWS:%.*]] = tensor.reshape %[[C]] {{.*}}-> tensor<16x4xf32>
// CHECK: [[NEW:%.*]] = tensor.scatter_nd [[ROWS]], %{{.*}}, %{{.*}} : tensor<16x4xf32>, tensor<3x1xi64>, tensor<3x4xf32> -> tensor<16x4xf32>
// CHECK: tensor.reshape [[NEW]] {{.*}}-> tensor<2x8x4xf32>
func.func @tuples(%c: tensor<2x8x4xf32>, %i: tensor<3x2xi64>, %u: tensor<3x4xf32>) -> tensor<2x8x4xf32> {
  %0 = tensor.scatter_nd %c, %i, %u : tensor<2x8x4xf32>, tensor<3x2xi64>, tensor<3x4xf32> -> tensor<2x8x4xf32>
  func.return %0 : tensor<2x8x4xf32>
}

// -----

// Elements along an axis are rows of one element.

// CHECK-LABEL: @elements
// CHECK: tensor.reshape {{.*}}-> tensor<64xf32>
// CHECK: tensor.scatter_nd {{.*}} : tensor<64xf32>, tensor<8x1xi64>, tensor<8xf32> -> tensor<64xf32>
func.func @elements(%c: tensor<2x8x4xf32>, %i: tensor<2x1x4xi64>, %u: tensor<2x1x4xf32>) -> tensor<2x8x4xf32> {
  %0 = tensor.scatter_elements %c, %i, %u {axis = 1 : i64} : tensor<2x8x4xf32>, tensor<2x1x4xi64>, tensor<2x1x4xf32> -> tensor<2x8x4xf32>
  func.return %0 : tensor<2x8x4xf32>
}

// -----

// An index out of its own dim must not become a row of another: it becomes a row that there is not.

// CHECK-LABEL: @checked
// CHECK: [[ONE:%.*]] = tensor.select
// CHECK: [[LOW:%.*]] = tensor.less [[ONE]], %{{.*}}
// CHECK: [[HIGH:%.*]] = tensor.greater_equal [[ONE]], %{{.*}}
// CHECK: [[OUT:%.*]] = tensor.or [[LOW]], [[HIGH]]
// CHECK: [[NONE:%.*]] = tensor.constant dense<2> : tensor<i64>
// CHECK: tensor.select [[OUT]], [[NONE]], [[ONE]]
func.func @checked(%c: tensor<2x8x4xf32>, %i: tensor<3x2xi64>, %u: tensor<3x4xf32>) -> tensor<2x8x4xf32> {
  %0 = tensor.scatter_nd %c, %i, %u : tensor<2x8x4xf32>, tensor<3x2xi64>, tensor<3x4xf32> -> tensor<2x8x4xf32>
  func.return %0 : tensor<2x8x4xf32>
}

// -----

// Row numbers beyond what the indices' type holds are computed in a wider one; with one dim they are the indices.

// CHECK-LABEL: @wide
// CHECK: tensor.cast %i {to = "i64"}
// CHECK-LABEL: @one
// CHECK-NOT: tensor.select
func.func @wide(%c: tensor<65536x65536xf32>, %i: tensor<3x2xi32>, %u: tensor<3xf32>) -> tensor<65536x65536xf32> {
  %0 = tensor.scatter_nd %c, %i, %u : tensor<65536x65536xf32>, tensor<3x2xi32>, tensor<3xf32> -> tensor<65536x65536xf32>
  func.return %0 : tensor<65536x65536xf32>
}
func.func @one(%c: tensor<64xf32>, %i: tensor<3xi32>, %u: tensor<3xf32>) -> tensor<64xf32> {
  %0 = tensor.scatter_elements %c, %i, %u {axis = 0 : i64} : tensor<64xf32>, tensor<3xi32>, tensor<3xf32> -> tensor<64xf32>
  func.return %0 : tensor<64xf32>
}

// -----

// Indices that were put side by side are taken as they were: those into a dim that is known stay constants.

// CHECK-LABEL: @beside
// CHECK-NOT: tensor.slice
// CHECK: tensor.reshape %[[HEAD:[0-9]+]] {shape = array<i64: 2>}
// CHECK-NOT: tensor.slice
// CHECK: tensor.reshape %at {shape = array<i64: 2>}
// CHECK-NOT: tensor.slice
// CHECK: tensor.scatter_nd
func.func @beside(%c: tensor<2x8x4xf32>, %at: tensor<1x2x1xi64>, %u: tensor<2x4xf32>) -> tensor<2x8x4xf32> {
  %0 = tensor.constant dense<[[[0], [1]]]> : tensor<1x2x1xi64>
  %1 = tensor.concat %0, %at {axis = 2 : i64} : tensor<1x2x1xi64>, tensor<1x2x1xi64> -> tensor<1x2x2xi64>
  %2 = tensor.reshape %1 {shape = array<i64: 2, 2>} : tensor<1x2x2xi64> -> tensor<2x2xi64>
  %3 = tensor.scatter_nd %c, %2, %u : tensor<2x8x4xf32>, tensor<2x2xi64>, tensor<2x4xf32> -> tensor<2x8x4xf32>
  func.return %3 : tensor<2x8x4xf32>
}

// -----

// A tensor without elements has no rows to number, wherever its dim of size 0 is; indices of none are numbered.

// CHECK-LABEL: @nothing
// CHECK-NEXT: tensor.scatter_elements %b, %i, %b {axis = 1 : i64}
// CHECK-NEXT: tensor.scatter_elements %b, %i, %b {axis = 2 : i64}
// CHECK-NEXT: tensor.scatter_nd %b, %n, %u
// CHECK-NEXT: tensor.scatter_nd %b, %p, %v
// CHECK-NEXT: func.return
func.func @nothing(%b: tensor<1x2x0xf32>, %i: tensor<1x2x0xi64>, %n: tensor<0x3xi64>, %u: tensor<0xf32>, %p: tensor<4x2xi64>, %v: tensor<4x0xf32>) -> (tensor<1x2x0xf32>, tensor<1x2x0xf32>, tensor<1x2x0xf32>, tensor<1x2x0xf32>) {
  %0 = tensor.scatter_elements %b, %i, %b {axis = 1 : i64} : tensor<1x2x0xf32>, tensor<1x2x0xi64>, tensor<1x2x0xf32> -> tensor<1x2x0xf32>
  %1 = tensor.scatter_elements %b, %i, %b {axis = 2 : i64} : tensor<1x2x0xf32>, tensor<1x2x0xi64>, tensor<1x2x0xf32> -> tensor<1x2x0xf32>
  %2 = tensor.scatter_nd %b, %n, %u : tensor<1x2x0xf32>, tensor<0x3xi64>, tensor<0xf32> -> tensor<1x2x0xf32>
  %3 = tensor.scatter_nd %b, %p, %v : tensor<1x2x0xf32>, tensor<4x2xi64>, tensor<4x0xf32> -> tensor<1x2x0xf32>
  func.return %0, %1, %2, %3 : tensor<1x2x0xf32>, tensor<1x2x0xf32>, tensor<1x2x0xf32>, tensor<1x2x0xf32>
}
// CHECK-LABEL: @none
// CHECK: tensor.scatter_nd {{.*}} : tensor<64xf32>, tensor<0x1xi64>, tensor<0xf32> -> tensor<64xf32>
// CHECK: tensor.scatter_nd {{.*}} : tensor<16x4xf32>, tensor<0x1xi64>, tensor<0x4xf32> -> tensor<16x4xf32>
func.func @none(%c: tensor<2x8x4xf32>, %d: tensor<2x8x4xf32>, %i: tensor<2x0x4xi64>, %u: tensor<2x0x4xf32>, %n: tensor<0x2xi64>, %v: tensor<0x4xf32>) -> (tensor<2x8x4xf32>, tensor<2x8x4xf32>) {
  %0 = tensor.scatter_elements %c, %i, %u {axis = 1 : i64} : tensor<2x8x4xf32>, tensor<2x0x4xi64>, tensor<2x0x4xf32> -> tensor<2x8x4xf32>
  %1 = tensor.scatter_nd %d, %n, %v : tensor<2x8x4xf32>, tensor<0x2xi64>, tensor<0x4xf32> -> tensor<2x8x4xf32>
  func.return %0, %1 : tensor<2x8x4xf32>, tensor<2x8x4xf32>
}
