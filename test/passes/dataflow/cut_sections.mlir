// RUN: headrace-opt %s -p 'cut-sections{share=0.05}' --split-input-file | filecheck %s

// A section that takes more units than its share is cut: what the later part needs is stored and loaded again.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[E:.*]], %[[R:.*]] = dataflow.section "main_0.0"(%x)
// CHECK:           dataflow.stage "softmax_0"
// CHECK-NOT:       dataflow.stage
// CHECK:         %[[C:.*]] = dataflow.section "main_0.1"(%[[E]])
// CHECK:           %[[L:.*]] = dataflow.load %{{.*}} at 0 [6, 1]
// CHECK-NEXT:      %[[B:.*]] = dataflow.buffer [8, 6] (%[[L]] at 0 [6, 1]) to (at 0 [6, 1])
// CHECK-NEXT:      %[[S:.*]] = dataflow.stage "cumsum_0"(%[[B]])
// CHECK:           dataflow.store (%[[S]] at 0 [6, 1])
// CHECK:         %[[Y:.*]] = dataflow.section "main_0.2"(%[[C]])
// CHECK:           dataflow.stage "softmax_1"
// CHECK:         func.return %[[Y]], %[[R]]
builtin.module attributes {machine.device = #machine.device<"plasticine">} {
  func.func @main(%x: tensor<8x6xf32>) -> (tensor<8x6xf32>, tensor<8x6xf32>) {
    %0, %1 = dataflow.section "main_0"(%x) : (tensor<8x6xf32>) -> (tensor<8x6xf32>, tensor<8x6xf32>) {
    ^bb0(%2: tensor<8x6xf32>):
      %3 = dataflow.load %2 at 0 [6, 1] : tensor<8x6xf32> -> !dataflow.stream<tensor<8x6xf32>>
      %4 = dataflow.buffer [8, 6] (%3 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>>
      %5 = dataflow.stage "softmax_0"(%4) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>> {
      ^bb0(%6: tensor<8x6xf32>):
        %7 = tensor.softmax %6 {axis = 1 : i64} : tensor<8x6xf32> -> tensor<8x6xf32>
        dataflow.yield %7 : tensor<8x6xf32>
      }
      %6 = dataflow.buffer [8, 6] (%5 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>>
      %7 = dataflow.stage "cumsum_0"(%6) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>> {
      ^bb0(%8: tensor<8x6xf32>):
        %9 = tensor.cumsum %8 {axis = 1 : i64} : tensor<8x6xf32> -> tensor<8x6xf32>
        dataflow.yield %9 : tensor<8x6xf32>
      }
      %8 = dataflow.buffer [8, 6] (%7 at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>>
      %9 = dataflow.stage "softmax_1"(%8) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>> {
      ^bb0(%10: tensor<8x6xf32>):
        %11 = tensor.softmax %10 {axis = 1 : i64} : tensor<8x6xf32> -> tensor<8x6xf32>
        dataflow.yield %11 : tensor<8x6xf32>
      }
      %10 = dataflow.store (%9 at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> tensor<8x6xf32>
      %11 = dataflow.store (%5 at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> tensor<8x6xf32>
      dataflow.yield %10, %11 : tensor<8x6xf32>, tensor<8x6xf32>
    }
    func.return %0, %1 : tensor<8x6xf32>, tensor<8x6xf32>
  }
}

// -----

// Copies from off-chip memory to off-chip memory use what address generators the sections have left: one beside the stage,
// two in a section of their own.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[R:.*]], %[[A:.*]] = dataflow.section "main_0.0"(%x, %a)
// CHECK:           dataflow.stage "relu_0"
// CHECK:         %[[B:.*]], %[[C:.*]] = dataflow.section "main_0.1"(%b, %c)
// CHECK-NOT:       dataflow.stage
// CHECK:         func.return %[[R]], %[[A]], %[[B]], %[[C]]
builtin.module attributes {machine.device = #machine.device<"four", {base = "plasticine", grid = {agcus_per_edge = 2}}>} {
  func.func @main(%x: tensor<2x2xf32>, %a: tensor<2x2xf32>, %b: tensor<2x2xf32>, %c: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
    %0, %1, %2, %3 = dataflow.section "main_0"(%x, %a, %b, %c) : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
    ^bb0(%4: tensor<2x2xf32>, %5: tensor<2x2xf32>, %6: tensor<2x2xf32>, %7: tensor<2x2xf32>):
      %8 = dataflow.load %4 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %9 = dataflow.buffer [2, 2] (%8 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %10 = dataflow.stage "relu_0"(%9) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>> {
      ^bb0(%11: tensor<2x2xf32>):
        %12 = tensor.relu %11 : tensor<2x2xf32> -> tensor<2x2xf32>
        dataflow.yield %12 : tensor<2x2xf32>
      }
      %13 = dataflow.store (%10 at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> tensor<2x2xf32>
      %14 = dataflow.load %5 at 0 [1, 2] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %15 = dataflow.store (%14 at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> tensor<2x2xf32>
      %16 = dataflow.load %6 at 0 [1, 2] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %17 = dataflow.store (%16 at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> tensor<2x2xf32>
      %18 = dataflow.load %7 at 0 [1, 2] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %19 = dataflow.store (%18 at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> tensor<2x2xf32>
      dataflow.yield %13, %15, %17, %19 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
    }
    func.return %0, %1, %2, %3 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
  }
}

// -----

// Three address generators cannot bring the first part to where the second is made of two inputs: the result is put
// together in a section of its own.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[P:.*]] = dataflow.section "main_0.0"(%x)
// CHECK:         %[[Q:.*]] = dataflow.section "main_0.1"(%y, %z)
// CHECK:         %[[R:.*]] = dataflow.section "main_0.2"(%[[P]], %[[Q]])
// CHECK:           dataflow.store (%{{.*}} at 0 [2, 1], %{{.*}} at 4 [2, 1])
// CHECK:         func.return %[[R]]
builtin.module attributes {machine.device = #machine.device<"three", {base = "plasticine", grid = {agcu_edges = 1, agcus_per_edge = 3}}>} {
  func.func @main(%x: tensor<2x2xf32>, %y: tensor<2x2xf32>, %z: tensor<2x2xf32>) -> tensor<4x2xf32> {
    %0 = dataflow.section "main_0"(%x, %y, %z) : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<4x2xf32> {
    ^bb0(%1: tensor<2x2xf32>, %2: tensor<2x2xf32>, %3: tensor<2x2xf32>):
      %4 = dataflow.load %1 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %5 = dataflow.buffer [2, 2] (%4 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %6 = dataflow.stage "relu_0"(%5) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>> {
      ^bb0(%7: tensor<2x2xf32>):
        %8 = tensor.relu %7 : tensor<2x2xf32> -> tensor<2x2xf32>
        dataflow.yield %8 : tensor<2x2xf32>
      }
      %9 = dataflow.load %2 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %10 = dataflow.buffer [2, 2] (%9 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %11 = dataflow.load %3 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %12 = dataflow.buffer [2, 2] (%11 at 0 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>>
      %13 = dataflow.stage "add_0"(%10, %12) : (!dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<2x2xf32>>) -> !dataflow.stream<tensor<2x2xf32>> {
      ^bb0(%14: tensor<2x2xf32>, %15: tensor<2x2xf32>):
        %16 = tensor.add %14, %15 : tensor<2x2xf32>, tensor<2x2xf32> -> tensor<2x2xf32>
        dataflow.yield %16 : tensor<2x2xf32>
      }
      %17 = dataflow.store (%6 at 0 [2, 1], %13 at 4 [2, 1]) : (!dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<2x2xf32>>) -> tensor<4x2xf32>
      dataflow.yield %17 : tensor<4x2xf32>
    }
    func.return %0 : tensor<4x2xf32>
  }
}

// -----

// A stage that alone takes more than the share stands alone; the others are cut as ever.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.section "main_0.0"
// CHECK:           dataflow.stage "exp_0"
// CHECK-NOT:       dataflow.stage
// CHECK:         dataflow.section "main_0.1"
// CHECK:           dataflow.stage "abs_0"
builtin.module attributes {machine.device = #machine.device<"small", {base = "plasticine", grid = {columns = 4, rows = 4, agcus_per_edge = 4}}>} {
  func.func @main(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8x4xf32>) {
    %0, %1 = dataflow.section "main_0"(%x) : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8x4xf32>) {
    ^bb0(%2: tensor<4x8xf32>):
      %3 = dataflow.load %2 at 0 [8, 1] : tensor<4x8xf32> -> !dataflow.stream<tensor<4x8xf32>>
      %4 = dataflow.buffer [4, 8] (%3 at 0 [8, 1]) to (at 0 [8, 1]) : (!dataflow.stream<tensor<4x8xf32>>) -> !dataflow.stream<tensor<4x8xf32>>
      %5, %6 = dataflow.stage "exp_0"(%4) : (!dataflow.stream<tensor<4x8xf32>>) -> (!dataflow.stream<tensor<4x8xf32>>, !dataflow.stream<tensor<4x8xf32>>) {
      ^bb0(%7: tensor<4x8xf32>):
        %8 = tensor.exp %7 : tensor<4x8xf32> -> tensor<4x8xf32>
        %9 = tensor.log %8 : tensor<4x8xf32> -> tensor<4x8xf32>
        dataflow.yield %8, %9 : tensor<4x8xf32>, tensor<4x8xf32>
      }
      %7 = dataflow.buffer [4, 8] (%6 at 0 [8, 1]) to (at 0 [1, 8]) : (!dataflow.stream<tensor<4x8xf32>>) -> !dataflow.stream<tensor<8x4xf32>>
      %8 = dataflow.stage "abs_0"(%7) : (!dataflow.stream<tensor<8x4xf32>>) -> !dataflow.stream<tensor<8x4xf32>> {
      ^bb0(%9: tensor<8x4xf32>):
        %10 = tensor.abs %9 : tensor<8x4xf32> -> tensor<8x4xf32>
        dataflow.yield %10 : tensor<8x4xf32>
      }
      %9 = dataflow.store (%5 at 0 [8, 1]) : (!dataflow.stream<tensor<4x8xf32>>) -> tensor<4x8xf32>
      %10 = dataflow.store (%8 at 0 [4, 1]) : (!dataflow.stream<tensor<8x4xf32>>) -> tensor<8x4xf32>
      dataflow.yield %9, %10 : tensor<4x8xf32>, tensor<8x4xf32>
    }
    func.return %0, %1 : tensor<4x8xf32>, tensor<8x4xf32>
  }
}
