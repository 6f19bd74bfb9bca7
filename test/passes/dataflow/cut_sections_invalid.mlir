// RUN: headrace-opt %s -p 'convert-tensor-to-dataflow,cut-sections' --verify-diagnostics

// Weights of 64 MB, not streamed, on a chip that has 16 MB.
builtin.module attributes {machine.device = #machine.device<"plasticine">} {
  func.func @main(%x: tensor<2x4096xf32>, %w: tensor<4096x4096xf32>) -> tensor<2x4096xf32> {
    // expected-error @+1 {{stage "matmul_0" alone needs 1 compute units and 257 memory units; 'plasticine' has 64 and 64}}
    %0 = tensor.matmul %x, %w : tensor<2x4096xf32>, tensor<4096x4096xf32> -> tensor<2x4096xf32>
    func.return %0 : tensor<2x4096xf32>
  }
}
