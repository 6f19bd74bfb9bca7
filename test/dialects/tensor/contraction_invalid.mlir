// What matmul, convolution and pooling refuse, and why.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics

func.func @f(%a: tensor<4x768xf32>, %b: tensor<512x8xf32>) {
  // expected-error @+1 {{tensor.matmul: lhs has 768 columns but rhs has 512 rows}}
  %r = tensor.matmul %a, %b : tensor<4x768xf32>, tensor<512x8xf32> -> tensor<4x8xf32>
  func.return
}

// -----

func.func @f(%a: tensor<768xf32>, %b: tensor<512xf32>) {
  // expected-error @+1 {{tensor.matmul: lhs has 768 columns but rhs has 512 rows}}
  %r = tensor.matmul %a, %b : tensor<768xf32>, tensor<512xf32> -> tensor<f32>
  func.return
}

// -----

func.func @f(%a: tensor<f32>, %b: tensor<5xf32>) {
  // expected-error @+1 {{tensor.matmul: lhs has no dims; a matmul needs one or more}}
  %r = tensor.matmul %a, %b : tensor<f32>, tensor<5xf32> -> tensor<f32>
  func.return
}

// -----

func.func @f(%a: tensor<2x4x5xf32>, %b: tensor<3x5x6xf32>) {
  // expected-error @+1 {{tensor.matmul: lhs batch dim 0 has size 2 but rhs batch dim 0 has size 3; broadcasting needs equal sizes or 1}}
  %r = tensor.matmul %a, %b : tensor<2x4x5xf32>, tensor<3x5x6xf32> -> tensor<2x4x6xf32>
  func.return
}

// -----

func.func @f(%a: tensor<4x5xf32>, %b: tensor<5x6xbf16>) {
  // expected-error @+1 {{tensor.matmul: lhs has element type f32 but rhs has bf16; cast one of them}}
  %r = tensor.matmul %a, %b : tensor<4x5xf32>, tensor<5x6xbf16> -> tensor<4x6xf32>
  func.return
}

// -----

func.func @f(%a: tensor<4x5xi1>, %b: tensor<5x6xi1>) {
  // expected-error @+1 {{lhs has element type i1 but must be a number type, not i1}}
  %r = tensor.matmul %a, %b : tensor<4x5xi1>, tensor<5x6xi1> -> tensor<4x6xi1>
  func.return
}

// -----

func.func @f(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>) {
  // expected-error @+1 {{tensor.matmul: accumulate is "i32" but operands of f32 need a floating-point type}}
  %r = tensor.matmul %a, %b {accumulate = "i32"} : tensor<4x5xf32>, tensor<5x6xf32> -> tensor<4x6xf32>
  func.return
}

// -----

func.func @f(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>) {
  // expected-error @+1 {{tensor.matmul: accumulate is "bf16", which does not hold every f32}}
  %r = tensor.matmul %a, %b {accumulate = "bf16"} : tensor<4x5xf32>, tensor<5x6xf32> -> tensor<4x6xf32>
  func.return
}

// -----

func.func @f(%a: tensor<4x5xi8>, %b: tensor<5x6xi8>) {
  // expected-error @+1 {{tensor.matmul: accumulate is "ui32", which does not hold every i8}}
  %r = tensor.matmul %a, %b {accumulate = "ui32"} : tensor<4x5xi8>, tensor<5x6xi8> -> tensor<4x6xui32>
  func.return
}

// -----

func.func @f(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>) {
  // expected-error @+1 {{tensor.matmul: accumulate is "f8" but must be one of}}
  %r = tensor.matmul %a, %b {accumulate = "f8"} : tensor<4x5xf32>, tensor<5x6xf32> -> tensor<4x6xf32>
  func.return
}

// -----

func.func @f(%a: tensor<4x5xi8>, %b: tensor<5x6xi8>) {
  // expected-error @+1 {{result type is tensor<4x6xi8> but operands and attributes give tensor<4x6xi32>}}
  %r = tensor.matmul %a, %b {accumulate = "i32"} : tensor<4x5xi8>, tensor<5x6xi8> -> tensor<4x6xi8>
  func.return
}

// -----

func.func @f(%x: tensor<1x3x8x8xf32>, %w: tensor<4x2x3x3xf32>) {
  // expected-error @+1 {{tensor.conv: input has 3 channels but the filter takes 2}}
  %r = tensor.conv %x, %w : tensor<1x3x8x8xf32>, tensor<4x2x3x3xf32> -> tensor<1x4x6x6xf32>
  func.return
}

// -----

func.func @f(%x: tensor<1x4x8x8xf32>, %w: tensor<4x4x3x3xf32>) {
  // expected-error @+1 {{tensor.conv: input has 4 channels but the filter takes 4 in each of 2 groups}}
  %r = tensor.conv %x, %w {groups = 2 : i64} : tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32> -> tensor<1x4x6x6xf32>
  func.return
}

// -----

func.func @f(%x: tensor<1x4x8x8xf32>, %w: tensor<3x1x3x3xf32>) {
  // expected-error @+1 {{tensor.conv: groups is 3 but must divide 4 input and 3 output channels}}
  %r = tensor.conv %x, %w {groups = 3 : i64} : tensor<1x4x8x8xf32>, tensor<3x1x3x3xf32> -> tensor<1x3x6x6xf32>
  func.return
}

// -----

func.func @f(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x3xf32>) {
  // expected-error @+1 {{tensor.conv: filter has 3 dims but the input has 4}}
  %r = tensor.conv %x, %w : tensor<1x3x8x8xf32>, tensor<4x3x3xf32> -> tensor<1x4x6x6xf32>
  func.return
}

// -----

func.func @f(%x: tensor<3x8xf32>, %w: tensor<4x3xf32>) {
  // expected-error @+1 {{tensor.conv: input has 2 dims but must have 3 to 5: batch, channels and spatial dims}}
  %r = tensor.conv %x, %w : tensor<3x8xf32>, tensor<4x3xf32> -> tensor<4x8xf32>
  func.return
}

// -----

func.func @f(%x: tensor<1x3x8x2xf32>, %w: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{tensor.conv: the kernel spans 3 elements but spatial dim 1 has 2 with its pads}}
  %r = tensor.conv %x, %w : tensor<1x3x8x2xf32>, tensor<4x3x3x3xf32> -> tensor<1x4x6x1xf32>
  func.return
}

// -----

func.func @f(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{tensor.conv: pads has 2 entries but 2 spatial dims need 4}}
  %r = tensor.conv %x, %w {pads = array<i64: 1, 1>} : tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32> -> tensor<1x4x8x8xf32>
  func.return
}

// -----

func.func @f(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{tensor.conv: strides is [0, 1]; entries must be 1 or more}}
  %r = tensor.conv %x, %w {strides = array<i64: 0, 1>} : tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32> -> tensor<1x4x6x6xf32>
  func.return
}

// -----

func.func @f(%x: tensor<1x3x8xf32>, %w: tensor<4x3x3xf32>, %b: tensor<3xf32>) {
  // expected-error @+1 {{tensor.conv: bias is tensor<3xf32> but the filter has 4 output channels}}
  %r = tensor.conv %x, %w, %b : tensor<1x3x8xf32>, tensor<4x3x3xf32>, tensor<3xf32> -> tensor<1x4x6xf32>
  func.return
}

// -----

func.func @f(%x: tensor<1x3x8x8xf32>) {
  // expected-error @+1 {{tensor.max_pool: kernel has 1 entries but 2 spatial dims need 2}}
  %r = tensor.max_pool %x {kernel = array<i64: 3>} : tensor<1x3x8x8xf32> -> tensor<1x3x6x6xf32>
  func.return
}

// -----

func.func @f(%x: tensor<1x3x8xf32>) {
  // expected-error @+1 {{tensor.max_pool: pads of spatial dim 0 are 2 and 0 but must be below 2, what the kernel spans}}
  %r = tensor.max_pool %x {kernel = array<i64: 2>, pads = array<i64: 2, 0>} : tensor<1x3x8xf32> -> tensor<1x3x9xf32>
  func.return
}

// -----

func.func @f(%x: tensor<1x3x8xi1>) {
  // expected-error @+1 {{tensor.max_pool: operand has element type i1}}
  %r = tensor.max_pool %x {kernel = array<i64: 2>} : tensor<1x3x8xi1> -> tensor<1x3x7xi1>
  func.return
}

// -----

func.func @f(%x: tensor<1x3x8xi32>) {
  // expected-error @+1 {{tensor.avg_pool: operand has element type i32 but must be a floating-point type}}
  %r = tensor.avg_pool %x {kernel = array<i64: 2>} : tensor<1x3x8xi32> -> tensor<1x3x7xi32>
  func.return
}

// -----

func.func @f(%x: tensor<1x3x8xf32>) {
  // expected-error @+1 {{property 'kernel' expected in operation 'tensor.avg_pool'}}
  %r = tensor.avg_pool %x : tensor<1x3x8xf32> -> tensor<1x3x7xf32>
  func.return
}
