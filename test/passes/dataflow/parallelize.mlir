// RUN: headrace-opt %s -p parallelize --split-input-file | filecheck %s
// RUN: headrace-opt %s -p 'parallelize{share=0.01}' --split-input-file | filecheck %s --check-prefix=FEW

// A contraction is cut by columns, so that each unit keeps its share of the weights; a softmax only by rows. The buffer
// between them must be whole before it is read, so they never work at the same time.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "matmul_0"(%{{.*}}, %{{.*}}) par [1 by {{[0-9]+}}{{.*}}] :
// CHECK:         dataflow.stage "softmax_0"(%{{.*}}) par [0 by 64] :
// FEW-LABEL:   func.func @main(
// FEW:           dataflow.stage "matmul_0"(%{{.*}}, %{{.*}}) par [1 by 8] :
// FEW:           dataflow.stage "softmax_0"(%{{.*}}) par [0 by 2] :
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<64x256xf32>, %w: tensor<256x512xf32>) -> tensor<64x512xf32> {
    %0 = dataflow.section "main_0"(%x, %w) : (tensor<64x256xf32>, tensor<256x512xf32>) -> tensor<64x512xf32> {
    ^bb0(%1: tensor<64x256xf32>, %2: tensor<256x512xf32>):
      %3 = dataflow.load %1 at 0 [256, 1] : tensor<64x256xf32> -> !dataflow.stream<tensor<64x256xf32>>
      %4 = dataflow.buffer [64, 256] (%3 at 0 [256, 1]) to (at 0 [256, 1]) : (!dataflow.stream<tensor<64x256xf32>>) -> !dataflow.stream<tensor<64x256xf32>>
      %5 = dataflow.load %2 at 0 [512, 1] : tensor<256x512xf32> -> !dataflow.stream<tensor<256x512xf32>>
      %6 = dataflow.buffer [256, 512] (%5 at 0 [512, 1]) to (at 0 [512, 1]) : (!dataflow.stream<tensor<256x512xf32>>) -> !dataflow.stream<tensor<256x512xf32>>
      %7 = dataflow.stage "matmul_0"(%4, %6) : (!dataflow.stream<tensor<64x256xf32>>, !dataflow.stream<tensor<256x512xf32>>) -> !dataflow.stream<tensor<64x512xf32>> {
      ^bb0(%8: tensor<64x256xf32>, %9: tensor<256x512xf32>):
        %10 = tensor.matmul %8, %9 : tensor<64x256xf32>, tensor<256x512xf32> -> tensor<64x512xf32>
        dataflow.yield %10 : tensor<64x512xf32>
      }
      %8 = dataflow.buffer [64, 512] (%7 at 0 [512, 1]) to (at 0 [512, 1]) : (!dataflow.stream<tensor<64x512xf32>>) -> !dataflow.stream<tensor<64x512xf32>>
      %9 = dataflow.stage "softmax_0"(%8) : (!dataflow.stream<tensor<64x512xf32>>) -> !dataflow.stream<tensor<64x512xf32>> {
      ^bb0(%10: tensor<64x512xf32>):
        %11 = tensor.softmax %10 {axis = 1 : i64} : tensor<64x512xf32> -> tensor<64x512xf32>
        dataflow.yield %11 : tensor<64x512xf32>
      }
      %10 = dataflow.store (%9 at 0 [512, 1]) : (!dataflow.stream<tensor<64x512xf32>>) -> tensor<64x512xf32>
      dataflow.yield %10 : tensor<64x512xf32>
    }
    func.return %0 : tensor<64x512xf32>
  }
}

// -----

// What cannot be cut stays on one unit, and a result of one number has no dims to cut.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "cumsum_0"(%{{.*}}) :
// CHECK:         dataflow.stage "reduce_sum_0"(%{{.*}}) :
// FEW-LABEL:   func.func @main(
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<512xf32>) -> (tensor<512xf32>, tensor<f32>) {
    %0, %1 = dataflow.section "main_0"(%x) : (tensor<512xf32>) -> (tensor<512xf32>, tensor<f32>) {
    ^bb0(%2: tensor<512xf32>):
      %3 = dataflow.load %2 at 0 [1] : tensor<512xf32> -> !dataflow.stream<tensor<512xf32>>
      %4, %5 = dataflow.buffer [512] (%3 at 0 [1]) to (at 0 [1], at 0 [1]) : (!dataflow.stream<tensor<512xf32>>) -> (!dataflow.stream<tensor<512xf32>>, !dataflow.stream<tensor<512xf32>>)
      %6 = dataflow.stage "cumsum_0"(%4) : (!dataflow.stream<tensor<512xf32>>) -> !dataflow.stream<tensor<512xf32>> {
      ^bb0(%7: tensor<512xf32>):
        %8 = tensor.cumsum %7 {axis = 0 : i64} : tensor<512xf32> -> tensor<512xf32>
        dataflow.yield %8 : tensor<512xf32>
      }
      %7 = dataflow.stage "reduce_sum_0"(%5) : (!dataflow.stream<tensor<512xf32>>) -> !dataflow.stream<tensor<f32>> {
      ^bb0(%8: tensor<512xf32>):
        %9 = tensor.reduce_sum %8 {axes = array<i64: 0>, keepdims = false} : tensor<512xf32> -> tensor<f32>
        dataflow.yield %9 : tensor<f32>
      }
      %8 = dataflow.store (%6 at 0 [1]) : (!dataflow.stream<tensor<512xf32>>) -> tensor<512xf32>
      %9 = dataflow.store (%7 at 0 []) : (!dataflow.stream<tensor<f32>>) -> tensor<f32>
      dataflow.yield %8, %9 : tensor<512xf32>, tensor<f32>
    }
    func.return %0, %1 : tensor<512xf32>, tensor<f32>
  }
}

// -----

// No number of parts of 4,096 columns fills all stages of the units: parts of 24 columns do, and a smaller rest goes
// beside them. Both read the rows and the weights, and write one buffer.
// CHECK-LABEL: func.func @uneven(
// CHECK:         %[[X:.*]], %[[X2:.*]] = dataflow.buffer [4096, 4096] {{.*}} to (at 0 [4096, 1], at 0 [4096, 1])
// CHECK:         %[[W:.*]], %[[W2:.*]] = dataflow.buffer [4096, 4096] {{.*}} to (at 0 [4096, 1], at [[START:[0-9]+]] [4096, 1])
// CHECK:         dataflow.stage "matmul_0"(%[[X]], %[[W]]) par [1 by {{[0-9]+}}
// CHECK:         dataflow.stage "matmul_0_rest"(%[[X2]], %[[W2]])
// CHECK:         dataflow.buffer [4096, 4096] (%{{.*}} at 0 [4096, 1], %{{.*}} at [[START]] [4096, 1])
// FEW-LABEL:   func.func @uneven(
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @uneven(%x: tensor<4096x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16> {
    %0 = dataflow.section "main_0"(%x, %w) : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16> {
    ^bb0(%1: tensor<4096x4096xbf16>, %2: tensor<4096x4096xbf16>):
      %3 = dataflow.load %1 at 0 [4096, 1] : tensor<4096x4096xbf16> -> !dataflow.stream<tensor<64x4096xbf16>, [64 on 0 by 64]>
      %4 = dataflow.buffer [4096, 4096] (%3 at 0 [4096, 1]) to (at 0 [4096, 1]) : (!dataflow.stream<tensor<64x4096xbf16>, [64 on 0 by 64]>) -> !dataflow.stream<tensor<64x4096xbf16>, [64 on 0 by 64]>
      %5 = dataflow.load %2 at 0 [4096, 1] : tensor<4096x4096xbf16> -> !dataflow.stream<tensor<4096x4096xbf16>>
      %6 = dataflow.buffer [4096, 4096] (%5 at 0 [4096, 1]) to (at 0 [4096, 1]) : (!dataflow.stream<tensor<4096x4096xbf16>>) -> !dataflow.stream<tensor<4096x4096xbf16>, [64 repeat]>
      %7 = dataflow.stage "matmul_0"(%4, %6) : (!dataflow.stream<tensor<64x4096xbf16>, [64 on 0 by 64]>, !dataflow.stream<tensor<4096x4096xbf16>, [64 repeat]>) -> !dataflow.stream<tensor<64x4096xbf16>, [64 on 0 by 64]> {
      ^bb0(%8: tensor<64x4096xbf16>, %9: tensor<4096x4096xbf16>):
        %10 = tensor.matmul %8, %9 : tensor<64x4096xbf16>, tensor<4096x4096xbf16> -> tensor<64x4096xbf16>
        dataflow.yield %10 : tensor<64x4096xbf16>
      }
      %8 = dataflow.buffer [4096, 4096] (%7 at 0 [4096, 1]) to (at 0 [4096, 1]) : (!dataflow.stream<tensor<64x4096xbf16>, [64 on 0 by 64]>) -> !dataflow.stream<tensor<64x4096xbf16>, [64 on 0 by 64]>
      %9 = dataflow.store (%8 at 0 [4096, 1]) : (!dataflow.stream<tensor<64x4096xbf16>, [64 on 0 by 64]>) -> tensor<4096x4096xbf16>
      dataflow.yield %9 : tensor<4096x4096xbf16>
    }
    func.return %0 : tensor<4096x4096xbf16>
  }
}
