// How many runs follow each other through each section, and what its buffers hold of them.
// RUN: headrace-opt %s -p 'convert-tensor-to-dataflow,fuse-stages,tile{rows=8},choose-runs{runs=4},size-buffers' | filecheck %s
// RUN: headrace-opt %s -p 'convert-tensor-to-dataflow,fuse-stages,tile{rows=8},choose-runs' | filecheck %s --check-prefix=CHOSEN
// RUN: headrace-opt %s -p 'convert-tensor-to-dataflow,fuse-stages,tile{rows=8},size-buffers' | filecheck %s --check-prefix=ONE

// The weights are held whole. Between the products, each of which waits for the whole of its input, a buffer has one run
// that is written and one that is read. What the last stage takes of the first product is three runs old by then.
// CHECK:         builtin.module attributes {{.*}}dataflow.runs = 4 : i64
// CHECK:         dataflow.buffer [64, 64] {{.*}} {frames = 1, copies = 8} :
// CHECK:         dataflow.buffer [64, 64] {{.*}} to (at 0 [64, 1]) : (!dataflow.stream<tensor<64x64xf32>>)
// CHECK:         dataflow.stage "matmul_0"
// CHECK:         dataflow.buffer [64, 64] {{.*}} {frames = 1, copies = 24} :
// CHECK:         dataflow.stage "softmax_0"
// CHECK:         dataflow.buffer [64, 64] {{.*}} {copies = 2} :
// CHECK:         dataflow.stage "matmul_1"
// CHECK:         dataflow.buffer [64, 64] {{.*}} {copies = 2} :
// CHECK:         dataflow.stage "softmax_1"

// A launch takes much longer than a run of so little: as many as are chosen at most.
// CHOSEN:        dataflow.runs = 64 : i64

// In a single run they hold one run.
// ONE-NOT:       dataflow.runs
// ONE:           dataflow.stage "matmul_0"
// ONE:           dataflow.buffer [64, 64] {{.*}} {frames = 1, copies = 8} :
// ONE:           dataflow.stage "softmax_0"
// ONE:           dataflow.buffer [64, 64] {{.*}} to (at 0 [64, 1]) :
// ONE:           dataflow.stage "matmul_1"
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<64x64xf32> {tensor.name = "x"}) -> tensor<64x64xf32> {
    %w = tensor.weight "w" : tensor<64x64xf32>
    %0 = tensor.matmul %x, %w : tensor<64x64xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
    %1 = tensor.softmax %0 {axis = 1 : i64} : tensor<64x64xf32> -> tensor<64x64xf32>
    %2 = tensor.matmul %1, %1 : tensor<64x64xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
    %3 = tensor.softmax %2 {axis = 1 : i64} : tensor<64x64xf32> -> tensor<64x64xf32>
    %4 = tensor.add %3, %0 : tensor<64x64xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
    func.return %4 : tensor<64x64xf32>
  }
}
