// RUN: headrace-opt %s -p size-buffers --split-input-file | filecheck %s

// A reader in the order of the writer: two frames are held, one is read while the other is written. Of what is loaded
// all four are, which have room in a memory unit: they come while the memory still answers.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.load {{.*}} [4 on 0 by 2]>
// CHECK-NEXT:    dataflow.buffer [8, 6] {{.*}} {frames = 1, copies = 4} :
// CHECK:         dataflow.stage "exp_0"
// CHECK:         dataflow.buffer [8, 6] {{.*}} {frames = 1, copies = 2} :
// CHECK-NEXT:    dataflow.stage "softmax_0"
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
      %5 = dataflow.buffer [8, 6] (%4 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>
      %6 = dataflow.stage "softmax_0"(%5) : (!dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]> {
      ^bb0(%7: tensor<2x6xf32>):
        %8 = tensor.softmax %7 {axis = 1 : i64} : tensor<2x6xf32> -> tensor<2x6xf32>
        dataflow.yield %8 : tensor<2x6xf32>
      }
      %7 = dataflow.store (%6 at 0 [6, 1]) : (!dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>) -> tensor<8x6xf32>
      dataflow.yield %7 : tensor<8x6xf32>
    }
    func.return %0 : tensor<8x6xf32>
  }
}

// -----

// A reader in another order, and one that repeats: the buffer holds all of it, in one frame.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[E:.*]] = dataflow.stage "exp_0"
// CHECK:         dataflow.buffer [8, 8] (%[[E]] at 0 [8, 1]) to (at 0 [1, 8]) :
// CHECK-NEXT:    dataflow.stage "softmax_0"
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %0 = dataflow.section "main_0"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32> {
    ^bb0(%1: tensor<8x8xf32>):
      %2 = dataflow.load %1 at 0 [8, 1] : tensor<8x8xf32> -> !dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]>
      %3 = dataflow.buffer [8, 8] (%2 at 0 [8, 1]) to (at 0 [8, 1]) : (!dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]>
      %4 = dataflow.stage "exp_0"(%3) : (!dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]> {
      ^bb0(%5: tensor<2x8xf32>):
        %6 = tensor.exp %5 : tensor<2x8xf32> -> tensor<2x8xf32>
        dataflow.yield %6 : tensor<2x8xf32>
      }
      %5 = dataflow.buffer [8, 8] (%4 at 0 [8, 1]) to (at 0 [1, 8]) : (!dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]>
      %6 = dataflow.stage "softmax_0"(%5) : (!dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]> {
      ^bb0(%7: tensor<2x8xf32>):
        %8 = tensor.softmax %7 {axis = 1 : i64} : tensor<2x8xf32> -> tensor<2x8xf32>
        dataflow.yield %8 : tensor<2x8xf32>
      }
      %7 = dataflow.store (%6 at 0 [8, 1]) : (!dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]>) -> tensor<8x8xf32>
      dataflow.yield %7 : tensor<8x8xf32>
    }
    func.return %0 : tensor<8x8xf32>
  }
}

// -----

// Two paths part and meet, and one of them waits for a whole tensor: the other's buffer grows until both fit, no more.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[E:.*]] = dataflow.stage "exp_0"
// CHECK:         %[[A:.*]] = dataflow.buffer [8, 6] (%[[E]] at 0 [6, 1]) to (at 0 [6, 1]) :
// CHECK-NEXT:    %[[B:.*]] = dataflow.buffer [8, 6] (%[[E]] at 0 [6, 1]) to (at 0 [6, 1]) {frames = 1, copies = 4} :
// CHECK-NEXT:    dataflow.stage "reduce_sum_0"(%[[A]])
// CHECK:         dataflow.stage "div_0"(%[[B]], %{{.*}})
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
      %6 = dataflow.buffer [8, 6] (%4 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>
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

// -----

// A value that a longer path passes by: its buffer holds a frame for each stage of the path, so that all work at once.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[E:.*]] = dataflow.stage "exp_0"
// CHECK:         dataflow.buffer [16, 6] (%[[E]] at 0 [6, 1]) {{.*}} {frames = 1, copies = 4} :
// CHECK:         dataflow.stage "softmax_0"
// CHECK:         dataflow.stage "add_0"
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<16x6xf32>) -> tensor<16x6xf32> {
    %0 = dataflow.section "main_0"(%x) : (tensor<16x6xf32>) -> tensor<16x6xf32> {
    ^bb0(%1: tensor<16x6xf32>):
      %2 = dataflow.load %1 at 0 [6, 1] : tensor<16x6xf32> -> !dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>
      %3 = dataflow.buffer [16, 6] (%2 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>) -> !dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>
      %4 = dataflow.stage "exp_0"(%3) : (!dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>) -> !dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]> {
      ^bb0(%a: tensor<2x6xf32>):
        %b = tensor.exp %a : tensor<2x6xf32> -> tensor<2x6xf32>
        dataflow.yield %b : tensor<2x6xf32>
      }
      %5, %6 = dataflow.buffer [16, 6] (%4 at 0 [6, 1]) to (at 0 [6, 1], at 0 [6, 1]) : (!dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>) -> (!dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>, !dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>)
      %7 = dataflow.stage "softmax_0"(%5) : (!dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>) -> !dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]> {
      ^bb0(%a: tensor<2x6xf32>):
        %b = tensor.softmax %a {axis = 1 : i64} : tensor<2x6xf32> -> tensor<2x6xf32>
        dataflow.yield %b : tensor<2x6xf32>
      }
      %8 = dataflow.buffer [16, 6] (%7 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>) -> !dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>
      %9 = dataflow.stage "cumsum_0"(%8) : (!dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>) -> !dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]> {
      ^bb0(%a: tensor<2x6xf32>):
        %b = tensor.cumsum %a {axis = 1 : i64} : tensor<2x6xf32> -> tensor<2x6xf32>
        dataflow.yield %b : tensor<2x6xf32>
      }
      %10 = dataflow.buffer [16, 6] (%9 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>) -> !dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>
      %11 = dataflow.stage "add_0"(%10, %6) : (!dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>, !dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>) -> !dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]> {
      ^bb0(%a: tensor<2x6xf32>, %b: tensor<2x6xf32>):
        %c = tensor.add %a, %b : tensor<2x6xf32>, tensor<2x6xf32> -> tensor<2x6xf32>
        dataflow.yield %c : tensor<2x6xf32>
      }
      %12 = dataflow.store (%11 at 0 [6, 1]) : (!dataflow.stream<tensor<2x6xf32>, [8 on 0 by 2]>) -> tensor<16x6xf32>
      dataflow.yield %12 : tensor<16x6xf32>
    }
    func.return %0 : tensor<16x6xf32>
  }
}

// -----

// Two stages that write one buffer, each half of every row: the reader follows them frame by frame.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.buffer [8, 8] (%{{.*}} at 0 [8, 1], %{{.*}} at 4 [8, 1]) {{.*}} {frames = 1, copies = 2} :
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<8x4xf32>) -> tensor<8x8xf32> {
    %0 = dataflow.section "main_0"(%x) : (tensor<8x4xf32>) -> tensor<8x8xf32> {
    ^bb0(%1: tensor<8x4xf32>):
      %2 = dataflow.load %1 at 0 [4, 1] : tensor<8x4xf32> -> !dataflow.stream<tensor<2x4xf32>, [4 on 0 by 2]>
      %3, %4 = dataflow.buffer [8, 4] (%2 at 0 [4, 1]) to (at 0 [4, 1], at 0 [4, 1]) : (!dataflow.stream<tensor<2x4xf32>, [4 on 0 by 2]>) -> (!dataflow.stream<tensor<2x4xf32>, [4 on 0 by 2]>, !dataflow.stream<tensor<2x4xf32>, [4 on 0 by 2]>)
      %5 = dataflow.stage "exp_0"(%3) : (!dataflow.stream<tensor<2x4xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x4xf32>, [4 on 0 by 2]> {
      ^bb0(%a: tensor<2x4xf32>):
        %b = tensor.exp %a : tensor<2x4xf32> -> tensor<2x4xf32>
        dataflow.yield %b : tensor<2x4xf32>
      }
      %6 = dataflow.stage "neg_0"(%4) : (!dataflow.stream<tensor<2x4xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x4xf32>, [4 on 0 by 2]> {
      ^bb0(%a: tensor<2x4xf32>):
        %b = tensor.neg %a : tensor<2x4xf32> -> tensor<2x4xf32>
        dataflow.yield %b : tensor<2x4xf32>
      }
      %7 = dataflow.buffer [8, 8] (%5 at 0 [8, 1], %6 at 4 [8, 1]) to (at 0 [8, 1]) : (!dataflow.stream<tensor<2x4xf32>, [4 on 0 by 2]>, !dataflow.stream<tensor<2x4xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]>
      %8 = dataflow.stage "softmax_0"(%7) : (!dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]>) -> !dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]> {
      ^bb0(%a: tensor<2x8xf32>):
        %b = tensor.softmax %a {axis = 1 : i64} : tensor<2x8xf32> -> tensor<2x8xf32>
        dataflow.yield %b : tensor<2x8xf32>
      }
      %9 = dataflow.store (%8 at 0 [8, 1]) : (!dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]>) -> tensor<8x8xf32>
      dataflow.yield %9 : tensor<8x8xf32>
    }
    func.return %0 : tensor<8x8xf32>
  }
}

// -----

// Two frames fill a memory unit: loads go no further ahead than that.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.buffer [8, 65536] {{.*}} {frames = 1, copies = 2} :
// CHECK-NEXT:    dataflow.stage "exp_0"
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<8x65536xf32>) -> tensor<8x65536xf32> {
    %0 = dataflow.section "main_0"(%x) : (tensor<8x65536xf32>) -> tensor<8x65536xf32> {
    ^bb0(%1: tensor<8x65536xf32>):
      %2 = dataflow.load %1 at 0 [65536, 1] : tensor<8x65536xf32> -> !dataflow.stream<tensor<1x65536xf32>, [8 on 0 by 1]>
      %3 = dataflow.buffer [8, 65536] (%2 at 0 [65536, 1]) to (at 0 [65536, 1]) : (!dataflow.stream<tensor<1x65536xf32>, [8 on 0 by 1]>) -> !dataflow.stream<tensor<1x65536xf32>, [8 on 0 by 1]>
      %4 = dataflow.stage "exp_0"(%3) : (!dataflow.stream<tensor<1x65536xf32>, [8 on 0 by 1]>) -> !dataflow.stream<tensor<1x65536xf32>, [8 on 0 by 1]> {
      ^bb0(%5: tensor<1x65536xf32>):
        %6 = tensor.exp %5 : tensor<1x65536xf32> -> tensor<1x65536xf32>
        dataflow.yield %6 : tensor<1x65536xf32>
      }
      %5 = dataflow.buffer [8, 65536] (%4 at 0 [65536, 1]) to (at 0 [65536, 1]) : (!dataflow.stream<tensor<1x65536xf32>, [8 on 0 by 1]>) -> !dataflow.stream<tensor<1x65536xf32>, [8 on 0 by 1]>
      %6 = dataflow.stage "neg_0"(%5) : (!dataflow.stream<tensor<1x65536xf32>, [8 on 0 by 1]>) -> !dataflow.stream<tensor<1x65536xf32>, [8 on 0 by 1]> {
      ^bb0(%7: tensor<1x65536xf32>):
        %8 = tensor.neg %7 : tensor<1x65536xf32> -> tensor<1x65536xf32>
        dataflow.yield %8 : tensor<1x65536xf32>
      }
      %7 = dataflow.store (%6 at 0 [65536, 1]) : (!dataflow.stream<tensor<1x65536xf32>, [8 on 0 by 1]>) -> tensor<8x65536xf32>
      dataflow.yield %7 : tensor<8x65536xf32>
    }
    func.return %0 : tensor<8x65536xf32>
  }
}
