// RUN: headrace-opt %s -p check-native-types | filecheck %s

// Unchanged: weights, constants, moves and indices may have any type.
// CHECK:      tensor.transpose
// CHECK-NEXT: tensor.gather
// CHECK-NEXT: func.return
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<4x2xf64>, %i: tensor<3xi64>, %y: tensor<4x2xf32>) -> (tensor<2x4xf64>, tensor<3x2xf32>) {
    %0 = tensor.transpose %x {perm = array<i64: 1, 0>} : tensor<4x2xf64> -> tensor<2x4xf64>
    %1 = tensor.gather %y, %i : tensor<4x2xf32>, tensor<3xi64> -> tensor<3x2xf32>
    func.return %0, %1 : tensor<2x4xf64>, tensor<3x2xf32>
  }
}
