// Matmul, convolution and pooling: both printed forms parse to the same; defaults are not printed.
// RUN: headrace-opt %s | filecheck %s
// RUN: headrace-opt %s | headrace-opt | filecheck %s
// RUN: headrace-opt %s --print-op-generic | headrace-opt | filecheck %s

// CHECK-LABEL: func.func @matmul(
func.func @matmul(%a: tensor<8x4x16xf32>, %b: tensor<16x32xf32>) -> tensor<8x4x32xf32> {
  // CHECK-NEXT: tensor.matmul %a, %b : tensor<8x4x16xf32>, tensor<16x32xf32> -> tensor<8x4x32xf32>
  %r = tensor.matmul %a, %b : tensor<8x4x16xf32>, tensor<16x32xf32> -> tensor<8x4x32xf32>
  func.return %r : tensor<8x4x32xf32>
}

// CHECK-LABEL: func.func @conv(
func.func @conv(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x3x3xf32>) -> tensor<1x4x8x8xf32> {
  // CHECK-NEXT: tensor.conv %x, %w {pads = array<i64: 1, 1, 1, 1>} : tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32> -> tensor<1x4x8x8xf32>
  %r = tensor.conv %x, %w {pads = array<i64: 1, 1, 1, 1>} : tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32> -> tensor<1x4x8x8xf32>
  func.return %r : tensor<1x4x8x8xf32>
}

// CHECK-LABEL: func.func @max_pool(
func.func @max_pool(%x: tensor<1x3x8x8xf32>) -> tensor<1x3x4x4xf32> {
  // CHECK-NEXT: tensor.max_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} : tensor<1x3x8x8xf32> -> tensor<1x3x4x4xf32>
  %r = tensor.max_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} : tensor<1x3x8x8xf32> -> tensor<1x3x4x4xf32>
  func.return %r : tensor<1x3x4x4xf32>
}

// CHECK-LABEL: func.func @avg_pool(
func.func @avg_pool(%x: tensor<1x3x8x8xf32>) -> tensor<1x3x4x4xf32> {
  // CHECK-NEXT: tensor.avg_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} : tensor<1x3x8x8xf32> -> tensor<1x3x4x4xf32>
  %r = tensor.avg_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>} : tensor<1x3x8x8xf32> -> tensor<1x3x4x4xf32>
  func.return %r : tensor<1x3x4x4xf32>
}

// CHECK-LABEL: func.func @matmul_2(
func.func @matmul_2(%a: tensor<16xf32>, %b: tensor<16xf32>) -> tensor<f32> {
  // CHECK-NEXT: tensor.matmul %a, %b : tensor<16xf32>, tensor<16xf32> -> tensor<f32>
  %r = tensor.matmul %a, %b : tensor<16xf32>, tensor<16xf32> -> tensor<f32>
  func.return %r : tensor<f32>
}

// CHECK-LABEL: func.func @matmul_3(
func.func @matmul_3(%a: tensor<16xf32>, %b: tensor<3x16x8xf32>) -> tensor<3x8xf32> {
  // CHECK-NEXT: tensor.matmul %a, %b : tensor<16xf32>, tensor<3x16x8xf32> -> tensor<3x8xf32>
  %r = tensor.matmul %a, %b : tensor<16xf32>, tensor<3x16x8xf32> -> tensor<3x8xf32>
  func.return %r : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @matmul_4(
func.func @matmul_4(%a: tensor<3x4x16xf32>, %b: tensor<16xf32>) -> tensor<3x4xf32> {
  // CHECK-NEXT: tensor.matmul %a, %b : tensor<3x4x16xf32>, tensor<16xf32> -> tensor<3x4xf32>
  %r = tensor.matmul %a, %b : tensor<3x4x16xf32>, tensor<16xf32> -> tensor<3x4xf32>
  func.return %r : tensor<3x4xf32>
}

// CHECK-LABEL: func.func @matmul_5(
func.func @matmul_5(%a: tensor<3x1x4x16xf32>, %b: tensor<5x16x8xf32>) -> tensor<3x5x4x8xf32> {
  // CHECK-NEXT: tensor.matmul %a, %b : tensor<3x1x4x16xf32>, tensor<5x16x8xf32> -> tensor<3x5x4x8xf32>
  %r = tensor.matmul %a, %b : tensor<3x1x4x16xf32>, tensor<5x16x8xf32> -> tensor<3x5x4x8xf32>
  func.return %r : tensor<3x5x4x8xf32>
}

// CHECK-LABEL: func.func @matmul_6(
func.func @matmul_6(%a: tensor<4x16xi8>, %b: tensor<16x8xi8>) -> tensor<4x8xi32> {
  // CHECK-NEXT: tensor.matmul %a, %b {accumulate = "i32"} : tensor<4x16xi8>, tensor<16x8xi8> -> tensor<4x8xi32>
  %r = tensor.matmul %a, %b {accumulate = "i32"} : tensor<4x16xi8>, tensor<16x8xi8> -> tensor<4x8xi32>
  func.return %r : tensor<4x8xi32>
}

// CHECK-LABEL: func.func @conv_2(
func.func @conv_2(%x: tensor<1x4x9xf32>, %w: tensor<6x2x3xf32>, %b: tensor<6xf32>) -> tensor<1x6x3xf32> {
  // CHECK-NEXT: tensor.conv %x, %w, %b {strides = array<i64: 2>, dilations = array<i64: 2>, groups = 2 : i64} : tensor<1x4x9xf32>, tensor<6x2x3xf32>, tensor<6xf32> -> tensor<1x6x3xf32>
  %r = tensor.conv %x, %w, %b {strides = array<i64: 2>, dilations = array<i64: 2>, groups = 2 : i64} : tensor<1x4x9xf32>, tensor<6x2x3xf32>, tensor<6xf32> -> tensor<1x6x3xf32>
  func.return %r : tensor<1x6x3xf32>
}

// CHECK-LABEL: func.func @conv_3(
func.func @conv_3(%x: tensor<2x3x5x6x7xbf16>, %w: tensor<4x3x1x2x3xbf16>) -> tensor<2x4x5x5x5xbf16> {
  // CHECK-NEXT: tensor.conv %x, %w : tensor<2x3x5x6x7xbf16>, tensor<4x3x1x2x3xbf16> -> tensor<2x4x5x5x5xbf16>
  %r = tensor.conv %x, %w : tensor<2x3x5x6x7xbf16>, tensor<4x3x1x2x3xbf16> -> tensor<2x4x5x5x5xbf16>
  func.return %r : tensor<2x4x5x5x5xbf16>
}

// CHECK-LABEL: func.func @max_pool_2(
func.func @max_pool_2(%x: tensor<1x3x8xi32>) -> tensor<1x3x5xi32> {
  // CHECK-NEXT: tensor.max_pool %x {kernel = array<i64: 3>, strides = array<i64: 2>, pads = array<i64: 1, 1>, ceil = true} : tensor<1x3x8xi32> -> tensor<1x3x5xi32>
  %r = tensor.max_pool %x {kernel = array<i64: 3>, strides = array<i64: 2>, pads = array<i64: 1, 1>, ceil = true} : tensor<1x3x8xi32> -> tensor<1x3x5xi32>
  func.return %r : tensor<1x3x5xi32>
}

// CHECK-LABEL: func.func @avg_pool_2(
func.func @avg_pool_2(%x: tensor<1x3x8xf32>) -> tensor<1x3x4xf32> {
  // CHECK-NEXT: tensor.avg_pool %x {kernel = array<i64: 3>, strides = array<i64: 2>, pads = array<i64: 1, 1>, count_include_pad = true} : tensor<1x3x8xf32> -> tensor<1x3x4xf32>
  %r = tensor.avg_pool %x {kernel = array<i64: 3>, strides = array<i64: 2>, pads = array<i64: 1, 1>, count_include_pad = true} : tensor<1x3x8xf32> -> tensor<1x3x4xf32>
  func.return %r : tensor<1x3x4xf32>
}
