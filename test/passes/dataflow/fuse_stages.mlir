// RUN: headrace-opt %s -p fuse-stages --split-input-file | filecheck %s
// RUN: headrace-opt %s -p 'fuse-stages{most=2}' --split-input-file | filecheck %s --check-prefix=TWO

// Elementwise stages join the matmul that makes their input, one after the other.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[T:.*]] = dataflow.stage "matmul_0"(%{{.*}}, %{{.*}}, %{{.*}})
// CHECK-NEXT:    ^bb0(%[[A:.*]]: tensor<4x6xf32>, %[[W:.*]]: tensor<6x8xf32>, %[[V:.*]]: tensor<8xf32>):
// CHECK-NEXT:      %[[M:.*]] = tensor.matmul %[[A]], %[[W]]
// CHECK-NEXT:      %[[P:.*]] = tensor.add %[[M]], %[[V]]
// CHECK-NEXT:      %[[G:.*]] = tensor.gelu %[[P]]
// CHECK-NEXT:      dataflow.yield %[[G]]
// CHECK-NEXT:    }
// CHECK-NEXT:    dataflow.store (%[[T]] at 0 [8, 1])
// TWO-LABEL:   func.func @main(
// TWO:           tensor.matmul
// TWO-NEXT:      tensor.add
// TWO-NEXT:      dataflow.yield
// TWO:           tensor.gelu
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x8xf32>, %v: tensor<8xf32>) -> tensor<4x8xf32> {
    %0 = dataflow.section "main_0"(%x, %w, %v) : (tensor<4x6xf32>, tensor<6x8xf32>, tensor<8xf32>) -> tensor<4x8xf32> {
    ^bb0(%1: tensor<4x6xf32>, %2: tensor<6x8xf32>, %3: tensor<8xf32>):
      %4 = dataflow.load %1 at 0 [6, 1] : tensor<4x6xf32> -> !dataflow.stream<tensor<4x6xf32>>
      %5 = dataflow.buffer [4, 6] (%4 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>>
      %6 = dataflow.load %2 at 0 [8, 1] : tensor<6x8xf32> -> !dataflow.stream<tensor<6x8xf32>>
      %7 = dataflow.buffer [6, 8] (%6 at 0 [8, 1]) to (at 0 [8, 1]) : (!dataflow.stream<tensor<6x8xf32>>) -> !dataflow.stream<tensor<6x8xf32>>
      %8 = dataflow.stage "matmul_0"(%5, %7) : (!dataflow.stream<tensor<4x6xf32>>, !dataflow.stream<tensor<6x8xf32>>) -> !dataflow.stream<tensor<4x8xf32>> {
      ^bb0(%9: tensor<4x6xf32>, %10: tensor<6x8xf32>):
        %11 = tensor.matmul %9, %10 : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
        dataflow.yield %11 : tensor<4x8xf32>
      }
      %9 = dataflow.buffer [4, 8] (%8 at 0 [8, 1]) to (at 0 [8, 1]) : (!dataflow.stream<tensor<4x8xf32>>) -> !dataflow.stream<tensor<4x8xf32>>
      %10 = dataflow.load %3 at 0 [1] : tensor<8xf32> -> !dataflow.stream<tensor<8xf32>>
      %11 = dataflow.buffer [8] (%10 at 0 [1]) to (at 0 [1]) : (!dataflow.stream<tensor<8xf32>>) -> !dataflow.stream<tensor<8xf32>>
      %12 = dataflow.stage "add_0"(%9, %11) : (!dataflow.stream<tensor<4x8xf32>>, !dataflow.stream<tensor<8xf32>>) -> !dataflow.stream<tensor<4x8xf32>> {
      ^bb0(%13: tensor<4x8xf32>, %14: tensor<8xf32>):
        %15 = tensor.add %13, %14 : tensor<4x8xf32>, tensor<8xf32> -> tensor<4x8xf32>
        dataflow.yield %15 : tensor<4x8xf32>
      }
      %13 = dataflow.buffer [4, 8] (%12 at 0 [8, 1]) to (at 0 [8, 1]) : (!dataflow.stream<tensor<4x8xf32>>) -> !dataflow.stream<tensor<4x8xf32>>
      %14 = dataflow.stage "gelu_0"(%13) : (!dataflow.stream<tensor<4x8xf32>>) -> !dataflow.stream<tensor<4x8xf32>> {
      ^bb0(%15: tensor<4x8xf32>):
        %16 = tensor.gelu %15 : tensor<4x8xf32> -> tensor<4x8xf32>
        dataflow.yield %16 : tensor<4x8xf32>
      }
      %15 = dataflow.store (%14 at 0 [8, 1]) : (!dataflow.stream<tensor<4x8xf32>>) -> tensor<4x8xf32>
      dataflow.yield %15 : tensor<4x8xf32>
    }
    func.return %0 : tensor<4x8xf32>
  }
}

// -----

// A row-wise stage joins an elementwise one, not a contraction, which keeps its freedom to be cut by columns.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "matmul_0"
// CHECK:           tensor.matmul
// CHECK-NEXT:      dataflow.yield
// CHECK:         dataflow.stage "softmax_0"
// CHECK:           tensor.softmax
// CHECK-NEXT:      dataflow.yield
// CHECK:         dataflow.stage "add_0"
// CHECK:           tensor.add
// CHECK-NEXT:      tensor.layer_norm
// CHECK-NEXT:      dataflow.yield
// CHECK-NOT:     dataflow.stage
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x8xf32>, %s: tensor<8xf32>, %y: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
    %0, %1 = dataflow.section "main_0"(%x, %w, %y, %s) : (tensor<4x6xf32>, tensor<6x8xf32>, tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
    ^bb0(%2: tensor<4x6xf32>, %3: tensor<6x8xf32>, %4: tensor<4x8xf32>, %5: tensor<8xf32>):
      %6 = dataflow.load %2 at 0 [6, 1] : tensor<4x6xf32> -> !dataflow.stream<tensor<4x6xf32>>
      %7 = dataflow.buffer [4, 6] (%6 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>>
      %8 = dataflow.load %3 at 0 [8, 1] : tensor<6x8xf32> -> !dataflow.stream<tensor<6x8xf32>>
      %9 = dataflow.buffer [6, 8] (%8 at 0 [8, 1]) to (at 0 [8, 1]) : (!dataflow.stream<tensor<6x8xf32>>) -> !dataflow.stream<tensor<6x8xf32>>
      %10 = dataflow.stage "matmul_0"(%7, %9) : (!dataflow.stream<tensor<4x6xf32>>, !dataflow.stream<tensor<6x8xf32>>) -> !dataflow.stream<tensor<4x8xf32>> {
      ^bb0(%11: tensor<4x6xf32>, %12: tensor<6x8xf32>):
        %13 = tensor.matmul %11, %12 : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
        dataflow.yield %13 : tensor<4x8xf32>
      }
      %11 = dataflow.buffer [4, 8] (%10 at 0 [8, 1]) to (at 0 [8, 1]) : (!dataflow.stream<tensor<4x8xf32>>) -> !dataflow.stream<tensor<4x8xf32>>
      %12 = dataflow.stage "softmax_0"(%11) : (!dataflow.stream<tensor<4x8xf32>>) -> !dataflow.stream<tensor<4x8xf32>> {
      ^bb0(%13: tensor<4x8xf32>):
        %14 = tensor.softmax %13 {axis = 1 : i64} : tensor<4x8xf32> -> tensor<4x8xf32>
        dataflow.yield %14 : tensor<4x8xf32>
      }
      %13 = dataflow.load %4 at 0 [8, 1] : tensor<4x8xf32> -> !dataflow.stream<tensor<4x8xf32>>
      %14 = dataflow.buffer [4, 8] (%13 at 0 [8, 1]) to (at 0 [8, 1]) : (!dataflow.stream<tensor<4x8xf32>>) -> !dataflow.stream<tensor<4x8xf32>>
      %15 = dataflow.load %5 at 0 [1] : tensor<8xf32> -> !dataflow.stream<tensor<8xf32>>
      %16, %17 = dataflow.buffer [8] (%15 at 0 [1]) to (at 0 [1], at 0 [1]) : (!dataflow.stream<tensor<8xf32>>) -> (!dataflow.stream<tensor<8xf32>>, !dataflow.stream<tensor<8xf32>>)
      %18 = dataflow.stage "add_0"(%14, %16) : (!dataflow.stream<tensor<4x8xf32>>, !dataflow.stream<tensor<8xf32>>) -> !dataflow.stream<tensor<4x8xf32>> {
      ^bb0(%19: tensor<4x8xf32>, %20: tensor<8xf32>):
        %21 = tensor.add %19, %20 : tensor<4x8xf32>, tensor<8xf32> -> tensor<4x8xf32>
        dataflow.yield %21 : tensor<4x8xf32>
      }
      %19 = dataflow.buffer [4, 8] (%18 at 0 [8, 1]) to (at 0 [8, 1]) : (!dataflow.stream<tensor<4x8xf32>>) -> !dataflow.stream<tensor<4x8xf32>>
      %20 = dataflow.stage "layer_norm_0"(%19, %17) : (!dataflow.stream<tensor<4x8xf32>>, !dataflow.stream<tensor<8xf32>>) -> !dataflow.stream<tensor<4x8xf32>> {
      ^bb0(%21: tensor<4x8xf32>, %22: tensor<8xf32>):
        %23 = tensor.layer_norm %21, %22 : tensor<4x8xf32>, tensor<8xf32> -> tensor<4x8xf32>
        dataflow.yield %23 : tensor<4x8xf32>
      }
      %21 = dataflow.store (%12 at 0 [8, 1]) : (!dataflow.stream<tensor<4x8xf32>>) -> tensor<4x8xf32>
      %22 = dataflow.store (%20 at 0 [8, 1]) : (!dataflow.stream<tensor<4x8xf32>>) -> tensor<4x8xf32>
      dataflow.yield %21, %22 : tensor<4x8xf32>, tensor<4x8xf32>
    }
    func.return %0, %1 : tensor<4x8xf32>, tensor<4x8xf32>
  }
}

// -----

// What others read of the first stage it still sends: the joined stage has two results.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[E:.*]], %[[N:.*]] = dataflow.stage "exp_0"(%{{.*}}) : (!dataflow.stream<tensor<4x6xf32>>) -> (!dataflow.stream<tensor<4x6xf32>>, !dataflow.stream<tensor<4x6xf32>>) {
// CHECK:           %[[A:.*]] = tensor.exp
// CHECK-NEXT:      %[[B:.*]] = tensor.neg %[[A]]
// CHECK-NEXT:      dataflow.yield %[[A]], %[[B]]
// CHECK:         %[[R:.*]] = dataflow.buffer [4, 6] (%[[E]] at 0 [6, 1]) to (at 0 [6, 1])
// CHECK-NEXT:    dataflow.stage "reduce_sum_0"(%[[R]])
// CHECK:         dataflow.store (%[[N]] at 0 [6, 1])
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4xf32>) {
    %0, %1 = dataflow.section "main_0"(%x) : (tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4xf32>) {
    ^bb0(%2: tensor<4x6xf32>):
      %3 = dataflow.load %2 at 0 [6, 1] : tensor<4x6xf32> -> !dataflow.stream<tensor<4x6xf32>>
      %4 = dataflow.buffer [4, 6] (%3 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>>
      %5 = dataflow.stage "exp_0"(%4) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>> {
      ^bb0(%6: tensor<4x6xf32>):
        %7 = tensor.exp %6 : tensor<4x6xf32> -> tensor<4x6xf32>
        dataflow.yield %7 : tensor<4x6xf32>
      }
      %6, %7 = dataflow.buffer [4, 6] (%5 at 0 [6, 1]) to (at 0 [6, 1], at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>>) -> (!dataflow.stream<tensor<4x6xf32>>, !dataflow.stream<tensor<4x6xf32>>)
      %8 = dataflow.stage "neg_0"(%6) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>> {
      ^bb0(%9: tensor<4x6xf32>):
        %10 = tensor.neg %9 : tensor<4x6xf32> -> tensor<4x6xf32>
        dataflow.yield %10 : tensor<4x6xf32>
      }
      %9 = dataflow.stage "reduce_sum_0"(%7) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4xf32>> {
      ^bb0(%10: tensor<4x6xf32>):
        %11 = tensor.reduce_sum %10 {axes = array<i64: 1>, keepdims = false} : tensor<4x6xf32> -> tensor<4xf32>
        dataflow.yield %11 : tensor<4xf32>
      }
      %10 = dataflow.store (%8 at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>>) -> tensor<4x6xf32>
      %11 = dataflow.store (%9 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
      dataflow.yield %10, %11 : tensor<4x6xf32>, tensor<4xf32>
    }
    func.return %0, %1 : tensor<4x6xf32>, tensor<4xf32>
  }
}

// -----

// A value that is read twice by one op is made once.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "exp_0"(%{{.*}}) :
// CHECK:           %[[A:.*]] = tensor.exp
// CHECK-NEXT:      %[[B:.*]] = tensor.mul %[[A]], %[[A]]
// CHECK-NEXT:      dataflow.yield %[[B]]
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
    %0 = dataflow.section "main_0"(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32> {
    ^bb0(%1: tensor<4x6xf32>):
      %2 = dataflow.load %1 at 0 [6, 1] : tensor<4x6xf32> -> !dataflow.stream<tensor<4x6xf32>>
      %3 = dataflow.buffer [4, 6] (%2 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>>
      %4 = dataflow.stage "exp_0"(%3) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>> {
      ^bb0(%5: tensor<4x6xf32>):
        %6 = tensor.exp %5 : tensor<4x6xf32> -> tensor<4x6xf32>
        dataflow.yield %6 : tensor<4x6xf32>
      }
      %5 = dataflow.buffer [4, 6] (%4 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>>
      %6 = dataflow.stage "mul_0"(%5) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>> {
      ^bb0(%7: tensor<4x6xf32>):
        %8 = tensor.mul %7, %7 : tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
        dataflow.yield %8 : tensor<4x6xf32>
      }
      %7 = dataflow.store (%6 at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>>) -> tensor<4x6xf32>
      dataflow.yield %7 : tensor<4x6xf32>
    }
    func.return %0 : tensor<4x6xf32>
  }
}

// -----

// Two paths that part and meet: the ends do not join past the middle, since each would wait for the other.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "exp_0"
// CHECK:           tensor.exp
// CHECK-NEXT:      dataflow.yield
// CHECK:         dataflow.stage "reduce_sum_0"
// CHECK:           tensor.reduce_sum
// CHECK-NEXT:      dataflow.yield
// CHECK:         dataflow.stage "div_0"
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
    %0 = dataflow.section "main_0"(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32> {
    ^bb0(%1: tensor<4x6xf32>):
      %2 = dataflow.load %1 at 0 [6, 1] : tensor<4x6xf32> -> !dataflow.stream<tensor<4x6xf32>>
      %3 = dataflow.buffer [4, 6] (%2 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>>
      %4 = dataflow.stage "exp_0"(%3) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>> {
      ^bb0(%5: tensor<4x6xf32>):
        %6 = tensor.exp %5 : tensor<4x6xf32> -> tensor<4x6xf32>
        dataflow.yield %6 : tensor<4x6xf32>
      }
      %5, %6 = dataflow.buffer [4, 6] (%4 at 0 [6, 1]) to (at 0 [6, 1], at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>>) -> (!dataflow.stream<tensor<4x6xf32>>, !dataflow.stream<tensor<4x6xf32>>)
      %7 = dataflow.stage "reduce_sum_0"(%5) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x1xf32>> {
      ^bb0(%8: tensor<4x6xf32>):
        %9 = tensor.reduce_sum %8 {axes = array<i64: 1>} : tensor<4x6xf32> -> tensor<4x1xf32>
        dataflow.yield %9 : tensor<4x1xf32>
      }
      %8 = dataflow.buffer [4, 1] (%7 at 0 [1, 1]) to (at 0 [1, 1]) : (!dataflow.stream<tensor<4x1xf32>>) -> !dataflow.stream<tensor<4x1xf32>>
      %9 = dataflow.stage "div_0"(%6, %8) : (!dataflow.stream<tensor<4x6xf32>>, !dataflow.stream<tensor<4x1xf32>>) -> !dataflow.stream<tensor<4x6xf32>> {
      ^bb0(%10: tensor<4x6xf32>, %11: tensor<4x1xf32>):
        %12 = tensor.div %10, %11 : tensor<4x6xf32>, tensor<4x1xf32> -> tensor<4x6xf32>
        dataflow.yield %12 : tensor<4x6xf32>
      }
      %10 = dataflow.store (%9 at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>>) -> tensor<4x6xf32>
      dataflow.yield %10 : tensor<4x6xf32>
    }
    func.return %0 : tensor<4x6xf32>
  }
}

// -----

// A stage that reads another order, or broadcasts what it reads, stays apart; the rest still joins.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "exp_0"
// CHECK:           tensor.exp
// CHECK-NEXT:      tensor.sin
// CHECK-NEXT:      dataflow.yield
// CHECK:         dataflow.stage "neg_0"
// CHECK:           tensor.neg
// CHECK-NEXT:      dataflow.yield
// CHECK:         dataflow.stage "add_0"
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x: tensor<4x6xf32>, %z: tensor<5x6x4xf32>) -> tensor<5x6x4xf32> {
    %0 = dataflow.section "main_0"(%x, %z) : (tensor<4x6xf32>, tensor<5x6x4xf32>) -> tensor<5x6x4xf32> {
    ^bb0(%1: tensor<4x6xf32>, %2: tensor<5x6x4xf32>):
      %3 = dataflow.load %1 at 0 [6, 1] : tensor<4x6xf32> -> !dataflow.stream<tensor<4x6xf32>>
      %4 = dataflow.buffer [4, 6] (%3 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>>
      %5 = dataflow.stage "exp_0"(%4) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>> {
      ^bb0(%6: tensor<4x6xf32>):
        %7 = tensor.exp %6 : tensor<4x6xf32> -> tensor<4x6xf32>
        dataflow.yield %7 : tensor<4x6xf32>
      }
      %6 = dataflow.buffer [4, 6] (%5 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>>
      %7 = dataflow.stage "sin_0"(%6) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xf32>> {
      ^bb0(%8: tensor<4x6xf32>):
        %s = tensor.sin %8 : tensor<4x6xf32> -> tensor<4x6xf32>
        dataflow.yield %s : tensor<4x6xf32>
      }
      %8 = dataflow.buffer [4, 6] (%7 at 0 [6, 1]) to (at 0 [1, 6]) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<6x4xf32>>
      %9 = dataflow.stage "neg_0"(%8) : (!dataflow.stream<tensor<6x4xf32>>) -> !dataflow.stream<tensor<6x4xf32>> {
      ^bb0(%10: tensor<6x4xf32>):
        %11 = tensor.neg %10 : tensor<6x4xf32> -> tensor<6x4xf32>
        dataflow.yield %11 : tensor<6x4xf32>
      }
      %10 = dataflow.buffer [6, 4] (%9 at 0 [4, 1]) to (at 0 [4, 1]) : (!dataflow.stream<tensor<6x4xf32>>) -> !dataflow.stream<tensor<6x4xf32>>
      %11 = dataflow.load %2 at 0 [24, 4, 1] : tensor<5x6x4xf32> -> !dataflow.stream<tensor<5x6x4xf32>>
      %12 = dataflow.buffer [5, 6, 4] (%11 at 0 [24, 4, 1]) to (at 0 [24, 4, 1]) : (!dataflow.stream<tensor<5x6x4xf32>>) -> !dataflow.stream<tensor<5x6x4xf32>>
      %13 = dataflow.stage "add_0"(%10, %12) : (!dataflow.stream<tensor<6x4xf32>>, !dataflow.stream<tensor<5x6x4xf32>>) -> !dataflow.stream<tensor<5x6x4xf32>> {
      ^bb0(%14: tensor<6x4xf32>, %15: tensor<5x6x4xf32>):
        %16 = tensor.add %14, %15 : tensor<6x4xf32>, tensor<5x6x4xf32> -> tensor<5x6x4xf32>
        dataflow.yield %16 : tensor<5x6x4xf32>
      }
      %14 = dataflow.store (%13 at 0 [24, 4, 1]) : (!dataflow.stream<tensor<5x6x4xf32>>) -> tensor<5x6x4xf32>
      dataflow.yield %14 : tensor<5x6x4xf32>
    }
    func.return %0 : tensor<5x6x4xf32>
  }
}

// -----

// Four address generators bring three operands and take one result: the third addition stays apart.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "add_0"(%{{.*}}, %{{.*}}, %{{.*}})
// CHECK:           tensor.add
// CHECK-NEXT:      tensor.add
// CHECK-NEXT:      dataflow.yield
// CHECK:         dataflow.stage "add_2"(%{{.*}}, %{{.*}})
builtin.module attributes {machine.device = #machine.device<"four", {base = "plasticine", grid = {agcus_per_edge = 2}}>} {
  func.func @main(%a: tensor<2x2xf32>, %b: tensor<2x2xf32>, %c: tensor<2x2xf32>, %d: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %0 = dataflow.section "main_0"(%a, %b, %c, %d) : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32> {
    ^bb0(%1: tensor<2x2xf32>, %2: tensor<2x2xf32>, %3: tensor<2x2xf32>, %4: tensor<2x2xf32>):
      %5 = dataflow.load %1 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %6 = dataflow.buffer [2, 2] (%5 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %7 = dataflow.load %2 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %8 = dataflow.buffer [2, 2] (%7 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %9 = dataflow.load %3 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %10 = dataflow.buffer [2, 2] (%9 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %11 = dataflow.load %4 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %12 = dataflow.buffer [2, 2] (%11 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %13 = dataflow.stage "add_0"(%6, %8) : (!dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>> {
      ^bb0(%14: tensor<2x2xf32>, %15: tensor<2x2xf32>):
        %16 = tensor.add %14, %15 : tensor<2x2xf32>, tensor<2x2xf32> -> tensor<2x2xf32>
        dataflow.yield %16 : tensor<2x2xf32>
      }
      %20 = dataflow.buffer [2, 2] (%13 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %21 = dataflow.stage "add_1"(%20, %10) : (!dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>> {
      ^bb0(%22: tensor<2x2xf32>, %23: tensor<2x2xf32>):
        %24 = tensor.add %22, %23 : tensor<2x2xf32>, tensor<2x2xf32> -> tensor<2x2xf32>
        dataflow.yield %24 : tensor<2x2xf32>
      }
      %30 = dataflow.buffer [2, 2] (%21 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %31 = dataflow.stage "add_2"(%30, %12) : (!dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>> {
      ^bb0(%32: tensor<2x2xf32>, %33: tensor<2x2xf32>):
        %34 = tensor.add %32, %33 : tensor<2x2xf32>, tensor<2x2xf32> -> tensor<2x2xf32>
        dataflow.yield %34 : tensor<2x2xf32>
      }
      %40 = dataflow.store (%31 at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> tensor<2x2xf32>
      dataflow.yield %40 : tensor<2x2xf32>
    }
    func.return %0 : tensor<2x2xf32>
  }
}

// -----

// The first addition goes to the sine although the product that it needs is made later; the stage of the cosine, which
// that product needs, must then not take the second addition, which needs the first.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "cos_0"
// CHECK:           tensor.cos
// CHECK-NEXT:      dataflow.yield
// CHECK:         dataflow.stage "matmul_0"
// CHECK:         dataflow.stage "sin_0"
// CHECK:           tensor.sin
// CHECK-NEXT:      tensor.add
// CHECK-NEXT:      tensor.add
func.func @main(%x: tensor<8x6xf32>, %w: tensor<6x6xf32>) -> tensor<8x6xf32> {
  %0 = dataflow.section "main_0"(%x, %w) : (tensor<8x6xf32>, tensor<6x6xf32>) -> tensor<8x6xf32> {
  ^bb0(%1: tensor<8x6xf32>, %2: tensor<6x6xf32>):
    %3 = dataflow.load %1 at 0 [6, 1] : tensor<8x6xf32> -> !dataflow.stream<tensor<8x6xf32>>
    %4, %5 = dataflow.buffer [8, 6] (%3 at 0 [6, 1]) to (at 0 [6, 1], at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> (!dataflow.stream<tensor<8x6xf32>>, !dataflow.stream<tensor<8x6xf32>>)
    %6 = dataflow.stage "sin_0"(%4) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>> {
    ^bb0(%7: tensor<8x6xf32>):
      %a = tensor.sin %7 : tensor<8x6xf32> -> tensor<8x6xf32>
      dataflow.yield %a : tensor<8x6xf32>
    }
    %7 = dataflow.stage "cos_0"(%5) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>> {
    ^bb0(%8: tensor<8x6xf32>):
      %b = tensor.cos %8 : tensor<8x6xf32> -> tensor<8x6xf32>
      dataflow.yield %b : tensor<8x6xf32>
    }
    %8, %9 = dataflow.buffer [8, 6] (%7 at 0 [6, 1]) to (at 0 [6, 1], at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> (!dataflow.stream<tensor<8x6xf32>>, !dataflow.stream<tensor<8x6xf32>>)
    %10 = dataflow.load %2 at 0 [6, 1] : tensor<6x6xf32> -> !dataflow.stream<tensor<6x6xf32>>
    %11 = dataflow.buffer [6, 6] (%10 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<6x6xf32>>) -> !dataflow.stream<tensor<6x6xf32>>
    %12 = dataflow.stage "matmul_0"(%8, %11) : (!dataflow.stream<tensor<8x6xf32>>, !dataflow.stream<tensor<6x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>> {
    ^bb0(%13: tensor<8x6xf32>, %14: tensor<6x6xf32>):
      %m = tensor.matmul %13, %14 : tensor<8x6xf32>, tensor<6x6xf32> -> tensor<8x6xf32>
      dataflow.yield %m : tensor<8x6xf32>
    }
    %13 = dataflow.buffer [8, 6] (%6 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>>
    %14 = dataflow.buffer [8, 6] (%12 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>>
    %15 = dataflow.stage "add_0"(%13, %14) : (!dataflow.stream<tensor<8x6xf32>>, !dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>> {
    ^bb0(%16: tensor<8x6xf32>, %17: tensor<8x6xf32>):
      %s = tensor.add %16, %17 : tensor<8x6xf32>, tensor<8x6xf32> -> tensor<8x6xf32>
      dataflow.yield %s : tensor<8x6xf32>
    }
    %16 = dataflow.buffer [8, 6] (%15 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>>
    %17 = dataflow.stage "add_1"(%9, %16) : (!dataflow.stream<tensor<8x6xf32>>, !dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>> {
    ^bb0(%18: tensor<8x6xf32>, %19: tensor<8x6xf32>):
      %t = tensor.add %18, %19 : tensor<8x6xf32>, tensor<8x6xf32> -> tensor<8x6xf32>
      dataflow.yield %t : tensor<8x6xf32>
    }
    %18 = dataflow.store (%17 at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> tensor<8x6xf32>
    dataflow.yield %18 : tensor<8x6xf32>
  }
  func.return %0 : tensor<8x6xf32>
}

// -----

// Others read the first sum out of the same buffer: it goes on leaving the joined stage, which would take five address
// generators of four.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "add_0"(%{{.*}}, %{{.*}}) :
// CHECK:         dataflow.stage "add_1"(
// TWO-LABEL:   func.func @main(
builtin.module attributes {machine.device = #machine.device<"four", {base = "plasticine", grid = {agcus_per_edge = 2}}>} {
  func.func @main(%a: tensor<2x2xf32>, %b: tensor<2x2xf32>, %c: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
    %0, %1 = dataflow.section "main_0"(%a, %b, %c) : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
    ^bb0(%2: tensor<2x2xf32>, %3: tensor<2x2xf32>, %4: tensor<2x2xf32>):
      %5 = dataflow.load %2 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %6 = dataflow.buffer [2, 2] (%5 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %7 = dataflow.load %3 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %8 = dataflow.buffer [2, 2] (%7 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %9 = dataflow.stage "add_0"(%6, %8) : (!dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>> {
      ^bb0(%10: tensor<2x2xf32>, %11: tensor<2x2xf32>):
        %12 = tensor.add %10, %11 : tensor<2x2xf32>, tensor<2x2xf32> -> tensor<2x2xf32>
        dataflow.yield %12 : tensor<2x2xf32>
      }
      %10, %11 = dataflow.buffer [2, 2] (%9 at 0 [2, 1]) to (at 0 [2, 1], at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> (!dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<2x2xf32>>)
      %12 = dataflow.load %4 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %13 = dataflow.buffer [2, 2] (%12 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %14 = dataflow.stage "add_1"(%10, %13) : (!dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>> {
      ^bb0(%15: tensor<2x2xf32>, %16: tensor<2x2xf32>):
        %17 = tensor.add %15, %16 : tensor<2x2xf32>, tensor<2x2xf32> -> tensor<2x2xf32>
        dataflow.yield %17 : tensor<2x2xf32>
      }
      %15 = dataflow.stage "matmul_0"(%11) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>> {
      ^bb0(%16: tensor<2x2xf32>):
        %17 = tensor.matmul %16, %16 : tensor<2x2xf32>, tensor<2x2xf32> -> tensor<2x2xf32>
        dataflow.yield %17 : tensor<2x2xf32>
      }
      %16 = dataflow.store (%14 at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> tensor<2x2xf32>
      %17 = dataflow.store (%15 at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> tensor<2x2xf32>
      dataflow.yield %16, %17 : tensor<2x2xf32>, tensor<2x2xf32>
    }
    func.return %0, %1 : tensor<2x2xf32>, tensor<2x2xf32>
  }
}

// -----

// A matmul and its bias take three values, as many as a unit has inputs: what is added to that has a unit of its own.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "matmul_0"(%{{.*}}, %{{.*}}, %{{.*}})
// CHECK:           tensor.matmul
// CHECK-NEXT:      tensor.add
// CHECK-NEXT:      dataflow.yield
// CHECK:         dataflow.stage "add_1"(%{{.*}}, %{{.*}})
// CHECK:           tensor.add
// CHECK-NEXT:      dataflow.yield
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%a: tensor<2x2xf32>, %b: tensor<2x2xf32>, %c: tensor<2x2xf32>, %d: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %0 = dataflow.section "main_0"(%a, %b, %c, %d) : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32> {
    ^bb0(%1: tensor<2x2xf32>, %2: tensor<2x2xf32>, %3: tensor<2x2xf32>, %4: tensor<2x2xf32>):
      %5 = dataflow.load %1 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %6 = dataflow.buffer [2, 2] (%5 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %7 = dataflow.load %2 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %8 = dataflow.buffer [2, 2] (%7 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %9 = dataflow.load %3 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %10 = dataflow.buffer [2, 2] (%9 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %11 = dataflow.load %4 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %12 = dataflow.buffer [2, 2] (%11 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %13 = dataflow.stage "matmul_0"(%6, %8) : (!dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>> {
      ^bb0(%14: tensor<2x2xf32>, %15: tensor<2x2xf32>):
        %16 = tensor.matmul %14, %15 : tensor<2x2xf32>, tensor<2x2xf32> -> tensor<2x2xf32>
        dataflow.yield %16 : tensor<2x2xf32>
      }
      %20 = dataflow.buffer [2, 2] (%13 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %21 = dataflow.stage "add_0"(%20, %10) : (!dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>> {
      ^bb0(%22: tensor<2x2xf32>, %23: tensor<2x2xf32>):
        %24 = tensor.add %22, %23 : tensor<2x2xf32>, tensor<2x2xf32> -> tensor<2x2xf32>
        dataflow.yield %24 : tensor<2x2xf32>
      }
      %30 = dataflow.buffer [2, 2] (%21 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %31 = dataflow.stage "add_1"(%30, %12) : (!dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>> {
      ^bb0(%32: tensor<2x2xf32>, %33: tensor<2x2xf32>):
        %34 = tensor.add %32, %33 : tensor<2x2xf32>, tensor<2x2xf32> -> tensor<2x2xf32>
        dataflow.yield %34 : tensor<2x2xf32>
      }
      %40 = dataflow.store (%31 at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> tensor<2x2xf32>
      dataflow.yield %40 : tensor<2x2xf32>
    }
    func.return %0 : tensor<2x2xf32>
  }
}
