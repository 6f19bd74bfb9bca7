// RUN: headrace-opt %s -p 'convert-tensor-to-dataflow,cut-sections{share=0.05}' | filecheck %s

// A share of four address generators: three weights and the input use them up, so the sum goes to a section of its own.
// What it needs is stored off chip, in the section that makes it.

// CHECK: [[A:%.*]], [[B:%.*]] = dataflow.section "main_0.0"(%x, %a, %b, %c)
// CHECK: [[FIRST:%.*]] = dataflow.stage "matmul_0"
// CHECK: [[LAST:%.*]] = dataflow.stage "matmul_2"
// CHECK: dataflow.store ([[FIRST]] at 0 [4, 1])
// CHECK: dataflow.store ([[LAST]] at 0 [4, 1])
// CHECK: dataflow.section "main_0.1"([[B]], [[A]])
// CHECK: dataflow.load
// CHECK: dataflow.load
// CHECK: dataflow.stage "add_0"
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<2x4xf32>, %a: tensor<4x4xf32>, %b: tensor<4x4xf32>, %c: tensor<4x4xf32>) -> tensor<2x4xf32> {
    %0 = tensor.matmul %x, %a : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    %1 = tensor.matmul %0, %b : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    %2 = tensor.matmul %1, %c : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
    %3 = tensor.add %2, %0 : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<2x4xf32>
    func.return %3 : tensor<2x4xf32>
  }
}
