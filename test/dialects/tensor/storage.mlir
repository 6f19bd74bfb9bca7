// Weights, constants and recipes: both printed forms parse to the same.
// RUN: headrace-opt %s | filecheck %s
// RUN: headrace-opt %s | headrace-opt | filecheck %s
// RUN: headrace-opt %s --print-op-generic | headrace-opt | filecheck %s
// RUN: headrace-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

// CHECK:      tensor.recipe @transposed {
// CHECK-NEXT:   %0 = tensor.weight "w" : tensor<4x2xf32>
// CHECK-NEXT:   %1 = tensor.transpose %0 {perm = array<i64: 1, 0>} : tensor<4x2xf32> -> tensor<2x4xf32>
// CHECK-NEXT:   tensor.yield %1 : tensor<2x4xf32>
// CHECK-NEXT: }
tensor.recipe @transposed {
  %0 = tensor.weight "w" : tensor<4x2xf32>
  %1 = tensor.transpose %0 {perm = array<i64: 1, 0>} : tensor<4x2xf32> -> tensor<2x4xf32>
  tensor.yield %1 : tensor<2x4xf32>
}

// A key may hold any character; a recipe may use another.
// CHECK: tensor.recipe @"a/b.c 0" {
// CHECK: tensor.weight "transposed" : tensor<2x4xf32>
tensor.recipe @"a/b.c 0" {
  %0 = tensor.weight "transposed" : tensor<2x4xf32>
  tensor.yield %0 : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @main(
func.func @main(%x: tensor<2x4xf32> {tensor.name = "x"}) -> tensor<2x4xf32> {
  // CHECK: %w = tensor.weight "a/b.c 0" : tensor<2x4xf32>
  %w = tensor.weight "a/b.c 0" : tensor<2x4xf32>
  // CHECK: tensor.constant dense<{{\[\[}}1, -2], [3, 4]]> : tensor<2x2xi32>
  %0 = tensor.constant dense<[[1, -2], [3, 4]]> : tensor<2x2xi32>
  // Infinities and NaNs are bits. Equal elements are one.
  // CHECK: tensor.constant dense<[0x7F800000, 0xFF800000, 0x7FC00000, 1.000000e-01]> : tensor<4xf32>
  // GENERIC: "tensor.constant"() <{value = #tensor.literal<[0x7F800000, 0xFF800000, 0x7FC00000, 1.000000e-01] : tensor<4xf32>>}> : () -> tensor<4xf32>
  %1 = tensor.constant dense<[0x7F800000, 0xFF800000, 0x7FC00000, 0.1]> : tensor<4xf32>
  // CHECK: tensor.constant dense<0xFF800000> : tensor<512x512xf32>
  // GENERIC: #tensor.literal<0xFF800000 : tensor<512x512xf32>>
  %2 = tensor.constant dense<0xFF800000> : tensor<512x512xf32>
  // CHECK: tensor.constant dense<2.500000e-01> : tensor<2x2xbf16>
  %3 = tensor.constant dense<[[0.25, 0.25], [0.25, 0.25]]> : tensor<2x2xbf16>
  // CHECK: tensor.constant dense<[true, false, true]> : tensor<3xi1>
  %4 = tensor.constant dense<[1, 0, true]> : tensor<3xi1>
  // CHECK: tensor.constant dense<> : tensor<2x0xi64>
  // GENERIC: #tensor.literal< : tensor<2x0xi64>>
  %5 = tensor.constant dense<> : tensor<2x0xi64>
  // CHECK: tensor.constant dense<7> : tensor<ui8>
  %6 = tensor.constant dense<7> : tensor<ui8>
  // More than 64 elements are bytes; a truth value takes a byte.
  // CHECK: tensor.constant dense<"0x00010001
  %7 = tensor.constant dense<"0x000100010001000100010001000100010001000100010001000100010001000100010001000100010001000100010001000100010001000100010001000100010001"> : tensor<66xi1>
  // CHECK: tensor.constant dense<[9.3{{.*}}]> {note = "kept"} : tensor<2xf16>
  %8 = tensor.constant dense<[9.375000e+00, 65504.0]> {note = "kept"} : tensor<2xf16>
  func.return %w : tensor<2x4xf32>
}
