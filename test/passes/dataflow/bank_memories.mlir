// RUN: headrace-opt %s -p bank-memories --split-input-file | filecheck %s

// Every buffer gets units for its bytes, along its longest dim that no frame advances, and the banks of a unit.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.buffer [1024, 1024] {{.*}} {frames = 1, copies = 2, split_dim = 1, units = 1, banks = 32} :
// CHECK:         dataflow.buffer [1024, 2048] {{.*}} {split_dim = 1, units = 16, banks = 32} :
// CHECK:         dataflow.stage "matmul_0"
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<1024x1024xf32>, %w: tensor<1024x2048xf32>) -> tensor<1024x2048xf32> {
    %0 = dataflow.section "main_0"(%x, %w) : (tensor<1024x1024xf32>, tensor<1024x2048xf32>) -> tensor<1024x2048xf32> {
    ^bb0(%1: tensor<1024x1024xf32>, %2: tensor<1024x2048xf32>):
      %3 = dataflow.load %1 at 0 [1024, 1] : tensor<1024x1024xf32> -> !dataflow.stream<tensor<16x1024xf32>, [16 on 0 by 64, 4 on 0 by 16]>
      %4 = dataflow.buffer [1024, 1024] (%3 at 0 [1024, 1]) to (at 0 [1024, 1]) {frames = 1, copies = 2} : (!dataflow.stream<tensor<16x1024xf32>, [16 on 0 by 64, 4 on 0 by 16]>) -> !dataflow.stream<tensor<64x1024xf32>, [16 on 0 by 64]>
      %5 = dataflow.load %2 at 0 [2048, 1] : tensor<1024x2048xf32> -> !dataflow.stream<tensor<16x1024xf32>, [64 on 0 by 16, 2 on 1 by 1024]>
      %6 = dataflow.buffer [1024, 2048] (%5 at 0 [2048, 1]) to (at 0 [2048, 1]) : (!dataflow.stream<tensor<16x1024xf32>, [64 on 0 by 16, 2 on 1 by 1024]>) -> !dataflow.stream<tensor<1024x2048xf32>, [16 repeat]>
      %7 = dataflow.stage "matmul_0"(%4, %6) : (!dataflow.stream<tensor<64x1024xf32>, [16 on 0 by 64]>, !dataflow.stream<tensor<1024x2048xf32>, [16 repeat]>) -> !dataflow.stream<tensor<64x2048xf32>, [16 on 0 by 64]> {
      ^bb0(%8: tensor<64x1024xf32>, %9: tensor<1024x2048xf32>):
        %10 = tensor.matmul %8, %9 : tensor<64x1024xf32>, tensor<1024x2048xf32> -> tensor<64x2048xf32>
        dataflow.yield %10 : tensor<64x2048xf32>
      }
      %8 = dataflow.store (%7 at 0 [2048, 1]) : (!dataflow.stream<tensor<64x2048xf32>, [16 on 0 by 64]>) -> tensor<1024x2048xf32>
      dataflow.yield %8 : tensor<1024x2048xf32>
    }
    func.return %0 : tensor<1024x2048xf32>
  }
}
