// RUN: headrace-opt %s -p narrow-joins --split-input-file | filecheck %s

// Five parts and a result are more than four address generators: neighbours are joined two by two, on chip.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[B:.*]] = dataflow.buffer [3, 2] (%{{.*}} at 0 [2, 1], %{{.*}} at 2 [2, 1]) to (at 0 [2, 1])
// CHECK-NEXT:    %[[J:.*]] = dataflow.stage "join_0"(%[[B]])
// CHECK-NEXT:    ^bb0(%[[A:.*]]: tensor<3x2xf32>):
// CHECK-NEXT:      dataflow.yield %[[A]]
// CHECK:         dataflow.buffer [2, 2] (%{{.*}} at 0 [2, 1], %{{.*}} at 2 [2, 1]) to (at 0 [2, 1])
// CHECK:         %[[K:.*]] = dataflow.stage "join_1"
// CHECK:         dataflow.store (%[[J]] at 0 [2, 1], %[[K]] at 6 [2, 1], %{{.*}} at 10 [2, 1])
builtin.module attributes {machine.device = #machine.device<"four", {base = "plasticine", grid = {agcus_per_edge = 2}}>} {
  func.func @main(%a: tensor<1x2xf32>, %b: tensor<2x2xf32>, %c: tensor<1x2xf32>, %d: tensor<1x2xf32>, %e: tensor<1x2xf32>) -> tensor<6x2xf32> {
    %0 = dataflow.section "main_0"(%a, %b, %c, %d, %e) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<6x2xf32> {
    ^bb0(%1: tensor<1x2xf32>, %2: tensor<2x2xf32>, %3: tensor<1x2xf32>, %4: tensor<1x2xf32>, %5: tensor<1x2xf32>):
      %6 = dataflow.load %1 at 0 [2, 1] : tensor<1x2xf32> -> !dataflow.stream<tensor<1x2xf32>>
      %7 = dataflow.load %2 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %8 = dataflow.load %3 at 0 [2, 1] : tensor<1x2xf32> -> !dataflow.stream<tensor<1x2xf32>>
      %9 = dataflow.load %4 at 0 [2, 1] : tensor<1x2xf32> -> !dataflow.stream<tensor<1x2xf32>>
      %10 = dataflow.load %5 at 0 [2, 1] : tensor<1x2xf32> -> !dataflow.stream<tensor<1x2xf32>>
      %11 = dataflow.store (%6 at 0 [2, 1], %7 at 2 [2, 1], %8 at 6 [2, 1], %9 at 8 [2, 1], %10 at 10 [2, 1]) : (!dataflow.stream<tensor<1x2xf32>>, !dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<1x2xf32>>, !dataflow.stream<tensor<1x2xf32>>, !dataflow.stream<tensor<1x2xf32>>) -> tensor<6x2xf32>
      dataflow.yield %11 : tensor<6x2xf32>
    }
    func.return %0 : tensor<6x2xf32>
  }
}

// -----

// So it is where a stage reads the parts: there the result takes an address generator as well.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[J:.*]] = dataflow.stage "join_0"
// CHECK:         %[[K:.*]] = dataflow.stage "join_1"
// CHECK:         %[[B:.*]] = dataflow.buffer [6, 2] (%[[J]] at 0 [2, 1], %[[K]] at 6 [2, 1], %{{.*}} at 10 [2, 1]) to (at 0 [2, 1])
// CHECK-NEXT:    dataflow.stage "relu_0"(%[[B]])
builtin.module attributes {machine.device = #machine.device<"four", {base = "plasticine", grid = {agcus_per_edge = 2}}>} {
  func.func @main(%a: tensor<1x2xf32>, %b: tensor<2x2xf32>, %c: tensor<1x2xf32>, %d: tensor<1x2xf32>, %e: tensor<1x2xf32>) -> tensor<6x2xf32> {
    %0 = dataflow.section "main_0"(%a, %b, %c, %d, %e) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<6x2xf32> {
    ^bb0(%1: tensor<1x2xf32>, %2: tensor<2x2xf32>, %3: tensor<1x2xf32>, %4: tensor<1x2xf32>, %5: tensor<1x2xf32>):
      %6 = dataflow.load %1 at 0 [2, 1] : tensor<1x2xf32> -> !dataflow.stream<tensor<1x2xf32>>
      %7 = dataflow.load %2 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %8 = dataflow.load %3 at 0 [2, 1] : tensor<1x2xf32> -> !dataflow.stream<tensor<1x2xf32>>
      %9 = dataflow.load %4 at 0 [2, 1] : tensor<1x2xf32> -> !dataflow.stream<tensor<1x2xf32>>
      %10 = dataflow.load %5 at 0 [2, 1] : tensor<1x2xf32> -> !dataflow.stream<tensor<1x2xf32>>
      %12 = dataflow.buffer [6, 2] (%6 at 0 [2, 1], %7 at 2 [2, 1], %8 at 6 [2, 1], %9 at 8 [2, 1], %10 at 10 [2, 1]) to (at 0 [2, 1]) : (!dataflow.stream<tensor<1x2xf32>>, !dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<1x2xf32>>, !dataflow.stream<tensor<1x2xf32>>, !dataflow.stream<tensor<1x2xf32>>) -> !dataflow.stream<tensor<6x2xf32>>
      %13 = dataflow.stage "relu_0"(%12) : (!dataflow.stream<tensor<6x2xf32>>) -> !dataflow.stream<tensor<6x2xf32>> {
      ^bb0(%14: tensor<6x2xf32>):
        %15 = tensor.relu %14 : tensor<6x2xf32> -> tensor<6x2xf32>
        dataflow.yield %15 : tensor<6x2xf32>
      }
      %11 = dataflow.store (%13 at 0 [2, 1]) : (!dataflow.stream<tensor<6x2xf32>>) -> tensor<6x2xf32>
      dataflow.yield %11 : tensor<6x2xf32>
    }
    func.return %0 : tensor<6x2xf32>
  }
}

// -----

// Only parts that lie one after the other as they are written make a block; here columns, and the last one comes first.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[L:.*]] = dataflow.load
// CHECK:         %[[B:.*]] = dataflow.buffer [2, 2] (%{{.*}} at 0 [2, 1], %{{.*}} at 1 [2, 1]) to (at 0 [2, 1])
// CHECK-NEXT:    %[[J:.*]] = dataflow.stage "join_0"(%[[B]])
// CHECK:         dataflow.store (%[[L]] at 3 [4, 1], %[[J]] at 0 [4, 1], %{{.*}} at 2 [4, 1])
builtin.module attributes {machine.device = #machine.device<"four", {base = "plasticine", grid = {agcus_per_edge = 2}}>} {
  func.func @main(%a: tensor<2x1xf32>, %b: tensor<2x1xf32>, %c: tensor<2x1xf32>, %d: tensor<2x1xf32>) -> tensor<2x4xf32> {
    %0 = dataflow.section "main_0"(%a, %b, %c, %d) : (tensor<2x1xf32>, tensor<2x1xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x4xf32> {
    ^bb0(%1: tensor<2x1xf32>, %2: tensor<2x1xf32>, %3: tensor<2x1xf32>, %4: tensor<2x1xf32>):
      %5 = dataflow.load %1 at 0 [1, 1] : tensor<2x1xf32> -> !dataflow.stream<tensor<2x1xf32>>
      %6 = dataflow.load %2 at 0 [1, 1] : tensor<2x1xf32> -> !dataflow.stream<tensor<2x1xf32>>
      %7 = dataflow.load %3 at 0 [1, 1] : tensor<2x1xf32> -> !dataflow.stream<tensor<2x1xf32>>
      %8 = dataflow.load %4 at 0 [1, 1] : tensor<2x1xf32> -> !dataflow.stream<tensor<2x1xf32>>
      %9 = dataflow.store (%5 at 3 [4, 1], %6 at 0 [4, 1], %7 at 1 [4, 1], %8 at 2 [4, 1]) : (!dataflow.stream<tensor<2x1xf32>>, !dataflow.stream<tensor<2x1xf32>>, !dataflow.stream<tensor<2x1xf32>>, !dataflow.stream<tensor<2x1xf32>>) -> tensor<2x4xf32>
      dataflow.yield %9 : tensor<2x4xf32>
    }
    func.return %0 : tensor<2x4xf32>
  }
}

// -----

// A chip with address generators for all parts takes them as they come.
// CHECK-LABEL: func.func @main(
// CHECK-NOT:     dataflow.stage
builtin.module attributes {machine.device = #machine.device<"plasticine">} {
  func.func @main(%a: tensor<1x2xf32>, %b: tensor<2x2xf32>, %c: tensor<1x2xf32>, %d: tensor<1x2xf32>, %e: tensor<1x2xf32>) -> tensor<6x2xf32> {
    %0 = dataflow.section "main_0"(%a, %b, %c, %d, %e) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<6x2xf32> {
    ^bb0(%1: tensor<1x2xf32>, %2: tensor<2x2xf32>, %3: tensor<1x2xf32>, %4: tensor<1x2xf32>, %5: tensor<1x2xf32>):
      %6 = dataflow.load %1 at 0 [2, 1] : tensor<1x2xf32> -> !dataflow.stream<tensor<1x2xf32>>
      %7 = dataflow.load %2 at 0 [2, 1] : tensor<2x2xf32> -> !dataflow.stream<tensor<2x2xf32>>
      %8 = dataflow.load %3 at 0 [2, 1] : tensor<1x2xf32> -> !dataflow.stream<tensor<1x2xf32>>
      %9 = dataflow.load %4 at 0 [2, 1] : tensor<1x2xf32> -> !dataflow.stream<tensor<1x2xf32>>
      %10 = dataflow.load %5 at 0 [2, 1] : tensor<1x2xf32> -> !dataflow.stream<tensor<1x2xf32>>
      %11 = dataflow.store (%6 at 0 [2, 1], %7 at 2 [2, 1], %8 at 6 [2, 1], %9 at 8 [2, 1], %10 at 10 [2, 1]) : (!dataflow.stream<tensor<1x2xf32>>, !dataflow.stream<tensor<2x2xf32>>, !dataflow.stream<tensor<1x2xf32>>, !dataflow.stream<tensor<1x2xf32>>, !dataflow.stream<tensor<1x2xf32>>) -> tensor<6x2xf32>
      dataflow.yield %11 : tensor<6x2xf32>
    }
    func.return %0 : tensor<6x2xf32>
  }
}
