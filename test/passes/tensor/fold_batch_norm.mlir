// RUN: headrace-opt %s -p 'fold-batch-norm,fold-constants,dce' --split-input-file | filecheck %s

// The filters and the bias are derived weights, the batch norm is gone.
// CHECK:       tensor.recipe
// CHECK-LABEL: @folded
// CHECK-NEXT:    %[[B:.*]] = tensor.weight "mean|neg|mul([scale|div([variance|add(1e-05)|sqrt])])|add(bias)"
// CHECK-NEXT:    %[[W:.*]] = tensor.weight "w|mul([scale|div([variance|add(1e-05)|sqrt])|reshape(4x1x1x1)])"
// CHECK-NEXT:    tensor.conv %x, %[[W]], %[[B]] {strides = array<i64: 2, 2>}
// CHECK-NEXT:    func.return
func.func @folded(%x : tensor<1x2x8x8xf32>) -> tensor<1x4x3x3xf32> {
  %w = tensor.weight "w" : tensor<4x2x3x3xf32>
  %s = tensor.weight "scale" : tensor<4xf32>
  %b = tensor.weight "bias" : tensor<4xf32>
  %m = tensor.weight "mean" : tensor<4xf32>
  %v = tensor.weight "variance" : tensor<4xf32>
  %0 = tensor.conv %x, %w {strides = array<i64: 2, 2>} : tensor<1x2x8x8xf32>, tensor<4x2x3x3xf32> -> tensor<1x4x3x3xf32>
  %1 = tensor.batch_norm %0, %s, %b, %m, %v : tensor<1x4x3x3xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<1x4x3x3xf32>
  return %1 : tensor<1x4x3x3xf32>
}

// -----

// The convolution is needed without it, too.
// CHECK-LABEL: @other_user
// CHECK:         tensor.batch_norm
func.func @other_user(%x : tensor<1x2x4xf32>) -> (tensor<1x2x4xf32>, tensor<1x2x4xf32>) {
  %w = tensor.weight "w" : tensor<2x2x1xf32>
  %s = tensor.weight "s" : tensor<2xf32>
  %0 = tensor.conv %x, %w : tensor<1x2x4xf32>, tensor<2x2x1xf32> -> tensor<1x2x4xf32>
  %1 = tensor.batch_norm %0, %s, %s, %s, %s : tensor<1x2x4xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32> -> tensor<1x2x4xf32>
  return %0, %1 : tensor<1x2x4xf32>, tensor<1x2x4xf32>
}
