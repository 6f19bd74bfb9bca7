// RUN: headrace-opt %s -p cut-sections --split-input-file --verify-diagnostics

// A stage that does not fit alone is refused with the numbers and its largest buffers.
builtin.module attributes {machine.device = #machine.device<"plasticine">} {
  func.func @main(%x: tensor<64x8192xf32>) -> tensor<64x8192xf32> {
    %w = tensor.weight "w" : tensor<8192x8192xf32>
    %0 = dataflow.section "main_0"(%x, %w) : (tensor<64x8192xf32>, tensor<8192x8192xf32>) -> tensor<64x8192xf32> {
    ^bb0(%1: tensor<64x8192xf32>, %2: tensor<8192x8192xf32>):
      %3 = dataflow.load %1 at 0 [8192, 1] : tensor<64x8192xf32> -> !dataflow.stream<tensor<64x8192xf32>>
      %4 = dataflow.buffer [64, 8192] (%3 at 0 [8192, 1]) to (at 0 [8192, 1]) : (!dataflow.stream<tensor<64x8192xf32>>) -> !dataflow.stream<tensor<64x8192xf32>>
      %5 = dataflow.load %2 at 0 [8192, 1] : tensor<8192x8192xf32> -> !dataflow.stream<tensor<8192x8192xf32>>
      %6 = dataflow.buffer [8192, 8192] (%5 at 0 [8192, 1]) to (at 0 [8192, 1]) : (!dataflow.stream<tensor<8192x8192xf32>>) -> !dataflow.stream<tensor<8192x8192xf32>>
      // expected-error-re @+1 {{cut-sections: stage \"matmul_0\" alone needs 1 compute units and \d+ memory units; 'plasticine' has 64 and 64 \[stage-too-large\]\s+why: largest buffers: tensor<8192x8192xf32> holds 268435456 bytes}}
      %7 = dataflow.stage "matmul_0"(%4, %6) : (!dataflow.stream<tensor<64x8192xf32>>, !dataflow.stream<tensor<8192x8192xf32>>) -> !dataflow.stream<tensor<64x8192xf32>> {
      ^bb0(%8: tensor<64x8192xf32>, %9: tensor<8192x8192xf32>):
        %10 = tensor.matmul %8, %9 : tensor<64x8192xf32>, tensor<8192x8192xf32> -> tensor<64x8192xf32>
        dataflow.yield %10 : tensor<64x8192xf32>
      }
      %8 = dataflow.store (%7 at 0 [8192, 1]) : (!dataflow.stream<tensor<64x8192xf32>>) -> tensor<64x8192xf32>
      dataflow.yield %8 : tensor<64x8192xf32>
    }
    func.return %0 : tensor<64x8192xf32>
  }
}

// -----

// A buffer that no number of memory units holds is refused as that: an index of its longest dim is more than one has.
builtin.module attributes {machine.device = #machine.device<"plasticine">} {
  func.func @main(%x: tensor<300x300x300xf32>) -> tensor<300x300x300xf32> {
    %0 = dataflow.section "main_0"(%x) : (tensor<300x300x300xf32>) -> tensor<300x300x300xf32> {
    ^bb0(%1: tensor<300x300x300xf32>):
      %3 = dataflow.load %1 at 0 [90000, 300, 1] : tensor<300x300x300xf32> -> !dataflow.stream<tensor<300x300x300xf32>>
      %4 = dataflow.buffer [300, 300, 300] (%3 at 0 [90000, 300, 1]) to (at 0 [90000, 300, 1]) : (!dataflow.stream<tensor<300x300x300xf32>>) -> !dataflow.stream<tensor<300x300x300xf32>>
      // expected-error-re @+1 {{cut-sections: stage \"relu_0\" has a buffer of tensor<300x300x300xf32>, which does not spread over memory units of 262144 bytes \[buffer-too-large\]\s+why: it holds 108000000 bytes and its longest free dim has 300 indices to share}}
      %7 = dataflow.stage "relu_0"(%4) : (!dataflow.stream<tensor<300x300x300xf32>>) -> !dataflow.stream<tensor<300x300x300xf32>> {
      ^bb0(%8: tensor<300x300x300xf32>):
        %10 = tensor.relu %8 : tensor<300x300x300xf32> -> tensor<300x300x300xf32>
        dataflow.yield %10 : tensor<300x300x300xf32>
      }
      %8 = dataflow.store (%7 at 0 [90000, 300, 1]) : (!dataflow.stream<tensor<300x300x300xf32>>) -> tensor<300x300x300xf32>
      dataflow.yield %8 : tensor<300x300x300xf32>
    }
    func.return %0 : tensor<300x300x300xf32>
  }
}
