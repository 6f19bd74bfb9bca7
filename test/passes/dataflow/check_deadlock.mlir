// RUN: headrace-opt %s -p check-deadlock | filecheck %s

// Unchanged: a section that runs through is left as it is, here with just enough frames on the short path.
// CHECK:         {frames = 1, copies = 4}
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<8x6xf32>) -> tensor<8x6xf32> {
    %0 = dataflow.section "main_0"(%x) : (tensor<8x6xf32>) -> tensor<8x6xf32> {
    ^bb0(%1: tensor<8x6xf32>):
      %2 = dataflow.load %1 at 0 [6, 1] : tensor<8x6xf32> -> !dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>
      %3 = dataflow.buffer [8, 6] (%2 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>
      %4 = dataflow.stage "exp_0"(%3) : (!dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]> {
      ^bb0(%5: tensor<2x6xf32>):
        %6 = tensor.exp %5 : tensor<2x6xf32> -> tensor<2x6xf32>
        dataflow.yield %6 : tensor<2x6xf32>
      }
      %5 = dataflow.buffer [8, 6] (%4 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<8x6xf32>>
      %6 = dataflow.buffer [8, 6] (%4 at 0 [6, 1]) to (at 0 [6, 1]) {frames = 1, copies = 4} : (!dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>
      %7 = dataflow.stage "reduce_sum_0"(%5) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<1x1xf32>> {
      ^bb0(%8: tensor<8x6xf32>):
        %9 = tensor.reduce_sum %8 {axes = array<i64: 0, 1>} : tensor<8x6xf32> -> tensor<1x1xf32>
        dataflow.yield %9 : tensor<1x1xf32>
      }
      %8 = dataflow.buffer [1, 1] (%7 at 0 [1, 1]) to (at 0 [1, 1]) : (!dataflow.stream<tensor<1x1xf32>>) -> !dataflow.stream<tensor<1x1xf32>, [4 repeat]>
      %9 = dataflow.stage "div_0"(%6, %8) : (!dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>, !dataflow.stream<tensor<1x1xf32>, [4 repeat]>) -> !dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]> {
      ^bb0(%10: tensor<2x6xf32>, %11: tensor<1x1xf32>):
        %12 = tensor.div %10, %11 : tensor<2x6xf32>, tensor<1x1xf32> -> tensor<2x6xf32>
        dataflow.yield %12 : tensor<2x6xf32>
      }
      %10 = dataflow.store (%9 at 0 [6, 1]) : (!dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>) -> tensor<8x6xf32>
      dataflow.yield %10 : tensor<8x6xf32>
    }
    func.return %0 : tensor<8x6xf32>
  }
}
