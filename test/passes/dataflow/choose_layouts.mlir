// RUN: headrace-opt %s -p choose-layouts --split-input-file | filecheck %s

// What windows read lies with channels innermost; the weights stay as they are.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.buffer [1, 7, 7, 2] (%{{.*}} at 16 [98, 1, 14, 2]) to (at 0 [98, 1, 14, 2]) :
// CHECK-SAME:      (!dataflow.stream<tensor<1x2x5x5xf32>>) -> !dataflow.stream<tensor<1x2x7x7xf32>>
// CHECK:         dataflow.buffer [3, 2, 3, 3] (%{{.*}} at 0 [18, 9, 3, 1]) to (at 0 [18, 9, 3, 1]) :
// CHECK:         dataflow.stage "conv_0"
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<1x2x5x5xf32>, %w: tensor<3x2x3x3xf32>) -> tensor<1x3x5x5xf32> {
    %0 = dataflow.section "main_0"(%x, %w) : (tensor<1x2x5x5xf32>, tensor<3x2x3x3xf32>) -> tensor<1x3x5x5xf32> {
    ^bb0(%1: tensor<1x2x5x5xf32>, %2: tensor<3x2x3x3xf32>):
      %3 = dataflow.load %1 at 0 [50, 25, 5, 1] : tensor<1x2x5x5xf32> -> !dataflow.stream<tensor<1x2x5x5xf32>>
      %4 = dataflow.buffer [1, 2, 7, 7] (%3 at 8 [98, 49, 7, 1]) to (at 0 [98, 49, 7, 1]) : (!dataflow.stream<tensor<1x2x5x5xf32>>) -> !dataflow.stream<tensor<1x2x7x7xf32>>
      %5 = dataflow.load %2 at 0 [18, 9, 3, 1] : tensor<3x2x3x3xf32> -> !dataflow.stream<tensor<3x2x3x3xf32>>
      %6 = dataflow.buffer [3, 2, 3, 3] (%5 at 0 [18, 9, 3, 1]) to (at 0 [18, 9, 3, 1]) : (!dataflow.stream<tensor<3x2x3x3xf32>>) -> !dataflow.stream<tensor<3x2x3x3xf32>>
      %7 = dataflow.stage "conv_0"(%4, %6) : (!dataflow.stream<tensor<1x2x7x7xf32>>, !dataflow.stream<tensor<3x2x3x3xf32>>) -> !dataflow.stream<tensor<1x3x5x5xf32>> {
      ^bb0(%8: tensor<1x2x7x7xf32>, %9: tensor<3x2x3x3xf32>):
        %10 = tensor.conv %8, %9 : tensor<1x2x7x7xf32>, tensor<3x2x3x3xf32> -> tensor<1x3x5x5xf32>
        dataflow.yield %10 : tensor<1x3x5x5xf32>
      }
      %8 = dataflow.store (%7 at 0 [75, 25, 5, 1]) : (!dataflow.stream<tensor<1x3x5x5xf32>>) -> tensor<1x3x5x5xf32>
      dataflow.yield %8 : tensor<1x3x5x5xf32>
    }
    func.return %0 : tensor<1x3x5x5xf32>
  }
}

// -----

// What is read padded and plain is written once: the plain reader reads inside the margin.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[E:.*]] = dataflow.stage "exp_0"
// CHECK:         %[[P:.*]], %[[Q:.*]] = dataflow.buffer [6, 3] (%[[E]] at 3 [3, 1]) to (at 0 [3, 1], at 3 [3, 1]) {fill = 2.5} :
// CHECK:         dataflow.stage "sin_0"(%[[P]])
// CHECK:         dataflow.stage "reduce_sum_0"(%[[Q]])
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<4x3xf32>) -> (tensor<6x3xf32>, tensor<4xf32>) {
    %0, %1 = dataflow.section "main_0"(%x) : (tensor<4x3xf32>) -> (tensor<6x3xf32>, tensor<4xf32>) {
    ^bb0(%2: tensor<4x3xf32>):
      %3 = dataflow.load %2 at 0 [3, 1] : tensor<4x3xf32> -> !dataflow.stream<tensor<4x3xf32>>
      %4 = dataflow.buffer [4, 3] (%3 at 0 [3, 1]) to (at 0 [3, 1]) : (!dataflow.stream<tensor<4x3xf32>>) -> !dataflow.stream<tensor<4x3xf32>>
      %5 = dataflow.stage "exp_0"(%4) : (!dataflow.stream<tensor<4x3xf32>>) -> !dataflow.stream<tensor<4x3xf32>> {
      ^bb0(%6: tensor<4x3xf32>):
        %7 = tensor.exp %6 : tensor<4x3xf32> -> tensor<4x3xf32>
        dataflow.yield %7 : tensor<4x3xf32>
      }
      %6 = dataflow.buffer [6, 3] (%5 at 3 [3, 1]) to (at 0 [3, 1]) {fill = 2.5} : (!dataflow.stream<tensor<4x3xf32>>) -> !dataflow.stream<tensor<6x3xf32>>
      %7 = dataflow.stage "sin_0"(%6) : (!dataflow.stream<tensor<6x3xf32>>) -> !dataflow.stream<tensor<6x3xf32>> {
      ^bb0(%8: tensor<6x3xf32>):
        %9 = tensor.sin %8 : tensor<6x3xf32> -> tensor<6x3xf32>
        dataflow.yield %9 : tensor<6x3xf32>
      }
      %8 = dataflow.buffer [4, 3] (%5 at 0 [3, 1]) to (at 0 [3, 1]) : (!dataflow.stream<tensor<4x3xf32>>) -> !dataflow.stream<tensor<4x3xf32>>
      %9 = dataflow.stage "reduce_sum_0"(%8) : (!dataflow.stream<tensor<4x3xf32>>) -> !dataflow.stream<tensor<4xf32>> {
      ^bb0(%10: tensor<4x3xf32>):
        %11 = tensor.reduce_sum %10 {axes = array<i64: 1>, keepdims = false} : tensor<4x3xf32> -> tensor<4xf32>
        dataflow.yield %11 : tensor<4xf32>
      }
      %10 = dataflow.store (%7 at 0 [3, 1]) : (!dataflow.stream<tensor<6x3xf32>>) -> tensor<6x3xf32>
      %11 = dataflow.store (%9 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
      dataflow.yield %10, %11 : tensor<6x3xf32>, tensor<4xf32>
    }
    func.return %0, %1 : tensor<6x3xf32>, tensor<4xf32>
  }
}
