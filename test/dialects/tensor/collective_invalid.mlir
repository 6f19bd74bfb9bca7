// What collectives refuse, and why.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.all_reduce: kind is "sum" but must be one of add, max, min, mul}}
  %0 = tensor.all_reduce %x {kind = "sum", axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xi1>) {
  // expected-error @+1 {{tensor.all_reduce: input has element type i1 but must be a number type, not i1}}
  %0 = tensor.all_reduce %x {axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x3xi1> -> tensor<2x3xi1>
  func.return
}

// -----

func.func @f(%x: tensor<2xf32>) {
  // expected-error @+1 {{tensor.all_reduce: axes is empty; a collective is over one axis of the mesh or more}}
  %0 = tensor.all_reduce %x {axes = [], sizes = array<i64>, strides = array<i64>} : tensor<2xf32> -> tensor<2xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2xf32>) {
  // expected-error @+1 {{tensor.all_gather: axes, sizes and strides have 1, 2 and 1 elements; each axis has one of each}}
  %0 = tensor.all_gather %x {axis = 0 : i64, axes = ["tp"], sizes = array<i64: 2, 4>, strides = array<i64: 1>} : tensor<2xf32> -> tensor<16xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2xf32>) {
  // expected-error @+1 {{tensor.permute: axis 'pp' has size 4 and stride 0; both are at least 1}}
  %0 = tensor.permute %x {axes = ["pp"], sizes = array<i64: 4>, strides = array<i64: 0>} : tensor<2xf32> -> tensor<2xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2xf32>) {
  // expected-error @+1 {{tensor.permute: strides [1, 2] of sizes [4, 2] share sockets}}
  %0 = tensor.permute %x {axes = ["dp", "tp"], sizes = array<i64: 4, 2>, strides = array<i64: 1, 2>} : tensor<2xf32> -> tensor<2xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.reduce_scatter: dim 1 has size 3, which 8 sockets do not share evenly}}
  %0 = tensor.reduce_scatter %x {axis = 1 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{tensor.socket_slice: axis 2 is out of range for rank 2}}
  %0 = tensor.socket_slice %x {axis = 2 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x8xf32> -> tensor<2x1xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x8xf32>) {
  // expected-error @+1 {{tensor.all_to_all: concat 2 is out of range for rank 2}}
  %0 = tensor.all_to_all %x {split = 1 : i64, concat = 2 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2x8xf32> -> tensor<2x8xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2xf32>) {
  // expected-error @+1 {{tensor.all_gather: result type is tensor<2xf32> but operands and attributes give tensor<16xf32>}}
  %0 = tensor.all_gather %x {axis = 0 : i64, axes = ["tp"], sizes = array<i64: 8>, strides = array<i64: 1>} : tensor<2xf32> -> tensor<2xf32>
  func.return
}

// -----

func.func @f(%x: tensor<3xf32>, %y: tensor<4xf32>) {
  // expected-error @+1 {{tensor.socket_choose: operands are tensor<3xf32>, tensor<4xf32>; they are of one type}}
  %0 = tensor.socket_choose %x, %y {axes = ["pp"], sizes = array<i64: 2>, strides = array<i64: 4>} : tensor<3xf32>, tensor<4xf32> -> tensor<3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<3xf32>) {
  // expected-error @+1 {{tensor.socket_choose: 1 operands for a group of 2 sockets; each has one}}
  %0 = tensor.socket_choose %x {axes = ["pp"], sizes = array<i64: 2>, strides = array<i64: 4>} : tensor<3xf32> -> tensor<3xf32>
  func.return
}
