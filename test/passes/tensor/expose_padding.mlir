// RUN: headrace-opt %s -p expose-padding --split-input-file | filecheck %s

// Padding of a convolution becomes a pad that the mapping can fold into a buffer.
// BEGIN CHECK (generated: `python -m headrace.tools.update_tests`)
// CHECK-LABEL: func.func @conv(
// CHECK-SAME:  %[[X:.*]]: tensor<1x2x4x4xf32>, %[[W:.*]]: tensor<3x2x3x3xf32>) -> tensor<1x3x4x4xf32> {
// CHECK-NEXT:    %[[PAD:.*]] = tensor.pad %[[X]] {lo = array<i64: 0, 0, 1, 1>, hi = array<i64: 0, 0, 1, 1>} : tensor<1x2x4x4xf32> -> tensor<1x2x6x6xf32>
// CHECK-NEXT:    %[[CONV:.*]] = tensor.conv %[[PAD]], %[[W]] : tensor<1x2x6x6xf32>, tensor<3x2x3x3xf32> -> tensor<1x3x4x4xf32>
// CHECK-NEXT:    func.return %[[CONV]] : tensor<1x3x4x4xf32>
// CHECK-NEXT:  }
// END CHECK
func.func @conv(%x: tensor<1x2x4x4xf32>, %w: tensor<3x2x3x3xf32>) -> tensor<1x3x4x4xf32> {
  %0 = tensor.conv %x, %w {pads = array<i64: 1, 1, 1, 1>} : tensor<1x2x4x4xf32>, tensor<3x2x3x3xf32> -> tensor<1x3x4x4xf32>
  func.return %0 : tensor<1x3x4x4xf32>
}

// -----

// A maximum is padded with the lowest value, so that padding never wins.
// BEGIN CHECK (generated: `python -m headrace.tools.update_tests`)
// CHECK-LABEL: func.func @pool(
// CHECK-SAME:  %[[X:.*]]: tensor<1x1x4x4xf32>) -> tensor<1x1x2x2xf32> {
// CHECK-NEXT:    %[[PAD:.*]] = tensor.pad %[[X]] {lo = array<i64: 0, 0, 1, 1>, hi = array<i64: 0, 0, 0, 0>, value = 0xfff0000000000000 : f64} : tensor<1x1x4x4xf32> -> tensor<1x1x5x5xf32>
// CHECK-NEXT:    %[[MAX_POOL:.*]] = tensor.max_pool %[[PAD]] {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>} : tensor<1x1x5x5xf32> -> tensor<1x1x2x2xf32>
// CHECK-NEXT:    func.return %[[MAX_POOL]] : tensor<1x1x2x2xf32>
// CHECK-NEXT:  }
// END CHECK
func.func @pool(%x: tensor<1x1x4x4xf32>) -> tensor<1x1x2x2xf32> {
  %0 = tensor.max_pool %x {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 0, 0>} : tensor<1x1x4x4xf32> -> tensor<1x1x2x2xf32>
  func.return %0 : tensor<1x1x2x2xf32>
}
