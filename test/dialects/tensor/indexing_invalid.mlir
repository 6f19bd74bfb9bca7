// What indexing ops refuse, and why.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<9x4xf32>, %i: tensor<3xf32>) {
  // expected-error @+1 {{tensor.gather: indices are i32 or i64, found tensor<3xf32>}}
  %0 = tensor.gather %x, %i : tensor<9x4xf32>, tensor<3xf32> -> tensor<3x4xf32>
  func.return
}

// -----

func.func @f(%x: tensor<9x4xf32>, %i: tensor<2x3xi64>, %u: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.gather: axis 2 is out of range for rank 2}}
  %0 = tensor.gather %x, %i {axis = 2 : i64} : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2x3x4xf32>
  func.return
}

// -----

func.func @f(%x: tensor<1x4xf32>, %i: tensor<2x3xi64>) {
  // expected-error @+1 {{tensor.gather_elements: dim 0 of indices has size 2 but of data only 1}}
  %0 = tensor.gather_elements %x, %i {axis = 1 : i64} : tensor<1x4xf32>, tensor<2x3xi64> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<9xf32>, %i: tensor<2x3xi64>) {
  // expected-error @+1 {{tensor.gather_elements: indices tensor<2x3xi64> need as many dims as data tensor<9xf32>}}
  %0 = tensor.gather_elements %x, %i : tensor<9xf32>, tensor<2x3xi64> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<9x4xf32>, %i: tensor<2x3xi64>, %u: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.gather_nd: index tuples have 3 coordinates but data tensor<9x4xf32> has 2 dims to index}}
  %0 = tensor.gather_nd %x, %i : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2xf32>
  func.return
}

// -----

func.func @f(%x: tensor<9x4xf32>, %i: tensor<2x3xi64>, %u: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.gather_nd: the first 1 dims of data tensor<9x4xf32> and indices tensor<2x3xi64> differ}}
  %0 = tensor.gather_nd %x, %i {batch_dims = 1 : i64} : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2xf32>
  func.return
}

// -----

func.func @f(%x: tensor<9x4xf32>, %i: tensor<2x3xi64>, %u: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.gather_nd: batch_dims 2 is out of range for data tensor<9x4xf32> and indices tensor<2x3xi64>}}
  %0 = tensor.gather_nd %x, %i {batch_dims = 2 : i64} : tensor<9x4xf32>, tensor<2x3xi64> -> tensor<2xf32>
  func.return
}

// -----

func.func @f(%x: tensor<9x4xf32>, %i: tensor<2x3xi64>, %u: tensor<2x2xf32>) {
  // expected-error @+1 {{tensor.scatter_elements: indices tensor<2x3xi64> and updates tensor<2x2xf32> differ in shape}}
  %0 = tensor.scatter_elements %x, %i, %u : tensor<9x4xf32>, tensor<2x3xi64>, tensor<2x2xf32> -> tensor<9x4xf32>
  func.return
}

// -----

func.func @f(%x: tensor<9x4xf32>, %i: tensor<2x3xi64>, %u: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.scatter_elements: reduction 'sum' is not one of none, add, mul, min, max}}
  %0 = tensor.scatter_elements %x, %i, %u {reduction = "sum"} : tensor<9x4xf32>, tensor<2x3xi64>, tensor<2x3xf32> -> tensor<9x4xf32>
  func.return
}

// -----

func.func @f(%x: tensor<9x4xf32>, %i: tensor<5x1xi64>, %u: tensor<5x3xf32>) {
  // expected-error @+1 {{tensor.scatter_nd: updates are tensor<5x3xf32> but indices and data give tensor<5x4xf32>}}
  %0 = tensor.scatter_nd %x, %i, %u : tensor<9x4xf32>, tensor<5x1xi64>, tensor<5x3xf32> -> tensor<9x4xf32>
  func.return
}

// -----

func.func @f(%x: tensor<9x4xf32>, %i: tensor<5x1xi64>, %u: tensor<5x4xf16>) {
  // expected-error @+1 {{tensor.scatter_nd: updates are tensor<5x4xf16> but data has elements f32}}
  %0 = tensor.scatter_nd %x, %i, %u : tensor<9x4xf32>, tensor<5x1xi64>, tensor<5x4xf16> -> tensor<9x4xf32>
  func.return
}

// -----

func.func @f() {
  // expected-error @+1 {{tensor.iota: dtype 'i1' is not a number type}}
  %0 = tensor.iota {shape = array<i64: 4>, dtype = "i1"} : tensor<4xi1>
  func.return
}

// -----

func.func @f() {
  // expected-error @+1 {{tensor.iota: axis 1 is out of range for rank 1}}
  %0 = tensor.iota {shape = array<i64: 4>, dtype = "i64", axis = 1 : i64} : tensor<4xi64>
  func.return
}
