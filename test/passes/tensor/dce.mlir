// RUN: headrace-opt %s -p dce | filecheck %s

// Dead ops go, whole chains of them; so do recipes and private functions that nothing needs, with what only they need.
// CHECK-NOT:   @unused
// CHECK:       tensor.recipe @needed
// CHECK-NOT:   @unused
// CHECK-LABEL: @main
// CHECK-NEXT:    tensor.weight "used"
// CHECK-NEXT:    func.call @called
// CHECK-NEXT:    func.return
// CHECK:       func.func private @called
// CHECK:         tensor.weight "needed"
// CHECK-NOT:   @uncalled
tensor.recipe @unused {
  %0 = tensor.weight "w" : tensor<2xf32>
  tensor.yield %0 : tensor<2xf32>
}
tensor.recipe @needed {
  %0 = tensor.weight "w" : tensor<2xf32>
  tensor.yield %0 : tensor<2xf32>
}
func.func @main(%x : tensor<2xf32>) -> tensor<2xf32> {
  %w = tensor.weight "used" : tensor<2xf32>
  %v = tensor.weight "unused" : tensor<2xf32>
  %0 = tensor.exp %x : tensor<2xf32> -> tensor<2xf32>
  %1 = tensor.add %0, %v : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
  %2 = func.call @called(%w) : (tensor<2xf32>) -> tensor<2xf32>
  return %2 : tensor<2xf32>
}
func.func private @called(%x : tensor<2xf32>) -> tensor<2xf32> {
  %0 = tensor.weight "needed" : tensor<2xf32>
  %1 = tensor.add %x, %0 : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>
  return %1 : tensor<2xf32>
}
func.func private @uncalled(%x : tensor<2xf32>) -> tensor<2xf32> {
  %0 = tensor.weight "needed" : tensor<2xf32>
  %1 = func.call @called(%0) : (tensor<2xf32>) -> tensor<2xf32>
  %2 = func.call @uncalled_too(%1) : (tensor<2xf32>) -> tensor<2xf32>
  return %2 : tensor<2xf32>
}
func.func private @uncalled_too(%x : tensor<2xf32>) -> tensor<2xf32> {
  %0 = tensor.weight "unused" : tensor<2xf32>
  return %0 : tensor<2xf32>
}
