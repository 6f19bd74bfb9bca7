// --device puts a device into the module, so that plain programs go through all levels; the results are compared at each.
// RUN: headrace-opt %s --device plasticine -p default --check-execution 2>&1 | filecheck %s
// CHECK-DAG: execution after bank-memories: the results are the same
// CHECK-DAG: execution after convert-dataflow-to-rdu: the results are the same
// CHECK-DAG: execution after place: the program is the same
// CHECK-DAG: execution after route: the program is the same
// CHECK-DAG: machine.device = #machine.device<"plasticine"
// CHECK-DAG: rdu.config @main_0 routed
func.func @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %w = tensor.weight "w" : tensor<4x4xf32>
  %0 = tensor.matmul %x, %w : tensor<8x4xf32>, tensor<4x4xf32> -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}
