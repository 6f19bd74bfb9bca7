// RUN: headrace-opt %s -p check-native-types --split-input-file --verify-diagnostics

// Weights, constants, moves and indices may have any type.
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<4x2xf64>, %i: tensor<3xi64>, %y: tensor<4x2xf32>) -> (tensor<2x4xf64>, tensor<3x2xf32>) {
    %0 = tensor.transpose %x {perm = array<i64: 1, 0>} : tensor<4x2xf64> -> tensor<2x4xf64>
    %1 = tensor.gather %y, %i : tensor<4x2xf32>, tensor<3xi64> -> tensor<3x2xf32>
    func.return %0, %1 : tensor<2x4xf64>, tensor<3x2xf32>
  }
}

// -----

// All ops that compute in types that the device emulates, at once.
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<4xf64>, %i: tensor<4xi64>) -> (tensor<4xf64>, tensor<4xi64>) {
    // expected-error @+1 {{tensor.exp computes in f64, which sn40l emulates}}
    %0 = tensor.exp %x : tensor<4xf64> -> tensor<4xf64>
    // expected-error @+1 {{tensor.add computes in i64, which sn40l emulates}}
    %1 = tensor.add %i, %i : tensor<4xi64>, tensor<4xi64> -> tensor<4xi64>
    func.return %0, %1 : tensor<4xf64>, tensor<4xi64>
  }
}
