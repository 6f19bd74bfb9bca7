// RUN: headrace-opt %s -p convert-tensor-to-dataflow --split-input-file --verify-diagnostics

// What an op makes of nothing but an input's values is not known before it runs.
func.func @main(%x: tensor<2x3xf32>, %e: tensor<2x0xf32>, %v: tensor<2x0x4xf32>) -> tensor<2x3x4xf32> {
  %q = tensor.reshape %x {shape = array<i64: 2, 3, 1>} : tensor<2x3xf32> -> tensor<2x3x1xf32>
  %k = tensor.reshape %e {shape = array<i64: 2, 0, 1>} : tensor<2x0xf32> -> tensor<2x0x1xf32>
  // expected-error @+1 {{convert-tensor-to-dataflow: tensor.attention of tensor<2x3x1xf32>, tensor<2x0x1xf32>, tensor<2x0x4xf32> reads a tensor without elements}}
  %0 = tensor.attention %q, %k, %v : tensor<2x3x1xf32>, tensor<2x0x1xf32>, tensor<2x0x4xf32> -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}
