// Collectives round-trip; what has its default value is not printed.
// RUN: headrace-opt %s | filecheck %s
// RUN: headrace-opt %s | headrace-opt | filecheck %s
// RUN: headrace-opt %s --print-op-generic | headrace-opt | filecheck %s

// CHECK-LABEL: func.func @f0(
func.func @f0(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  // CHECK-NEXT: tensor.all_reduce %x {axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x3xf32> -> tensor<2x3xf32>
  %0 = tensor.all_reduce %x {axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @f1(
func.func @f1(%x: tensor<2x3xbf16>) -> tensor<2x3xbf16> {
  // CHECK-NEXT: tensor.all_reduce %x {kind = "max", axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x3xbf16> -> tensor<2x3xbf16>
  %0 = tensor.all_reduce %x {kind = "max", axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x3xbf16> -> tensor<2x3xbf16>
  func.return %0 : tensor<2x3xbf16>
}

// CHECK-LABEL: func.func @f2(
func.func @f2(%x: tensor<2x3xf32>) -> tensor<2x24xf32> {
  // CHECK-NEXT: tensor.all_gather %x {axis = 1 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x3xf32> -> tensor<2x24xf32>
  %0 = tensor.all_gather %x {axis = 1 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x3xf32> -> tensor<2x24xf32>
  func.return %0 : tensor<2x24xf32>
}

// CHECK-LABEL: func.func @f3(
func.func @f3(%x: tensor<2x24xi32>) -> tensor<2x3xi32> {
  // CHECK-NEXT: tensor.reduce_scatter %x {axis = -1 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x24xi32> -> tensor<2x3xi32>
  %0 = tensor.reduce_scatter %x {axis = -1 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x24xi32> -> tensor<2x3xi32>
  func.return %0 : tensor<2x3xi32>
}

// CHECK-LABEL: func.func @f4(
func.func @f4(%x: tensor<8x3xf32>) -> tensor<1x24xf32> {
  // CHECK-NEXT: tensor.all_to_all %x {split = 0 : i64, concat = 1 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<8x3xf32> -> tensor<1x24xf32>
  %0 = tensor.all_to_all %x {split = 0 : i64, concat = 1 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<8x3xf32> -> tensor<1x24xf32>
  func.return %0 : tensor<1x24xf32>
}

// CHECK-LABEL: func.func @f5(
func.func @f5(%x: tensor<2x3xi1>) -> tensor<2x3xi1> {
  // CHECK-NEXT: tensor.permute %x {by = -1 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x3xi1> -> tensor<2x3xi1>
  %0 = tensor.permute %x {by = -1 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x3xi1> -> tensor<2x3xi1>
  func.return %0 : tensor<2x3xi1>
}

// CHECK-LABEL: func.func @f6(
func.func @f6(%x: tensor<2x3xi1>) -> tensor<2x3xi1> {
  // CHECK-NEXT: tensor.permute %x {axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x3xi1> -> tensor<2x3xi1>
  %0 = tensor.permute %x {axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x3xi1> -> tensor<2x3xi1>
  func.return %0 : tensor<2x3xi1>
}

// CHECK-LABEL: func.func @f7(
func.func @f7(%x: tensor<24x3xf32>) -> tensor<3x3xf32> {
  // CHECK-NEXT: tensor.socket_slice %x {axis = 0 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<24x3xf32> -> tensor<3x3xf32>
  %0 = tensor.socket_slice %x {axis = 0 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<24x3xf32> -> tensor<3x3xf32>
  func.return %0 : tensor<3x3xf32>
}

// CHECK-LABEL: func.func @two_axes(
func.func @two_axes() -> tensor<i32> {
  // CHECK-NEXT: tensor.socket_index {axes = ["dp", "tp"], sizes = array<i64: 2, 4>, strides = array<i64: 8, 1>} : tensor<i32>
  %0 = tensor.socket_index {axes = ["dp", "tp"], sizes = array<i64: 2, 4>, strides = array<i64: 8, 1>} : tensor<i32>
  func.return %0 : tensor<i32>
}

// CHECK-LABEL: func.func @choose(
func.func @choose(%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
  // CHECK-NEXT: tensor.socket_choose %x, %y {axes = ["pp"], sizes = array<i64: 2>, strides = array<i64: 4>} : tensor<3xf32>, tensor<3xf32> -> tensor<3xf32>
  %0 = tensor.socket_choose %x, %y {axes = ["pp"], sizes = array<i64: 2>, strides = array<i64: 4>} : tensor<3xf32>, tensor<3xf32> -> tensor<3xf32>
  func.return %0 : tensor<3xf32>
}
