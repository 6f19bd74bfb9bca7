// RUN: headrace-opt %s -p order-ops --split-input-file | filecheck %s

// What follows from a product is right behind it; products stay in their order.
// CHECK-LABEL: @behind
// CHECK-NEXT:    [[A:%.*]] = tensor.matmul %x, %a
// CHECK-NEXT:    [[RA:%.*]] = tensor.relu [[A]]
// CHECK-NEXT:    [[B:%.*]] = tensor.matmul %x, %b
// CHECK-NEXT:    [[RB:%.*]] = tensor.sigmoid [[B]]
// CHECK-NEXT:    [[M:%.*]] = tensor.mul [[RA]], [[RB]]
// CHECK-NEXT:    func.return [[M]]
func.func @behind(%x : tensor<2x4xf32>, %a : tensor<4x3xf32>, %b : tensor<4x3xf32>) -> tensor<2x3xf32> {
  %0 = tensor.matmul %x, %a : tensor<2x4xf32>, tensor<4x3xf32> -> tensor<2x3xf32>
  %1 = tensor.matmul %x, %b : tensor<2x4xf32>, tensor<4x3xf32> -> tensor<2x3xf32>
  %2 = tensor.relu %0 : tensor<2x3xf32> -> tensor<2x3xf32>
  %3 = tensor.sigmoid %1 : tensor<2x3xf32> -> tensor<2x3xf32>
  %4 = tensor.mul %2, %3 : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<2x3xf32>
  return %4 : tensor<2x3xf32>
}

// -----

// In order already: nothing moves, and nothing is said to have changed.
// CHECK-LABEL: @ordered
// CHECK-NEXT:    tensor.neg
// CHECK-NEXT:    tensor.exp
// CHECK-NEXT:    tensor.abs
// CHECK-NEXT:    tensor.add
func.func @ordered(%x : tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.neg %x : tensor<4xf32> -> tensor<4xf32>
  %1 = tensor.exp %0 : tensor<4xf32> -> tensor<4xf32>
  %2 = tensor.abs %x : tensor<4xf32> -> tensor<4xf32>
  %3 = tensor.add %1, %2 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  return %3 : tensor<4xf32>
}
