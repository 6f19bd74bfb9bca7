// Random words round-trip.
// RUN: headrace-opt %s | filecheck %s
// RUN: headrace-opt %s | headrace-opt | filecheck %s

// CHECK-LABEL: func.func @philox(
func.func @philox(%state: tensor<3xui64>, %rows: tensor<3x1xui64>, %columns: tensor<2xui64>) -> tensor<3x2x4xui32> {
  // CHECK-NEXT: tensor.philox %state, %rows, %columns : tensor<3xui64>, tensor<3x1xui64>, tensor<2xui64> -> tensor<3x2x4xui32>
  %r = tensor.philox %state, %rows, %columns : tensor<3xui64>, tensor<3x1xui64>, tensor<2xui64> -> tensor<3x2x4xui32>
  func.return %r : tensor<3x2x4xui32>
}

// CHECK-LABEL: func.func @one_block(
func.func @one_block(%state: tensor<3xui64>, %at: tensor<ui64>) -> tensor<4xui32> {
  // CHECK-NEXT: tensor.philox %state, %at, %at : tensor<3xui64>, tensor<ui64>, tensor<ui64> -> tensor<4xui32>
  %r = tensor.philox %state, %at, %at : tensor<3xui64>, tensor<ui64>, tensor<ui64> -> tensor<4xui32>
  func.return %r : tensor<4xui32>
}
