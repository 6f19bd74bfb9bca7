// RUN: headrace-opt %s -p 'convert-tensor-to-dataflow{transposes=stages}' | filecheck %s

// A transpose of what a stage makes is a stage that copies; what is read twice is copied once. A reshape stays a view,
// and so does a transpose of what comes from outside: the load reads it in that order.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[LX:.*]] = dataflow.load %{{.*}} at 0 [1, 6] : tensor<4x6xf32> -> !dataflow.stream<tensor<6x4xf32>>
// CHECK:         %[[N:.*]] = dataflow.stage "neg_0"
// CHECK:         %[[B:.*]] = dataflow.buffer [6, 4] (%[[N]] at 0 [4, 1]) to (at 0 [1, 4])
// CHECK-NEXT:    %[[T:.*]] = dataflow.stage "copy_0"(%[[B]]) : (!dataflow.stream<tensor<4x6xf32>>)
// CHECK:         %[[E:.*]], %[[R:.*]] = dataflow.buffer [4, 6] (%[[T]] at 0 [6, 1]) to (at 0 [6, 1], at 0 [12, 6, 1])
// CHECK-NEXT:    dataflow.stage "exp_0"(%[[E]])
// CHECK:         dataflow.stage "sin_0"(%[[R]]) : (!dataflow.stream<tensor<2x2x6xf32>>)
func.func @main(%x: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<2x2x6xf32>) {
  %0 = tensor.transpose %x {perm = array<i64: 1, 0>} : tensor<4x6xf32> -> tensor<6x4xf32>
  %1 = tensor.neg %0 : tensor<6x4xf32> -> tensor<6x4xf32>
  %t = tensor.transpose %1 {perm = array<i64: 1, 0>} : tensor<6x4xf32> -> tensor<4x6xf32>
  %2 = tensor.exp %t : tensor<4x6xf32> -> tensor<4x6xf32>
  %r = tensor.reshape %t {shape = array<i64: 2, 2, 6>} : tensor<4x6xf32> -> tensor<2x2x6xf32>
  %3 = tensor.sin %r : tensor<2x2x6xf32> -> tensor<2x2x6xf32>
  return %2, %3 : tensor<4x6xf32>, tensor<2x2x6xf32>
}

// What a concatenation takes is the copy, not the stage before it through a view: no copy is made that nobody reads.
// CHECK-LABEL: func.func @joined(
// CHECK:         %[[T:.*]] = dataflow.stage "copy_0"
// CHECK:         dataflow.buffer [4, 12] (%[[T]] at 0 [12, 1], %[[T]] at 6 [12, 1])
func.func @joined(%x: tensor<6x4xf32>) -> tensor<4x12xf32> {
  %0 = tensor.neg %x : tensor<6x4xf32> -> tensor<6x4xf32>
  %t = tensor.transpose %0 {perm = array<i64: 1, 0>} : tensor<6x4xf32> -> tensor<4x6xf32>
  %c = tensor.concat %t, %t {axis = 1 : i64} : tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x12xf32>
  %1 = tensor.exp %c : tensor<4x12xf32> -> tensor<4x12xf32>
  return %1 : tensor<4x12xf32>
}
