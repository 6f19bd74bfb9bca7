// RUN: headrace-opt %s -p check-native-types --verify-diagnostics

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
