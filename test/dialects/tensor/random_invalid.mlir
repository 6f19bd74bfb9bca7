// What random words refuse, and why.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics

func.func @f(%state: tensor<2xui64>, %at: tensor<8xui64>) {
  // expected-error @+1 {{tensor.philox: state is tensor<2xui64> but must be tensor<3xui64>: the counter's halves and the key}}
  %r = tensor.philox %state, %at, %at : tensor<2xui64>, tensor<8xui64>, tensor<8xui64> -> tensor<8x4xui32>
  func.return
}

// -----

func.func @f(%state: tensor<3xi64>, %at: tensor<8xui64>) {
  // expected-error @+1 {{tensor.philox: state is tensor<3xi64> but must be of ui64}}
  %r = tensor.philox %state, %at, %at : tensor<3xi64>, tensor<8xui64>, tensor<8xui64> -> tensor<8x4xui32>
  func.return
}

// -----

func.func @f(%state: tensor<3xui64>, %rows: tensor<3xui64>, %columns: tensor<8xui64>) {
  // expected-error @+1 {{tensor.philox: rows dim 0 has size 3 but columns dim 0 has size 8; broadcasting needs equal sizes or 1}}
  %r = tensor.philox %state, %rows, %columns : tensor<3xui64>, tensor<3xui64>, tensor<8xui64> -> tensor<8x4xui32>
  func.return
}

// -----

func.func @f(%state: tensor<3xui64>, %at: tensor<8xui64>) {
  // expected-error @+1 {{tensor.philox: result type is tensor<8x4xi32> but operands and attributes give tensor<8x4xui32>}}
  %r = tensor.philox %state, %at, %at : tensor<3xui64>, tensor<8xui64>, tensor<8xui64> -> tensor<8x4xi32>
  func.return
}
