// RUN: headrace-opt %s -p bank-memories --split-input-file --verify-diagnostics

// A buffer of which one index of every dim is more than a unit holds is refused with the numbers.
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<400x400x400xf32>) -> tensor<400x400x400xf32> {
    %0 = dataflow.section "main_0"(%x) : (tensor<400x400x400xf32>) -> tensor<400x400x400xf32> {
    ^bb0(%1: tensor<400x400x400xf32>):
      %2 = dataflow.load %1 at 0 [160000, 400, 1] : tensor<400x400x400xf32> -> !dataflow.stream<tensor<400x400x400xf32>>
      // expected-error-re @+1 {{bank-memories: a buffer of tensor<400x400x400xf32> does not spread over memory units of 524288 bytes \[buffer-too-large\]\s+why: it holds 256000000 bytes and its longest free dim has 400 indices to share}}
      %3 = dataflow.buffer [400, 400, 400] (%2 at 0 [160000, 400, 1]) to (at 0 [160000, 400, 1]) : (!dataflow.stream<tensor<400x400x400xf32>>) -> !dataflow.stream<tensor<400x400x400xf32>>
      %4 = dataflow.stage "cumsum_0"(%3) : (!dataflow.stream<tensor<400x400x400xf32>>) -> !dataflow.stream<tensor<400x400x400xf32>> {
      ^bb0(%5: tensor<400x400x400xf32>):
        %6 = tensor.cumsum %5 {axis = 0 : i64} : tensor<400x400x400xf32> -> tensor<400x400x400xf32>
        dataflow.yield %6 : tensor<400x400x400xf32>
      }
      %5 = dataflow.store (%4 at 0 [160000, 400, 1]) : (!dataflow.stream<tensor<400x400x400xf32>>) -> tensor<400x400x400xf32>
      dataflow.yield %5 : tensor<400x400x400xf32>
    }
    func.return %0 : tensor<400x400x400xf32>
  }
}
