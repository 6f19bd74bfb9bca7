// What movement ops refuse, and why.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.reshape: tensor<2x3xf32> has 6 elements but shape [4, 2] has 8}}
  %0 = tensor.reshape %x {shape = array<i64: 4, 2>} : tensor<2x3xf32> -> tensor<4x2xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.reshape: shape [-1, 2] has a negative size}}
  %0 = tensor.reshape %x {shape = array<i64: -1, 2>} : tensor<2x3xf32> -> tensor<3x2xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.transpose: perm [0, 0] is not a permutation of the 2 dims of the operand}}
  %0 = tensor.transpose %x {perm = array<i64: 0, 0>} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{result type is tensor<2x3xf32> but operands and attributes give tensor<3x2xf32>}}
  %0 = tensor.transpose %x {perm = array<i64: 1, 0>} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.broadcast: tensor<2x3xf32> has more dims than shape [3]}}
  %0 = tensor.broadcast %x {shape = array<i64: 3>} : tensor<2x3xf32> -> tensor<3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.broadcast: dim 1 of tensor<2x3xf32> has size 3, which does not broadcast to 6}}
  %0 = tensor.broadcast %x {shape = array<i64: 2, 6>} : tensor<2x3xf32> -> tensor<2x6xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.slice: starts [0] has 1 entries but tensor<2x3xf32> has 2 dims}}
  %0 = tensor.slice %x {starts = array<i64: 0>, stops = array<i64: 2, 3>, steps = array<i64: 1, 1>} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.slice: slice 0 to 4 by 1 leaves dim 1 of tensor<2x3xf32>, which has size 3 (bounds must lie in 0..3)}}
  %0 = tensor.slice %x {starts = array<i64: 0, 0>, stops = array<i64: 2, 4>, steps = array<i64: 1, 1>} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.slice: slice 2 to -1 by -1 leaves dim 0 of tensor<2x3xf32>, which has size 2 (bounds must lie in -1..1)}}
  %0 = tensor.slice %x {starts = array<i64: 2, 0>, stops = array<i64: -1, 3>, steps = array<i64: -1, 1>} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.slice: step of dim 1 is 0}}
  %0 = tensor.slice %x {starts = array<i64: 0, 0>, stops = array<i64: 2, 3>, steps = array<i64: 1, 0>} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x3xf32>) {
  // expected-error @+1 {{tensor.concat: dim 0 of operand 1 has size 3 but of operand 0 has 2}}
  %0 = tensor.concat %x, %y {axis = 1 : i64} : tensor<2x3xf32>, tensor<3x3xf32> -> tensor<2x6xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<2x3xf16>) {
  // expected-error @+1 {{tensor.concat: operand 1 is tensor<2x3xf16> but operand 0 has elements f32}}
  %0 = tensor.concat %x, %y {axis = 1 : i64} : tensor<2x3xf32>, tensor<2x3xf16> -> tensor<2x6xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<2xf32>) {
  // expected-error @+1 {{tensor.concat: operand 1 is tensor<2xf32> but operand 0 has 2 dims}}
  %0 = tensor.concat %x, %y {axis = 1 : i64} : tensor<2x3xf32>, tensor<2xf32> -> tensor<2x6xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.split: sizes [1, 1] add up to 2 but dim 1 of tensor<2x3xf32> has size 3}}
  %0, %1 = tensor.split %x {axis = 1 : i64, sizes = array<i64: 1, 1>} : tensor<2x3xf32> -> tensor<2x1xf32>, tensor<2x1xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.pad: dim 1 is padded by -1 and 0; negative padding is a slice}}
  %0 = tensor.pad %x {lo = array<i64: 0, -1>, hi = array<i64: 0, 0>} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.pad: dim 0 of size 2 is padded by 2 and 0 but mode 'reflect' allows at most 1}}
  %0 = tensor.pad %x {lo = array<i64: 2, 0>, hi = array<i64: 0, 0>, mode = "reflect"} : tensor<2x3xf32> -> tensor<4x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.pad: mode 'wrap' is not constant, reflect or edge}}
  %0 = tensor.pad %x {lo = array<i64: 0, 0>, hi = array<i64: 0, 0>, mode = "wrap"} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}
