// Softmax, norms and attention: both printed forms parse to the same; defaults are not printed.
// RUN: headrace-opt %s | filecheck %s
// RUN: headrace-opt %s | headrace-opt | filecheck %s
// RUN: headrace-opt %s --print-op-generic | headrace-opt | filecheck %s

// CHECK-LABEL: func.func @softmax(
func.func @softmax(%x: tensor<2x4x8xf32>) -> tensor<2x4x8xf32> {
  // CHECK-NEXT: tensor.softmax %x {axis = 1 : i64} : tensor<2x4x8xf32> -> tensor<2x4x8xf32>
  %r = tensor.softmax %x {axis = 1 : i64} : tensor<2x4x8xf32> -> tensor<2x4x8xf32>
  func.return %r : tensor<2x4x8xf32>
}

// CHECK-LABEL: func.func @log_softmax(
func.func @log_softmax(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.log_softmax %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.log_softmax %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @layer_norm(
func.func @layer_norm(%x: tensor<4x768xf32>, %s: tensor<768xf32>, %b: tensor<768xf32>) -> tensor<4x768xf32> {
  // CHECK-NEXT: tensor.layer_norm %x, %s, %b : tensor<4x768xf32>, tensor<768xf32>, tensor<768xf32> -> tensor<4x768xf32>
  %r = tensor.layer_norm %x, %s, %b : tensor<4x768xf32>, tensor<768xf32>, tensor<768xf32> -> tensor<4x768xf32>
  func.return %r : tensor<4x768xf32>
}

// CHECK-LABEL: func.func @rms_norm(
func.func @rms_norm(%x: tensor<4x64xf32>, %s: tensor<64xf32>) -> tensor<4x64xf32> {
  // CHECK-NEXT: tensor.rms_norm %x, %s {epsilon = 1.000000e-06 : f64} : tensor<4x64xf32>, tensor<64xf32> -> tensor<4x64xf32>
  %r = tensor.rms_norm %x, %s {epsilon = 1.000000e-06 : f64} : tensor<4x64xf32>, tensor<64xf32> -> tensor<4x64xf32>
  func.return %r : tensor<4x64xf32>
}

// CHECK-LABEL: func.func @batch_norm(
func.func @batch_norm(%x: tensor<1x4x8x8xf32>, %s: tensor<4xf32>, %b: tensor<4xf32>, %m: tensor<4xf32>, %v: tensor<4xf32>)
    -> tensor<1x4x8x8xf32> {
  // CHECK-NEXT: tensor.batch_norm %x, %s, %b, %m, %v : tensor<1x4x8x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<1x4x8x8xf32>
  %r = tensor.batch_norm %x, %s, %b, %m, %v : tensor<1x4x8x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<1x4x8x8xf32>
  func.return %r : tensor<1x4x8x8xf32>
}

// CHECK-LABEL: func.func @group_norm(
func.func @group_norm(%x: tensor<1x4x8xf32>, %s: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<1x4x8xf32> {
  // CHECK-NEXT: tensor.group_norm %x, %s, %b {groups = 2 : i64} : tensor<1x4x8xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<1x4x8xf32>
  %r = tensor.group_norm %x, %s, %b {groups = 2 : i64} : tensor<1x4x8xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<1x4x8xf32>
  func.return %r : tensor<1x4x8xf32>
}

// CHECK-LABEL: func.func @attention(
func.func @attention(%q: tensor<12x64x32xf32>, %k: tensor<12x64x32xf32>, %v: tensor<12x64x32xf32>)
    -> tensor<12x64x32xf32> {
  // CHECK-NEXT: tensor.attention %q, %k, %v : tensor<12x64x32xf32>, tensor<12x64x32xf32>, tensor<12x64x32xf32> -> tensor<12x64x32xf32>
  %r = tensor.attention %q, %k, %v : tensor<12x64x32xf32>, tensor<12x64x32xf32>, tensor<12x64x32xf32> -> tensor<12x64x32xf32>
  func.return %r : tensor<12x64x32xf32>
}

// CHECK-LABEL: func.func @softmax_2(
func.func @softmax_2(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.softmax %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.softmax %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @layer_norm_2(
func.func @layer_norm_2(%x: tensor<4x2x3xf32>, %s: tensor<2x3xf32>) -> tensor<4x2x3xf32> {
  // CHECK-NEXT: tensor.layer_norm %x, %s {axis = 1 : i64, epsilon = 1.000000e-12 : f64} : tensor<4x2x3xf32>, tensor<2x3xf32> -> tensor<4x2x3xf32>
  %r = tensor.layer_norm %x, %s {axis = 1 : i64, epsilon = 1.000000e-12 : f64} : tensor<4x2x3xf32>, tensor<2x3xf32> -> tensor<4x2x3xf32>
  func.return %r : tensor<4x2x3xf32>
}

// CHECK-LABEL: func.func @attention_2(
func.func @attention_2(%q: tensor<2x12x1x32xf32>, %k: tensor<12x64x32xf32>, %v: tensor<64x16xf32>, %m: tensor<1x64xi1>)
    -> tensor<2x12x1x16xf32> {
  // CHECK-NEXT: tensor.attention %q, %k, %v, %m {scale = 5.000000e-01 : f64, causal = true} : tensor<2x12x1x32xf32>, tensor<12x64x32xf32>, tensor<64x16xf32>, tensor<1x64xi1> -> tensor<2x12x1x16xf32>
  %r = tensor.attention %q, %k, %v, %m {scale = 5.000000e-01 : f64, causal = true} : tensor<2x12x1x32xf32>, tensor<12x64x32xf32>, tensor<64x16xf32>, tensor<1x64xi1> -> tensor<2x12x1x16xf32>
  func.return %r : tensor<2x12x1x16xf32>
}

// CHECK-LABEL: func.func @attention_3(
func.func @attention_3(%q: tensor<2x4xf32>, %k: tensor<3x4xf32>, %v: tensor<3x5xf32>, %m: tensor<2x3xf32>)
    -> tensor<2x5xf32> {
  // CHECK-NEXT: tensor.attention %q, %k, %v, %m : tensor<2x4xf32>, tensor<3x4xf32>, tensor<3x5xf32>, tensor<2x3xf32> -> tensor<2x5xf32>
  %r = tensor.attention %q, %k, %v, %m : tensor<2x4xf32>, tensor<3x4xf32>, tensor<3x5xf32>, tensor<2x3xf32> -> tensor<2x5xf32>
  func.return %r : tensor<2x5xf32>
}
