// RUN: headrace-opt %s -p 'cut-sections{share=0.05}' --split-input-file | filecheck %s

// A section that takes more units than its share is cut: what the later part needs is stored and loaded again.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[E:.*]], %[[R:.*]] = dataflow.section "main_0.0"(%x)
// CHECK:           dataflow.stage "softmax_0"
// CHECK-NOT:       dataflow.stage
// CHECK:         %[[C:.*]] = dataflow.section "main_0.1"(%[[E]])
// CHECK:           %[[L:.*]] = dataflow.load %{{.*}} at 0 [6, 1]
// CHECK-NEXT:      %[[B:.*]] = dataflow.buffer [8, 6] (%[[L]] at 0 [6, 1]) to (at 0 [6, 1])
// CHECK-NEXT:      %[[S:.*]] = dataflow.stage "cumsum_0"(%[[B]])
// CHECK:           dataflow.store (%[[S]] at 0 [6, 1])
// CHECK:         %[[Y:.*]] = dataflow.section "main_0.2"(%[[C]])
// CHECK:           dataflow.stage "softmax_1"
// CHECK:         func.return %[[Y]], %[[R]]
builtin.module attributes {machine.device = #machine.device<"plasticine">} {
  func.func @main(%x: tensor<8x6xf32>) -> (tensor<8x6xf32>, tensor<8x6xf32>) {
    %0, %1 = dataflow.section "main_0"(%x) : (tensor<8x6xf32>) -> (tensor<8x6xf32>, tensor<8x6xf32>) {
    ^bb0(%2: tensor<8x6xf32>):
      %3 = dataflow.load %2 at 0 [6, 1] : tensor<8x6xf32> -> !dataflow.stream<tensor<8x6xf32>>
      %4 = dataflow.buffer [8, 6] (%3 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>>
      %5 = dataflow.stage "softmax_0"(%4) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>> {
      ^bb0(%6: tensor<8x6xf32>):
        %7 = tensor.softmax %6 {axis = 1 : i64} : tensor<8x6xf32> -> tensor<8x6xf32>
        dataflow.yield %7 : tensor<8x6xf32>
      }
      %6 = dataflow.buffer [8, 6] (%5 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>>
      %7 = dataflow.stage "cumsum_0"(%6) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>> {
      ^bb0(%8: tensor<8x6xf32>):
        %9 = tensor.cumsum %8 {axis = 1 : i64} : tensor<8x6xf32> -> tensor<8x6xf32>
        dataflow.yield %9 : tensor<8x6xf32>
      }
      %8 = dataflow.buffer [8, 6] (%7 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>>
      %9 = dataflow.stage "softmax_1"(%8) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>> {
      ^bb0(%10: tensor<8x6xf32>):
        %11 = tensor.softmax %10 {axis = 1 : i64} : tensor<8x6xf32> -> tensor<8x6xf32>
        dataflow.yield %11 : tensor<8x6xf32>
      }
      %10 = dataflow.store (%9 at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> tensor<8x6xf32>
      %11 = dataflow.store (%5 at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> tensor<8x6xf32>
      dataflow.yield %10, %11 : tensor<8x6xf32>, tensor<8x6xf32>
    }
    func.return %0, %1 : tensor<8x6xf32>, tensor<8x6xf32>
  }
}
