// RUN: headrace-opt %s -p expose-padding --split-input-file | filecheck %s

// Padding of a convolution becomes a pad that the mapping can fold into a buffer.

// CHECK-LABEL: @conv
// CHECK: [[P:%.*]] = tensor.pad %{{.*}} {{.*}}tensor<1x2x4x4xf32> -> tensor<1x2x6x6xf32>
// CHECK: tensor.conv [[P]], %{{.*}} : tensor<1x2x6x6xf32>, tensor<3x2x3x3xf32> -> tensor<1x3x4x4xf32>
func.func @conv(%x: tensor<1x2x4x4xf32>, %w: tensor<3x2x3x3xf32>) -> tensor<1x3x4x4xf32> {
  %0 = tensor.conv %x, %w {pads = array<i64: 1, 1, 1, 1>} : tensor<1x2x4x4xf32>, tensor<3x2x3x3xf32> -> tensor<1x3x4x4xf32>
  func.return %0 : tensor<1x3x4x4xf32>
}

// -----

// A maximum is padded with the lowest value, so that padding never wins.

// CHECK-LABEL: @pool
// CHECK: tensor.pad %{{.*}} {{.*}}value = 0xfff0000000000000
// CHECK: tensor.max_pool
// CHECK-NOT: pads
func.func @pool(%x: tensor<1x1x4x4xf32>) -> tensor<1x1x2x2xf32> {
  %0 = tensor.max_pool %x {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 0, 0>} : tensor<1x1x4x4xf32> -> tensor<1x1x2x2xf32>
  func.return %0 : tensor<1x1x2x2xf32>
}
