// RUN: headrace-opt %s -p 'fold-constants,dce' --split-input-file | filecheck %s

// Constants are computed.
// CHECK-LABEL: @constants
// CHECK-NEXT:    %[[C:.*]] = tensor.constant dense<[5.000000e-01, 1.000000e+00]> : tensor<2xf32>
// CHECK-NEXT:    func.return %[[C]]
func.func @constants() -> tensor<2xf32> {
  %half = tensor.constant dense<0.5> : tensor<f32>
  %c = tensor.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %0 = tensor.mul %c, %half : tensor<2xf32>, tensor<f32> -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

// What is too large for the program is a recipe without weights.
// CHECK:       tensor.recipe @"iota(axis=1,dtype=i64,shape=40x50)|add(1)" {
// CHECK:         tensor.yield
// CHECK-LABEL: @large
// CHECK-NEXT:    tensor.weight "iota(axis=1,dtype=i64,shape=40x50)|add(1)" : tensor<40x50xi64>
// CHECK-NEXT:    func.return
func.func @large() -> tensor<40x50xi64> {
  %one = tensor.constant dense<1> : tensor<i64>
  %0 = tensor.iota {dtype = "i64", shape = array<i64: 40, 50>, axis = 1 : i64} : tensor<40x50xi64>
  %1 = tensor.add %0, %one : tensor<40x50xi64>, tensor<i64> -> tensor<40x50xi64>
  return %1 : tensor<40x50xi64>
}

// -----

// A transposed weight is a derived weight.
// CHECK:       tensor.recipe @"w|transpose" {
// CHECK-NEXT:    %[[W:.*]] = tensor.weight "w" : tensor<16x8xf32>
// CHECK-NEXT:    %[[T:.*]] = tensor.transpose %[[W]] {perm = array<i64: 1, 0>}
// CHECK-NEXT:    tensor.yield %[[T]] : tensor<8x16xf32>
// CHECK-LABEL: @transposed
// CHECK-NEXT:    %[[D:.*]] = tensor.weight "w|transpose" : tensor<8x16xf32>
// CHECK-NEXT:    tensor.matmul %x, %[[D]]
func.func @transposed(%x : tensor<4x8xf32>) -> tensor<4x16xf32> {
  %w = tensor.weight "w" : tensor<16x8xf32>
  %t = tensor.transpose %w {perm = array<i64: 1, 0>} : tensor<16x8xf32> -> tensor<8x16xf32>
  %y = tensor.matmul %x, %t : tensor<4x8xf32>, tensor<8x16xf32> -> tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}

// -----

// A large weight that is needed as it is, too, is not stored twice: its transpose stays a view.
// CHECK-NOT:   tensor.recipe
// CHECK-LABEL: @tied
// CHECK:         tensor.weight "wte"
// CHECK:         tensor.gather
// CHECK:         tensor.transpose
func.func @tied(%ids : tensor<1xi64>, %x : tensor<1x64xf32>) -> (tensor<1x64xf32>, tensor<1x9999xf32>) {
  %w = tensor.weight "wte" : tensor<9999x64xf32>
  %e = tensor.gather %w, %ids : tensor<9999x64xf32>, tensor<1xi64> -> tensor<1x64xf32>
  %t = tensor.transpose %w {perm = array<i64: 1, 0>} : tensor<9999x64xf32> -> tensor<64x9999xf32>
  %y = tensor.matmul %x, %t : tensor<1x64xf32>, tensor<64x9999xf32> -> tensor<1x9999xf32>
  return %e, %y : tensor<1x64xf32>, tensor<1x9999xf32>
}

// -----

// Two halves of a weight take no more room than the weight. Their keys say which half.
// CHECK-DAG:   tensor.recipe @"w|slice(:,0:4096)"
// CHECK-DAG:   tensor.recipe @"w|slice(:,4096:8192)"
// CHECK-LABEL: @halves
// CHECK-NOT:     tensor.slice
func.func @halves(%x : tensor<64x4096xf32>) -> (tensor<64x4096xf32>, tensor<64x4096xf32>) {
  %w = tensor.weight "w" : tensor<64x8192xf32>
  %a = tensor.slice %w {starts = array<i64: 0, 0>, stops = array<i64: 64, 4096>, steps = array<i64: 1, 1>} : tensor<64x8192xf32> -> tensor<64x4096xf32>
  %b = tensor.slice %w {starts = array<i64: 0, 4096>, stops = array<i64: 64, 8192>, steps = array<i64: 1, 1>} : tensor<64x8192xf32> -> tensor<64x4096xf32>
  %0 = tensor.mul %x, %a : tensor<64x4096xf32>, tensor<64x4096xf32> -> tensor<64x4096xf32>
  %1 = tensor.mul %x, %b : tensor<64x4096xf32>, tensor<64x4096xf32> -> tensor<64x4096xf32>
  return %0, %1 : tensor<64x4096xf32>, tensor<64x4096xf32>
}

// -----

// A widening cast would store more bytes than the weight has: it stays, what it is applied to does not.
// CHECK:       tensor.recipe @"w|transpose"
// CHECK-NOT:   tensor.recipe
// CHECK-LABEL: @widened
// CHECK-NEXT:    %[[W:.*]] = tensor.weight "w|transpose" : tensor<64x512xbf16>
// CHECK-NEXT:    %[[C:.*]] = tensor.cast %[[W]]
// CHECK-NEXT:    tensor.matmul %x, %[[C]]
func.func @widened(%x : tensor<1x64xf32>) -> tensor<1x512xf32> {
  %w = tensor.weight "w" : tensor<512x64xbf16>
  %t = tensor.transpose %w {perm = array<i64: 1, 0>} : tensor<512x64xbf16> -> tensor<64x512xbf16>
  %c = tensor.cast %t {to = "f32"} : tensor<64x512xbf16> -> tensor<64x512xf32>
  %y = tensor.matmul %x, %c : tensor<1x64xf32>, tensor<64x512xf32> -> tensor<1x512xf32>
  return %y : tensor<1x512xf32>
}

// -----

// Arithmetic on weights is done once; a weight of the model that has the key of a recipe moves the recipe aside.
// CHECK:       tensor.recipe @"b|mul(0.5)#{{[0-9a-f]+}}"
// CHECK-LABEL: @scaled
// CHECK-NOT:     tensor.mul
// CHECK:         func.return
func.func @scaled(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %half = tensor.constant dense<0.5> : tensor<f32>
  %a = tensor.weight "b|mul(0.5)" : tensor<8xf32>
  %b = tensor.weight "b" : tensor<8xf32>
  %c = tensor.mul %b, %half : tensor<8xf32>, tensor<f32> -> tensor<8xf32>
  %0 = tensor.add %x, %a : tensor<4x8xf32>, tensor<8xf32> -> tensor<4x8xf32>
  %1 = tensor.add %0, %c : tensor<4x8xf32>, tensor<8xf32> -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// -----

// An op on constants that fails when it is evaluated fails where it stands, not here.
// CHECK-LABEL: @failing
// CHECK:         tensor.gather
func.func @failing() -> tensor<1xf32> {
  %c = tensor.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %i = tensor.constant dense<[7]> : tensor<1xi64>
  %0 = tensor.gather %c, %i : tensor<2xf32>, tensor<1xi64> -> tensor<1xf32>
  return %0 : tensor<1xf32>
}
