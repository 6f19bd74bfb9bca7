// What reductions refuse, and why.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.reduce_sum: axes 2 is out of range for rank 2}}
  %0 = tensor.reduce_sum %x {axes = array<i64: 2>} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.reduce_mean: axes [1, -1] repeat a dim of a rank-2 operand}}
  %0 = tensor.reduce_mean %x {axes = array<i64: 1, -1>} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2xi1>) {
  // expected-error @+1 {{operand tensor<2xi1> holds truth values; cast it to a number type first}}
  %0 = tensor.reduce_prod %x {axes = array<i64: 0>} : tensor<2xi1> -> tensor<1xi1>
  func.return
}

// -----

func.func @f(%x: tensor<2x0xf32>) {
  // expected-error @+1 {{nothing to reduce: dim 1 of tensor<2x0xf32> has size 0}}
  %0 = tensor.reduce_max %x {axes = array<i64: 1>} : tensor<2x0xf32> -> tensor<2x1xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.reduce_min: result type is tensor<2xf32> but operands and attributes give tensor<2x1xf32>}}
  %0 = tensor.reduce_min %x {axes = array<i64: 1>} : tensor<2x3xf32> -> tensor<2xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.argmax: axis -3 is out of range for rank 2}}
  %0 = tensor.argmax %x {axis = -3 : i64} : tensor<2x3xf32> -> tensor<2x1xi64>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.argmin: result type is tensor<2x1xi32> but operands and attributes give tensor<2x1xi64>}}
  %0 = tensor.argmin %x {axis = 1 : i64} : tensor<2x3xf32> -> tensor<2x1xi32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.cumsum: axis 2 is out of range for rank 2}}
  %0 = tensor.cumsum %x {axis = 2 : i64} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2xi7>) {
  // expected-error @+1 {{unsupported element type i7}}
  %0 = tensor.cumsum %x {axis = 0 : i64} : tensor<2xi7> -> tensor<2xi7>
  func.return
}

// -----

func.func @f(%x: tensor<?xf32>) {
  // expected-error @+1 {{shapes are static in Headrace, found tensor<?xf32>}}
  %0 = tensor.cumsum %x {axis = 0 : i64} : tensor<?xf32> -> tensor<?xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.sort: axis -3 is out of range for rank 2}}
  %0, %1 = tensor.sort %x {axis = -3 : i64} : tensor<2x3xf32> -> tensor<2x3xf32>, tensor<2x3xi64>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.sort: result type is tensor<2x3xf32>, tensor<2x3xi32> but operands and attributes give}}
  %0, %1 = tensor.sort %x {axis = 0 : i64} : tensor<2x3xf32> -> tensor<2x3xf32>, tensor<2x3xi32>
  func.return
}
