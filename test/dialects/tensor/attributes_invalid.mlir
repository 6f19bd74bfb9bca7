// RUN: headrace-opt %s --split-input-file --verify-diagnostics

// An attribute that the op does not have is refused, not carried along; a dialect's own may stand on any op.
func.func @misspelt(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @+1 {{tensor.softmax: there is no attribute 'axes'; did you mean 'axis'?}}
  %0 = tensor.softmax %x {axes = 1} : tensor<4x8xf32> -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @none(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{tensor.exp: there is no attribute 'axis'; it has none}}
  %0 = tensor.exp %x {axis = 0, test.note = "stays"} : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @of_a_dialect(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.exp %x {test.note = "stays"} : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
