// RUN: headrace-opt %s -p 'tile{rows=2 steps=4 chunk=64}' --split-input-file | filecheck %s
// RUN: headrace-opt %s -p 'tile{rows=2 steps=4 resident=0.0 passing=0.0}' --split-input-file | filecheck %s --check-prefix=COLUMNS
// RUN: headrace-opt %s -p 'tile{rows=2 steps=4 resident=0.0 passing=1.8e-07}' --split-input-file | filecheck %s --check-prefix=BLOCKS
// RUN: headrace-opt %s -p 'tile{rows=2 steps=4 block=0.0}' --split-input-file | filecheck %s --check-prefix=HEADS
// RUN: headrace-opt %s -p 'tile{rows=2 steps=4 resident=3.0e-07 passing=0.0}' --split-input-file | filecheck %s --check-prefix=MATRICES

// Rows of a matmul are looped, its second operand is repeated; the load of the rows follows.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.load %{{.*}} at 0 [6, 1] : tensor<8x6xf32> -> !dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>
// CHECK-NEXT:    dataflow.buffer [8, 6] {{.*}} -> !dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>
// CHECK-NEXT:    dataflow.load %{{.*}} at 0 [4, 1] : tensor<6x4xf32> -> !dataflow.stream<tensor<3x4xf32>, [2 on 0 by 3]>
// CHECK-NEXT:    dataflow.buffer [6, 4] {{.*}} -> !dataflow.stream<tensor<6x4xf32>, [4 repeat]>
// CHECK-NEXT:    dataflow.stage "matmul_0"({{.*}}) : ({{.*}}) -> !dataflow.stream<tensor<2x4xf32>, [4 on 0 by 2]> {
// CHECK-NEXT:    ^bb0(%[[A:.*]]: tensor<2x6xf32>, %[[B:.*]]: tensor<6x4xf32>):
// CHECK-NEXT:      tensor.matmul %[[A]], %[[B]] : tensor<2x6xf32>, tensor<6x4xf32> -> tensor<2x4xf32>
// CHECK:         dataflow.store (%{{.*}} at 0 [4, 1]) : (!dataflow.stream<tensor<2x4xf32>, [4 on 0 by 2]>) -> tensor<8x4xf32>
// COLUMNS-LABEL: func.func @main(
// COLUMNS:       dataflow.load {{.*}} -> !dataflow.stream<tensor<6x1xf32>, [4 on 1 by 1]>
// BLOCKS-LABEL: func.func @main(
// BLOCKS:        dataflow.load {{.*}} -> !dataflow.stream<tensor<6x2xf32>, [2 on 1 by 2]>
// COLUMNS:       dataflow.stage "matmul_0"({{.*}}) : (!dataflow.stream<tensor<8x6xf32>, [4 repeat]>, !dataflow.stream<tensor<6x1xf32>, [4 on 1 by 1]>) -> !dataflow.stream<tensor<8x1xf32>, [4 on 1 by 1]> {
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<8x6xf32>, %w: tensor<6x4xf32>) -> tensor<8x4xf32> {
    %0 = dataflow.section "main_0"(%x, %w) : (tensor<8x6xf32>, tensor<6x4xf32>) -> tensor<8x4xf32> {
    ^bb0(%1: tensor<8x6xf32>, %2: tensor<6x4xf32>):
      %3 = dataflow.load %1 at 0 [6, 1] : tensor<8x6xf32> -> !dataflow.stream<tensor<8x6xf32>>
      %4 = dataflow.buffer [8, 6] (%3 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>>
      %5 = dataflow.load %2 at 0 [4, 1] : tensor<6x4xf32> -> !dataflow.stream<tensor<6x4xf32>>
      %6 = dataflow.buffer [6, 4] (%5 at 0 [4, 1]) to (at 0 [4, 1]) : (!dataflow.stream<tensor<6x4xf32>>) -> !dataflow.stream<tensor<6x4xf32>>
      %7 = dataflow.stage "matmul_0"(%4, %6) : (!dataflow.stream<tensor<8x6xf32>>, !dataflow.stream<tensor<6x4xf32>>) -> !dataflow.stream<tensor<8x4xf32>> {
      ^bb0(%8: tensor<8x6xf32>, %9: tensor<6x4xf32>):
        %10 = tensor.matmul %8, %9 : tensor<8x6xf32>, tensor<6x4xf32> -> tensor<8x4xf32>
        dataflow.yield %10 : tensor<8x4xf32>
      }
      %8 = dataflow.store (%7 at 0 [4, 1]) : (!dataflow.stream<tensor<8x4xf32>>) -> tensor<8x4xf32>
      dataflow.yield %8 : tensor<8x4xf32>
    }
    func.return %0 : tensor<8x4xf32>
  }
}

// -----

// The dim that a softmax couples is not looped; a transposed reader has an order of its own.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "softmax_0"({{.*}}) : ({{.*}}) -> !dataflow.stream<tensor<2x4x6xf32>, [3 on 0 by 2]> {
// CHECK:           tensor.softmax %{{.*}} {axis = 1 : i64} : tensor<2x4x6xf32> -> tensor<2x4x6xf32>
// CHECK:         dataflow.buffer [6, 4, 6] (%{{.*}} at 0 [24, 6, 1]) to (at 0 [1, 6, 24])
// CHECK-SAME:      : (!dataflow.stream<tensor<2x4x6xf32>, [3 on 0 by 2]>) -> !dataflow.stream<tensor<2x4x6xf32>, [3 on 0 by 2]>
// CHECK-NEXT:    dataflow.stage "softmax_1"({{.*}}) : ({{.*}}) -> !dataflow.stream<tensor<2x4x6xf32>, [3 on 0 by 2]> {
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<6x4x6xf32>) -> tensor<6x4x6xf32> {
    %0 = dataflow.section "main_0"(%x) : (tensor<6x4x6xf32>) -> tensor<6x4x6xf32> {
    ^bb0(%1: tensor<6x4x6xf32>):
      %2 = dataflow.load %1 at 0 [24, 6, 1] : tensor<6x4x6xf32> -> !dataflow.stream<tensor<6x4x6xf32>>
      %3 = dataflow.buffer [6, 4, 6] (%2 at 0 [24, 6, 1]) to (at 0 [24, 6, 1]) : (!dataflow.stream<tensor<6x4x6xf32>>) -> !dataflow.stream<tensor<6x4x6xf32>>
      %4 = dataflow.stage "softmax_0"(%3) : (!dataflow.stream<tensor<6x4x6xf32>>) -> !dataflow.stream<tensor<6x4x6xf32>> {
      ^bb0(%5: tensor<6x4x6xf32>):
        %6 = tensor.softmax %5 {axis = 1 : i64} : tensor<6x4x6xf32> -> tensor<6x4x6xf32>
        dataflow.yield %6 : tensor<6x4x6xf32>
      }
      %5 = dataflow.buffer [6, 4, 6] (%4 at 0 [24, 6, 1]) to (at 0 [1, 6, 24]) : (!dataflow.stream<tensor<6x4x6xf32>>) -> !dataflow.stream<tensor<6x4x6xf32>>
      %6 = dataflow.stage "softmax_1"(%5) : (!dataflow.stream<tensor<6x4x6xf32>>) -> !dataflow.stream<tensor<6x4x6xf32>> {
      ^bb0(%7: tensor<6x4x6xf32>):
        %8 = tensor.softmax %7 {axis = 2 : i64} : tensor<6x4x6xf32> -> tensor<6x4x6xf32>
        dataflow.yield %8 : tensor<6x4x6xf32>
      }
      %7 = dataflow.store (%6 at 0 [24, 6, 1]) : (!dataflow.stream<tensor<6x4x6xf32>>) -> tensor<6x4x6xf32>
      dataflow.yield %7 : tensor<6x4x6xf32>
    }
    func.return %0 : tensor<6x4x6xf32>
  }
}

// -----

// Windows overlap: tiles of the input are larger than the steps between them.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.buffer [1, 2, 9, 9] {{.*}} -> !dataflow.stream<tensor<1x2x3x9xf32>, [4 on 2 by 2]>
// CHECK:         dataflow.stage "conv_0"({{.*}}) : ({{.*}}) -> !dataflow.stream<tensor<1x3x1x4xf32>, [4 on 2 by 1]> {
// CHECK:           tensor.conv %{{.*}}, %{{.*}} {strides = array<i64: 2, 2>} : tensor<1x2x3x9xf32>, tensor<3x2x3x3xf32> -> tensor<1x3x1x4xf32>
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<1x2x9x9xf32>, %w: tensor<3x2x3x3xf32>) -> tensor<1x3x4x4xf32> {
    %0 = dataflow.section "main_0"(%x, %w) : (tensor<1x2x9x9xf32>, tensor<3x2x3x3xf32>) -> tensor<1x3x4x4xf32> {
    ^bb0(%1: tensor<1x2x9x9xf32>, %2: tensor<3x2x3x3xf32>):
      %3 = dataflow.load %1 at 0 [162, 81, 9, 1] : tensor<1x2x9x9xf32> -> !dataflow.stream<tensor<1x2x9x9xf32>>
      %4 = dataflow.buffer [1, 2, 9, 9] (%3 at 0 [162, 81, 9, 1]) to (at 0 [162, 81, 9, 1]) : (!dataflow.stream<tensor<1x2x9x9xf32>>) -> !dataflow.stream<tensor<1x2x9x9xf32>>
      %5 = dataflow.load %2 at 0 [18, 9, 3, 1] : tensor<3x2x3x3xf32> -> !dataflow.stream<tensor<3x2x3x3xf32>>
      %6 = dataflow.buffer [3, 2, 3, 3] (%5 at 0 [18, 9, 3, 1]) to (at 0 [18, 9, 3, 1]) : (!dataflow.stream<tensor<3x2x3x3xf32>>) -> !dataflow.stream<tensor<3x2x3x3xf32>>
      %7 = dataflow.stage "conv_0"(%4, %6) : (!dataflow.stream<tensor<1x2x9x9xf32>>, !dataflow.stream<tensor<3x2x3x3xf32>>) -> !dataflow.stream<tensor<1x3x4x4xf32>> {
      ^bb0(%8: tensor<1x2x9x9xf32>, %9: tensor<3x2x3x3xf32>):
        %10 = tensor.conv %8, %9 {strides = array<i64: 2, 2>} : tensor<1x2x9x9xf32>, tensor<3x2x3x3xf32> -> tensor<1x3x4x4xf32>
        dataflow.yield %10 : tensor<1x3x4x4xf32>
      }
      %8 = dataflow.store (%7 at 0 [48, 16, 4, 1]) : (!dataflow.stream<tensor<1x3x4x4xf32>>) -> tensor<1x3x4x4xf32>
      dataflow.yield %8 : tensor<1x3x4x4xf32>
    }
    func.return %0 : tensor<1x3x4x4xf32>
  }
}

// -----

// Rows that are gathered, and those that are replaced, come a few at a time; a sum of everything is one step.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.gather %{{.*}}[%{{.*}}] : tensor<9x4xf32>, !dataflow.stream<tensor<2xi64>, [3 on 0 by 2]> -> !dataflow.stream<tensor<2x4xf32>, [3 on 0 by 2]>
// CHECK:         dataflow.stage "reduce_sum_0"({{.*}}) : (!dataflow.stream<tensor<6x4xf32>>) -> !dataflow.stream<tensor<f32>> {
// CHECK:         dataflow.scatter %{{.*}}[%{{.*}}] = %{{.*}} : tensor<9x4xf32>, !dataflow.stream<tensor<2xi64>, [3 on 0 by 2]>, !dataflow.stream<tensor<2x4xf32>, [3 on 0 by 2]> -> tensor<9x4xf32>
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%s: tensor<9x4xf32> {tensor.name = "s"}, %i: tensor<6xi64> {tensor.name = "i"}, %j: tensor<6x1xi64> {tensor.name = "j"}, %r: tensor<6x4xf32> {tensor.name = "r"}) -> (tensor<f32>, tensor<9x4xf32>) attributes {tensor.result_names = ["y", "t"], tensor.states = [["s", "t"]]} {
    %0 = dataflow.section "main_0"(%i, %s) : (tensor<6xi64>, tensor<9x4xf32>) -> tensor<f32> {
    ^bb0(%1: tensor<6xi64>, %2: tensor<9x4xf32>):
      %3 = dataflow.load %1 at 0 [1] : tensor<6xi64> -> !dataflow.stream<tensor<6xi64>>
      %4 = dataflow.buffer [6] (%3 at 0 [1]) to (at 0 [1]) : (!dataflow.stream<tensor<6xi64>>) -> !dataflow.stream<tensor<6xi64>>
      %5 = dataflow.gather %2[%4] : tensor<9x4xf32>, !dataflow.stream<tensor<6xi64>> -> !dataflow.stream<tensor<6x4xf32>>
      %6 = dataflow.buffer [6, 4] (%5 at 0 [4, 1]) to (at 0 [4, 1]) : (!dataflow.stream<tensor<6x4xf32>>) -> !dataflow.stream<tensor<6x4xf32>>
      %7 = dataflow.stage "reduce_sum_0"(%6) : (!dataflow.stream<tensor<6x4xf32>>) -> !dataflow.stream<tensor<f32>> {
      ^bb0(%8: tensor<6x4xf32>):
        %9 = tensor.reduce_sum %8 {axes = array<i64: 0, 1>, keepdims = false} : tensor<6x4xf32> -> tensor<f32>
        dataflow.yield %9 : tensor<f32>
      }
      %8 = dataflow.store (%7 at 0 []) : (!dataflow.stream<tensor<f32>>) -> tensor<f32>
      dataflow.yield %8 : tensor<f32>
    }
    %1 = dataflow.section "main_1"(%j, %r, %s) : (tensor<6x1xi64>, tensor<6x4xf32>, tensor<9x4xf32>) -> tensor<9x4xf32> {
    ^bb0(%2: tensor<6x1xi64>, %3: tensor<6x4xf32>, %4: tensor<9x4xf32>):
      %5 = dataflow.load %2 at 0 [1, 1] : tensor<6x1xi64> -> !dataflow.stream<tensor<6x1xi64>>
      %6 = dataflow.buffer [6, 1] (%5 at 0 [1, 1]) to (at 0 [1]) : (!dataflow.stream<tensor<6x1xi64>>) -> !dataflow.stream<tensor<6xi64>>
      %7 = dataflow.load %3 at 0 [4, 1] : tensor<6x4xf32> -> !dataflow.stream<tensor<6x4xf32>>
      %8 = dataflow.buffer [6, 4] (%7 at 0 [4, 1]) to (at 0 [4, 1]) : (!dataflow.stream<tensor<6x4xf32>>) -> !dataflow.stream<tensor<6x4xf32>>
      %9 = dataflow.scatter %4[%6] = %8 : tensor<9x4xf32>, !dataflow.stream<tensor<6xi64>>, !dataflow.stream<tensor<6x4xf32>> -> tensor<9x4xf32>
      dataflow.yield %9 : tensor<9x4xf32>
    }
    func.return %0, %1 : tensor<f32>, tensor<9x4xf32>
  }
}

// -----

// Bodies of several ops and results are cut as one; what broadcasts follows where it has the dim, else repeats.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "exp_0"(%{{.*}}, %{{.*}}, %{{.*}}) : (!dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>, !dataflow.stream<tensor<1x6xf32>, [4 repeat]>, !dataflow.stream<tensor<2x1xf32>, [4 on 0 by 2]>)
// CHECK-SAME:      -> (!dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>, !dataflow.stream<tensor<2x6xf32>, [4 on 0 by 2]>) {
// CHECK:           tensor.exp %{{.*}} : tensor<2x6xf32> -> tensor<2x6xf32>
// CHECK-NEXT:      tensor.mul %{{.*}}, %{{.*}} : tensor<2x6xf32>, tensor<1x6xf32> -> tensor<2x6xf32>
// CHECK-NEXT:      tensor.add %{{.*}}, %{{.*}} : tensor<2x6xf32>, tensor<2x1xf32> -> tensor<2x6xf32>
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<8x6xf32>, %y: tensor<1x6xf32>, %z: tensor<8x1xf32>) -> (tensor<8x6xf32>, tensor<8x6xf32>) {
    %0, %1 = dataflow.section "main_0"(%x, %y, %z) : (tensor<8x6xf32>, tensor<1x6xf32>, tensor<8x1xf32>) -> (tensor<8x6xf32>, tensor<8x6xf32>) {
    ^bb0(%2: tensor<8x6xf32>, %3: tensor<1x6xf32>, %4: tensor<8x1xf32>):
      %5 = dataflow.load %2 at 0 [6, 1] : tensor<8x6xf32> -> !dataflow.stream<tensor<8x6xf32>>
      %6 = dataflow.buffer [8, 6] (%5 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>>
      %7 = dataflow.load %3 at 0 [6, 1] : tensor<1x6xf32> -> !dataflow.stream<tensor<1x6xf32>>
      %8 = dataflow.buffer [1, 6] (%7 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<1x6xf32>>) -> !dataflow.stream<tensor<1x6xf32>>
      %9 = dataflow.load %4 at 0 [1, 1] : tensor<8x1xf32> -> !dataflow.stream<tensor<8x1xf32>>
      %10 = dataflow.buffer [8, 1] (%9 at 0 [1, 1]) to (at 0 [1, 1]) : (!dataflow.stream<tensor<8x1xf32>>) -> !dataflow.stream<tensor<8x1xf32>>
      %11, %12 = dataflow.stage "exp_0"(%6, %8, %10) : (!dataflow.stream<tensor<8x6xf32>>, !dataflow.stream<tensor<1x6xf32>>, !dataflow.stream<tensor<8x1xf32>>) -> (!dataflow.stream<tensor<8x6xf32>>, !dataflow.stream<tensor<8x6xf32>>) {
      ^bb0(%13: tensor<8x6xf32>, %14: tensor<1x6xf32>, %15: tensor<8x1xf32>):
        %16 = tensor.exp %13 : tensor<8x6xf32> -> tensor<8x6xf32>
        %17 = tensor.mul %16, %14 : tensor<8x6xf32>, tensor<1x6xf32> -> tensor<8x6xf32>
        %18 = tensor.add %17, %15 : tensor<8x6xf32>, tensor<8x1xf32> -> tensor<8x6xf32>
        dataflow.yield %16, %18 : tensor<8x6xf32>, tensor<8x6xf32>
      }
      %13 = dataflow.store (%12 at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> tensor<8x6xf32>
      %14 = dataflow.store (%11 at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> tensor<8x6xf32>
      dataflow.yield %13, %14 : tensor<8x6xf32>, tensor<8x6xf32>
    }
    func.return %0, %1 : tensor<8x6xf32>, tensor<8x6xf32>
  }
}

// -----

// A load that follows no reader goes by chunks of its outer dims.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.load %{{.*}} at 0 [8, 1] : tensor<6x8xf32> -> !dataflow.stream<tensor<2x8xf32>, [3 on 0 by 2]>
// CHECK-NEXT:    dataflow.store (%{{.*}} at 0 [1, 6])
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<6x8xf32>) -> tensor<8x6xf32> {
    %0 = dataflow.section "main_0"(%x) : (tensor<6x8xf32>) -> tensor<8x6xf32> {
    ^bb0(%1: tensor<6x8xf32>):
      %2 = dataflow.load %1 at 0 [8, 1] : tensor<6x8xf32> -> !dataflow.stream<tensor<6x8xf32>>
      %3 = dataflow.store (%2 at 0 [1, 6]) : (!dataflow.stream<tensor<6x8xf32>>) -> tensor<8x6xf32>
      dataflow.yield %3 : tensor<8x6xf32>
    }
    func.return %0 : tensor<8x6xf32>
  }
}

// -----

// Rows that are too long for the chip go in pieces, one row at a time.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "neg_0"({{.*}}) : ({{.*}}) -> !dataflow.stream<tensor<1x8388608xf32>, [3 on 0 by 1, 8 on 1 by 8388608]> {
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<3x67108864xf32>) -> tensor<3x67108864xf32> {
    %0 = dataflow.section "main_0"(%x) : (tensor<3x67108864xf32>) -> tensor<3x67108864xf32> {
    ^bb0(%1: tensor<3x67108864xf32>):
      %2 = dataflow.load %1 at 0 [67108864, 1] : tensor<3x67108864xf32> -> !dataflow.stream<tensor<3x67108864xf32>>
      %3 = dataflow.buffer [3, 67108864] (%2 at 0 [67108864, 1]) to (at 0 [67108864, 1]) : (!dataflow.stream<tensor<3x67108864xf32>>) -> !dataflow.stream<tensor<3x67108864xf32>>
      %4 = dataflow.stage "neg_0"(%3) : (!dataflow.stream<tensor<3x67108864xf32>>) -> !dataflow.stream<tensor<3x67108864xf32>> {
      ^bb0(%5: tensor<3x67108864xf32>):
        %6 = tensor.neg %5 : tensor<3x67108864xf32> -> tensor<3x67108864xf32>
        dataflow.yield %6 : tensor<3x67108864xf32>
      }
      %5 = dataflow.store (%4 at 0 [67108864, 1]) : (!dataflow.stream<tensor<3x67108864xf32>>) -> tensor<3x67108864xf32>
      dataflow.yield %5 : tensor<3x67108864xf32>
    }
    func.return %0 : tensor<3x67108864xf32>
  }
}

// -----

// A product by heads loops over rows first, as what feeds it does, and over heads inside where a tile would be large;
// keys are needed whole.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "exp_0"({{.*}}) : ({{.*}}) -> !dataflow.stream<tensor<2x8xf32>, [4 on 0 by 2]>
// CHECK:         dataflow.buffer [8, 8] {{.*}} -> !dataflow.stream<tensor<4x2x2xf32>, [4 on 1 by 2]>
// CHECK:         dataflow.stage "matmul_0"({{.*}}) : (!dataflow.stream<tensor<4x2x2xf32>, [4 on 1 by 2]>, !dataflow.stream<tensor<4x2x8xf32>, [4 repeat]>) -> !dataflow.stream<tensor<4x2x8xf32>, [4 on 1 by 2]>
// HEADS-LABEL: func.func @main(
// HEADS:         dataflow.stage "matmul_0"({{.*}}) : (!dataflow.stream<tensor<1x2x2xf32>, [4 on 1 by 2, 4 on 0 by 1]>, !dataflow.stream<tensor<1x2x8xf32>, [4 repeat, 4 on 0 by 1]>) -> !dataflow.stream<tensor<1x2x8xf32>, [4 on 1 by 2, 4 on 0 by 1]>
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<8x8xf32>, %k: tensor<8x8xf32>) -> tensor<4x8x8xf32> {
    %0 = dataflow.section "main_0"(%x, %k) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<4x8x8xf32> {
    ^bb0(%1: tensor<8x8xf32>, %2: tensor<8x8xf32>):
      %3 = dataflow.load %1 at 0 [8, 1] : tensor<8x8xf32> -> !dataflow.stream<tensor<8x8xf32>>
      %4 = dataflow.buffer [8, 8] (%3 at 0 [8, 1]) to (at 0 [8, 1]) : (!dataflow.stream<tensor<8x8xf32>>) -> !dataflow.stream<tensor<8x8xf32>>
      %5 = dataflow.stage "exp_0"(%4) : (!dataflow.stream<tensor<8x8xf32>>) -> !dataflow.stream<tensor<8x8xf32>> {
      ^bb0(%6: tensor<8x8xf32>):
        %7 = tensor.exp %6 : tensor<8x8xf32> -> tensor<8x8xf32>
        dataflow.yield %7 : tensor<8x8xf32>
      }
      %6 = dataflow.buffer [8, 8] (%5 at 0 [8, 1]) to (at 0 [2, 8, 1]) : (!dataflow.stream<tensor<8x8xf32>>) -> !dataflow.stream<tensor<4x8x2xf32>>
      %7 = dataflow.load %2 at 0 [8, 1] : tensor<8x8xf32> -> !dataflow.stream<tensor<8x8xf32>>
      %8 = dataflow.buffer [8, 8] (%7 at 0 [8, 1]) to (at 0 [2, 1, 8]) : (!dataflow.stream<tensor<8x8xf32>>) -> !dataflow.stream<tensor<4x2x8xf32>>
      %9 = dataflow.stage "matmul_0"(%6, %8) : (!dataflow.stream<tensor<4x8x2xf32>>, !dataflow.stream<tensor<4x2x8xf32>>) -> !dataflow.stream<tensor<4x8x8xf32>> {
      ^bb0(%10: tensor<4x8x2xf32>, %11: tensor<4x2x8xf32>):
        %12 = tensor.matmul %10, %11 : tensor<4x8x2xf32>, tensor<4x2x8xf32> -> tensor<4x8x8xf32>
        dataflow.yield %12 : tensor<4x8x8xf32>
      }
      %10 = dataflow.store (%9 at 0 [64, 8, 1]) : (!dataflow.stream<tensor<4x8x8xf32>>) -> tensor<4x8x8xf32>
      dataflow.yield %10 : tensor<4x8x8xf32>
    }
    func.return %0 : tensor<4x8x8xf32>
  }
}

// -----

// Matrices that are too many to stay on the chip stream through one by one, not by columns of all.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "matmul_0"
// MATRICES-LABEL: func.func @main(%x: tensor<4x3x6xf32>
// MATRICES:       dataflow.stage "matmul_0"({{.*}}) : (!dataflow.stream<tensor<1x3x6xf32>, [4 on 0 by 1]>, !dataflow.stream<tensor<1x6x4xf32>, [4 on 0 by 1]>) -> !dataflow.stream<tensor<1x3x4xf32>, [4 on 0 by 1]>
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<4x3x6xf32>, %w: tensor<4x6x4xf32>) -> tensor<4x3x4xf32> {
    %0 = dataflow.section "main_0"(%x, %w) : (tensor<4x3x6xf32>, tensor<4x6x4xf32>) -> tensor<4x3x4xf32> {
    ^bb0(%1: tensor<4x3x6xf32>, %2: tensor<4x6x4xf32>):
      %3 = dataflow.load %1 at 0 [18, 6, 1] : tensor<4x3x6xf32> -> !dataflow.stream<tensor<4x3x6xf32>>
      %4 = dataflow.buffer [4, 3, 6] (%3 at 0 [18, 6, 1]) to (at 0 [18, 6, 1]) : (!dataflow.stream<tensor<4x3x6xf32>>) -> !dataflow.stream<tensor<4x3x6xf32>>
      %5 = dataflow.load %2 at 0 [24, 4, 1] : tensor<4x6x4xf32> -> !dataflow.stream<tensor<4x6x4xf32>>
      %6 = dataflow.buffer [4, 6, 4] (%5 at 0 [24, 4, 1]) to (at 0 [24, 4, 1]) : (!dataflow.stream<tensor<4x6x4xf32>>) -> !dataflow.stream<tensor<4x6x4xf32>>
      %7 = dataflow.stage "matmul_0"(%4, %6) : (!dataflow.stream<tensor<4x3x6xf32>>, !dataflow.stream<tensor<4x6x4xf32>>) -> !dataflow.stream<tensor<4x3x4xf32>> {
      ^bb0(%8: tensor<4x3x6xf32>, %9: tensor<4x6x4xf32>):
        %10 = tensor.matmul %8, %9 : tensor<4x3x6xf32>, tensor<4x6x4xf32> -> tensor<4x3x4xf32>
        dataflow.yield %10 : tensor<4x3x4xf32>
      }
      %8 = dataflow.store (%7 at 0 [12, 4, 1]) : (!dataflow.stream<tensor<4x3x4xf32>>) -> tensor<4x3x4xf32>
      dataflow.yield %8 : tensor<4x3x4xf32>
    }
    func.return %0 : tensor<4x3x4xf32>
  }
}
