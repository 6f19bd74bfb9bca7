// Both printed forms parse to the same; numbers that are as by default are not printed.
// RUN: headrace-opt %s | filecheck %s
// RUN: headrace-opt %s | headrace-opt | filecheck %s
// RUN: headrace-opt %s --print-op-generic | headrace-opt | filecheck %s
// RUN: headrace-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

// CHECK-LABEL: func.func @network(
// CHECK: %{{.*}} = dataflow.section "s"(%x, %w) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32> {
// CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<4x8xf32>, %[[W:.*]]: tensor<8x6xf32>):
func.func @network(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>) -> tensor<4x6xf32> {
  %y = dataflow.section "s"(%x, %w) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32> {
  ^bb0(%a: tensor<4x8xf32>, %b: tensor<8x6xf32>):
    // CHECK-NEXT: %[[A:.*]] = dataflow.load %[[X]] at 0 [8, 1] : tensor<4x8xf32> -> !dataflow.stream<tensor<2x8xf32>, [2 on 0 by 2]>
    %0 = dataflow.load %a at 0 [8, 1] : tensor<4x8xf32> -> !dataflow.stream<tensor<2x8xf32>, [2 on 0 by 2]>
    // CHECK-NEXT: dataflow.buffer [4, 8] (%[[A]] at 0 [8, 1]) to (at 0 [8, 1]) {frames = 1, copies = 2, split_dim = 1, units = 3, banks = 4, fill = -1.5} : (!dataflow.stream<tensor<2x8xf32>, [2 on 0 by 2]>) -> !dataflow.stream<tensor<2x8xf32>, [2 on 0 by 2]>
    // GENERIC: "dataflow.buffer"(%{{.*}}) <{shape = array<i64: 4, 8>, in_views = [#dataflow.view<at 0 [8, 1]>], out_views = [#dataflow.view<at 0 [8, 1]>], fill = -1.500000e+00 : f64, frames = 1 : i64, copies = 2 : i64, split_dim = 1 : i64, units = 3 : i64, banks = 4 : i64}>
    %1 = dataflow.buffer [4, 8] (%0 at 0 [8, 1]) to (at 0 [8, 1]) {frames = 1, copies = 2, split_dim = 1, units = 3, banks = 4, fill = -1.5}
      : (!dataflow.stream<tensor<2x8xf32>, [2 on 0 by 2]>) -> !dataflow.stream<tensor<2x8xf32>, [2 on 0 by 2]>
    %2 = dataflow.load %b at 0 [6, 1] : tensor<8x6xf32> -> !dataflow.stream<tensor<8x6xf32>>
    // CHECK: dataflow.buffer [8, 6] (%{{.*}} at 0 [6, 1]) to (at 0 [6, 1]) : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>, [2 repeat]>
    %3 = dataflow.buffer [8, 6] (%2 at 0 [6, 1]) to (at 0 [6, 1]) {copies = 1, fill = 0}
      : (!dataflow.stream<tensor<8x6xf32>>) -> !dataflow.stream<tensor<8x6xf32>, [2 repeat]>
    // CHECK-NEXT: %[[T:.*]] = dataflow.stage "matmul_0"(%{{.*}}, %{{.*}}) par [1 by 3, 0 by 2] : (!dataflow.stream<tensor<2x8xf32>, [2 on 0 by 2]>, !dataflow.stream<tensor<8x6xf32>, [2 repeat]>) -> !dataflow.stream<tensor<2x6xf32>, [2 on 0 by 2]> {
    // CHECK-NEXT: ^bb0(%{{.*}}: tensor<2x8xf32>, %{{.*}}: tensor<8x6xf32>):
    // CHECK-NEXT: tensor.matmul
    // CHECK-NEXT: dataflow.yield %{{.*}} : tensor<2x6xf32>
    // GENERIC: "dataflow.stage"(%{{.*}}, %{{.*}}) <{sym = "matmul_0", par = array<i64: 1, 3, 0, 2>}> ({
    %4 = dataflow.stage "matmul_0"(%1, %3) par [1 by 3, 0 by 2] : (!dataflow.stream<tensor<2x8xf32>, [2 on 0 by 2]>, !dataflow.stream<tensor<8x6xf32>, [2 repeat]>) -> !dataflow.stream<tensor<2x6xf32>, [2 on 0 by 2]> {
    ^bb1(%p: tensor<2x8xf32>, %q: tensor<8x6xf32>):
      %m = tensor.matmul %p, %q : tensor<2x8xf32>, tensor<8x6xf32> -> tensor<2x6xf32>
      dataflow.yield %m : tensor<2x6xf32>
    }
    // CHECK: %[[Y:.*]] = dataflow.store (%[[T]] at 0 [6, 1]) : (!dataflow.stream<tensor<2x6xf32>, [2 on 0 by 2]>) -> tensor<4x6xf32>
    // CHECK-NEXT: dataflow.yield %[[Y]] : tensor<4x6xf32>
    %5 = dataflow.store (%4 at 0 [6, 1]) : (!dataflow.stream<tensor<2x6xf32>, [2 on 0 by 2]>) -> tensor<4x6xf32>
    dataflow.yield %5 : tensor<4x6xf32>
  }
  return %y : tensor<4x6xf32>
}

// Several writers and readers, a stage without inputs or of several results, streams of scalars, extra attributes.
// CHECK-LABEL: func.func @several(
func.func @several(%x: tensor<4xf32>, %n: tensor<f32>) -> (tensor<8xf32>, tensor<4xi1>) {
  // CHECK: dataflow.section "two"(%x, %n) attributes {note = "kept"} : (tensor<4xf32>, tensor<f32>) -> (tensor<8xf32>, tensor<4xi1>) {
  %y, %z = dataflow.section "two"(%x, %n) attributes {note = "kept"} : (tensor<4xf32>, tensor<f32>) -> (tensor<8xf32>, tensor<4xi1>) {
  ^bb0(%a: tensor<4xf32>, %b: tensor<f32>):
    // CHECK: dataflow.load %{{.*}} at 3 [-1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    %0 = dataflow.load %a at 3 [-1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // CHECK-NEXT: dataflow.load %{{.*}} at 0 [] : tensor<f32> -> !dataflow.stream<tensor<f32>>
    %1 = dataflow.load %b at 0 [] : tensor<f32> -> !dataflow.stream<tensor<f32>>
    // CHECK-NEXT: %[[I:.*]] = dataflow.stage "iota_0"() : () -> !dataflow.stream<tensor<4xf32>> {
    %2 = dataflow.stage "iota_0"() : () -> !dataflow.stream<tensor<4xf32>> {
      %i = tensor.iota {shape = array<i64: 4>, dtype = "f32", axis = 0 : i64} : tensor<4xf32>
      dataflow.yield %i : tensor<4xf32>
    }
    // CHECK: %{{.*}}, %{{.*}} = dataflow.buffer [8] (%{{.*}} at 0 [1], %[[I]] at 4 [1]) to (at 0 [1], at 7 [-2]) : (!dataflow.stream<tensor<4xf32>>, !dataflow.stream<tensor<4xf32>>) -> (!dataflow.stream<tensor<8xf32>>, !dataflow.stream<tensor<4xf32>>)
    %3, %4 = dataflow.buffer [8] (%0 at 0 [1], %2 at 4 [1]) to (at 0 [1], at 7 [-2])
      : (!dataflow.stream<tensor<4xf32>>, !dataflow.stream<tensor<4xf32>>) -> (!dataflow.stream<tensor<8xf32>>, !dataflow.stream<tensor<4xf32>>)
    // CHECK-NEXT: dataflow.buffer [] (%{{.*}} at 0 []) to (at 0 []) : (!dataflow.stream<tensor<f32>>) -> !dataflow.stream<tensor<f32>>
    %5 = dataflow.buffer [] (%1 at 0 []) to (at 0 []) : (!dataflow.stream<tensor<f32>>) -> !dataflow.stream<tensor<f32>>
    // CHECK-NEXT: %[[S:.*]], %[[L:.*]] = dataflow.stage "add_0"(%{{.*}}, %{{.*}}) : (!dataflow.stream<tensor<4xf32>>, !dataflow.stream<tensor<f32>>) -> (!dataflow.stream<tensor<4xf32>>, !dataflow.stream<tensor<4xi1>>) {
    %6, %7 = dataflow.stage "add_0"(%4, %5) : (!dataflow.stream<tensor<4xf32>>, !dataflow.stream<tensor<f32>>) -> (!dataflow.stream<tensor<4xf32>>, !dataflow.stream<tensor<4xi1>>) {
    ^bb1(%p: tensor<4xf32>, %q: tensor<f32>):
      %s = tensor.add %p, %q : tensor<4xf32>, tensor<f32> -> tensor<4xf32>
      %l = tensor.less %p, %q : tensor<4xf32>, tensor<f32> -> tensor<4xi1>
      dataflow.yield %s, %l : tensor<4xf32>, tensor<4xi1>
    }
    // CHECK: dataflow.store (%[[S]] at 0 [2], %{{.*}} at 1 [2]) : (!dataflow.stream<tensor<4xf32>>, !dataflow.stream<tensor<4xf32>>) -> tensor<8xf32>
    %8 = dataflow.store (%6 at 0 [2], %0 at 1 [2]) : (!dataflow.stream<tensor<4xf32>>, !dataflow.stream<tensor<4xf32>>) -> tensor<8xf32>
    // CHECK-NEXT: dataflow.store (%[[L]] at 0 [1]) : (!dataflow.stream<tensor<4xi1>>) -> tensor<4xi1>
    %9 = dataflow.store (%7 at 0 [1]) : (!dataflow.stream<tensor<4xi1>>) -> tensor<4xi1>
    dataflow.yield %8, %9 : tensor<8xf32>, tensor<4xi1>
  }
  return %y, %z : tensor<8xf32>, tensor<4xi1>
}

// Rows of an off-chip table at run-time indices, and a tensor with rows replaced.
// CHECK-LABEL: func.func @rows(
func.func @rows(%t: tensor<9x2xf32>, %i: tensor<4xi64>) -> tensor<9x2xf32> {
  %y = dataflow.section "rows"(%t, %i) : (tensor<9x2xf32>, tensor<4xi64>) -> tensor<9x2xf32> {
  ^bb0(%a: tensor<9x2xf32>, %b: tensor<4xi64>):
    // CHECK: %[[I:.*]] = dataflow.load
    %0 = dataflow.load %b at 0 [1] : tensor<4xi64> -> !dataflow.stream<tensor<2xi64>, [2 on 0 by 2]>
    // CHECK-NEXT: %[[R:.*]] = dataflow.gather %[[T:.*]][%[[I]]] : tensor<9x2xf32>, !dataflow.stream<tensor<2xi64>, [2 on 0 by 2]> -> !dataflow.stream<tensor<2x2xf32>, [2 on 0 by 2]>
    %1 = dataflow.gather %a[%0] : tensor<9x2xf32>, !dataflow.stream<tensor<2xi64>, [2 on 0 by 2]> -> !dataflow.stream<tensor<2x2xf32>, [2 on 0 by 2]>
    // CHECK-NEXT: %[[N:.*]] = dataflow.scatter %[[T]][%[[I]]] = %[[R]] : tensor<9x2xf32>, !dataflow.stream<tensor<2xi64>, [2 on 0 by 2]>, !dataflow.stream<tensor<2x2xf32>, [2 on 0 by 2]> -> tensor<9x2xf32>
    %2 = dataflow.scatter %a[%0] = %1 : tensor<9x2xf32>, !dataflow.stream<tensor<2xi64>, [2 on 0 by 2]>, !dataflow.stream<tensor<2x2xf32>, [2 on 0 by 2]> -> tensor<9x2xf32>
    // CHECK-NEXT: dataflow.yield %[[N]] : tensor<9x2xf32>
    dataflow.yield %2 : tensor<9x2xf32>
  }
  return %y : tensor<9x2xf32>
}

// One stream to two takers, and two streams in turns as one.
// CHECK-LABEL: func.func @fork_and_merge(
func.func @fork_and_merge(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  %y = dataflow.section "f"(%x) : (tensor<4xf32>) -> tensor<2x4xf32> {
  ^bb0(%a: tensor<4xf32>):
    // CHECK: %[[S:.*]] = dataflow.load
    %0 = dataflow.load %a at 0 [0, 1] : tensor<4xf32> -> !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2]>
    // CHECK-NEXT: %[[A:.*]], %[[B:.*]] = dataflow.fork %[[S]] : !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2]> -> !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2]>, !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2]>
    %1, %2 = dataflow.fork %0 : !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2]> -> !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2]>, !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2]>
    // CHECK-NEXT: dataflow.merge %[[A]], %[[B]] : !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2]>, !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2]> -> !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2, 2 on 0 by 1]>
    %3 = dataflow.merge %1, %2 : !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2]>, !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2]> -> !dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2, 2 on 0 by 1]>
    %4 = dataflow.store (%3 at 0 [4, 1]) : (!dataflow.stream<tensor<1x2xf32>, [2 on 1 by 2, 2 on 0 by 1]>) -> tensor<2x4xf32>
    dataflow.yield %4 : tensor<2x4xf32>
  }
  return %y : tensor<2x4xf32>
}

// What fills a buffer may be any number.
// CHECK-LABEL: func.func @fills(
func.func @fills(%x: tensor<2xf32>) -> tensor<4xf32> {
  %y = dataflow.section "f"(%x) : (tensor<2xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<2xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<2xf32> -> !dataflow.stream<tensor<2xf32>>
    // CHECK: {fill = 0xfff0000000000000 : f64} :
    %1 = dataflow.buffer [4] (%0 at 1 [1]) to (at 0 [1]) {fill = 0xfff0000000000000 : f64} : (!dataflow.stream<tensor<2xf32>>) -> !dataflow.stream<tensor<4xf32>>
    // CHECK: {fill = 1.0e-05} :
    %2 = dataflow.buffer [4] (%1 at 0 [1]) to (at 0 [1]) {fill = 1.0e-5} : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<4xf32>>
    // CHECK: {fill = -3.4028234663852886e+38} :
    %3 = dataflow.buffer [4] (%2 at 0 [1]) to (at 0 [1]) {fill = -3.4028234663852886e+38} : (!dataflow.stream<tensor<4xf32>>) -> !dataflow.stream<tensor<4xf32>>
    %4 = dataflow.store (%3 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %4 : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}
