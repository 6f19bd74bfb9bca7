// What is misspelt or missing is answered with what is near.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics

func.func @op(%x: tensor<4xf32>) {
  // expected-error @+1 {{Operation tensor.expp is not registered; did you mean 'tensor.exp'?}}
  %0 = tensor.expp %x : tensor<4xf32> -> tensor<4xf32>
}

// -----

func.func @dialect(%x: tensor<4xf32>) {
  // expected-error @+1 {{Operation tensr.exp is not registered; did you mean 'tensor.exp'?}}
  %0 = tensr.exp %x : tensor<4xf32> -> tensor<4xf32>
}

// -----

func.func @no_dialect(%x: tensor<4xf32>) {
  // expected-error @+1 {{Operation exp is not registered; did you mean 'tensor.exp'?}}
  %0 = exp %x : tensor<4xf32> -> tensor<4xf32>
}

// -----

// expected-error @* {{expected an op, a block or '}'; the text ends inside a region}}
func.func @open(%x: tensor<4xf32>) {
  func.return
