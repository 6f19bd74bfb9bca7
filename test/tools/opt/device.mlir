// --device puts a device into the module, so that plain programs go through all levels; numbers are checked at each.
// RUN: headrace-opt %s --device plasticine -p default --check-numbers 2>&1 | filecheck %s
// CHECK-DAG: numbers after tile: largest error
// CHECK-DAG: numbers after place: not checked, units run once they are routed
// CHECK-DAG: numbers after route: largest error
// CHECK-DAG: machine.device = #machine.device<"plasticine"
// CHECK-DAG: rdu.config @main_0 routed
func.func @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %w = tensor.weight "w" : tensor<4x4xf32>
  %0 = tensor.matmul %x, %w : tensor<8x4xf32>, tensor<4x4xf32> -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}
