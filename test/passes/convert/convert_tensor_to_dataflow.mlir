// RUN: headrace-opt %s -p convert-tensor-to-dataflow --split-input-file | filecheck %s

// Every compute op is a stage between buffers; scalars stand in its body, weights stay outside of the section.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %w = tensor.weight "w" : tensor<6x8xf32>
// CHECK-NEXT:    %[[R:.*]] = dataflow.section "main_0"(%x, %w) : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32> {
// CHECK-NEXT:    ^bb0(%[[X:.*]]: tensor<4x6xf32>, %[[W:.*]]: tensor<6x8xf32>):
// CHECK-NEXT:      %[[LX:.*]] = dataflow.load %[[X]] at 0 [6, 1]
// CHECK-NEXT:      %[[BX:.*]] = dataflow.buffer [4, 6] (%[[LX]] at 0 [6, 1]) to (at 0 [6, 1])
// CHECK-NEXT:      %[[LW:.*]] = dataflow.load %[[W]] at 0 [8, 1]
// CHECK-NEXT:      %[[BW:.*]] = dataflow.buffer [6, 8] (%[[LW]] at 0 [8, 1]) to (at 0 [8, 1])
// CHECK-NEXT:      %[[M:.*]] = dataflow.stage "matmul_0"(%[[BX]], %[[BW]])
// CHECK:           %[[BM:.*]] = dataflow.buffer [4, 8] (%[[M]] at 0 [8, 1]) to (at 0 [8, 1])
// CHECK-NEXT:      %[[S:.*]] = dataflow.stage "mul_0"(%[[BM]])
// CHECK:             tensor.constant dense<5.000000e-01> : tensor<f32>
// CHECK:           %[[O:.*]] = dataflow.store (%[[S]] at 0 [8, 1])
// CHECK-NEXT:      dataflow.yield %[[O]]
// CHECK:         func.return %[[R]]
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x8xf32> {
  %w = tensor.weight "w" : tensor<6x8xf32>
  %half = tensor.constant dense<0.5> : tensor<f32>
  %0 = tensor.matmul %x, %w : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  %1 = tensor.mul %0, %half : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32>
  %unused = tensor.exp %1 : tensor<4x8xf32> -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// -----

// What moves a computed value is how its readers address the buffer: transposed, reshaped, sliced backwards, broadcast.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[N:.*]] = dataflow.stage "neg_0"
// CHECK:         %[[T:.*]], %[[R:.*]], %[[S:.*]], %[[B:.*]] = dataflow.buffer [4, 6] (%[[N]] at 0 [6, 1])
// CHECK-SAME:      to (at 0 [1, 6], at 0 [12, 6, 1], at 19 [-12, 2], at 0 [0, 6, 1])
// CHECK-NEXT:    dataflow.stage "exp_0"(%[[T]]) : (!dataflow.stream<tensor<6x4xf32>>)
// CHECK:         dataflow.stage "reduce_sum_0"(%[[R]]) : (!dataflow.stream<tensor<2x2x6xf32>>)
// CHECK:         dataflow.stage "sin_0"(%[[S]]) : (!dataflow.stream<tensor<2x3xf32>>)
// CHECK:         dataflow.stage "cos_0"(%[[B]]) : (!dataflow.stream<tensor<3x4x6xf32>>)
func.func @main(%x: tensor<4x6xf32>) -> (tensor<6x4xf32>, tensor<2x6xf32>, tensor<2x3xf32>, tensor<3x4x6xf32>) {
  %0 = tensor.neg %x : tensor<4x6xf32> -> tensor<4x6xf32>
  %t = tensor.transpose %0 {perm = array<i64: 1, 0>} : tensor<4x6xf32> -> tensor<6x4xf32>
  %1 = tensor.exp %t : tensor<6x4xf32> -> tensor<6x4xf32>
  %r = tensor.reshape %0 {shape = array<i64: 2, 2, 6>} : tensor<4x6xf32> -> tensor<2x2x6xf32>
  %2 = tensor.reduce_sum %r {axes = array<i64: 1>, keepdims = false} : tensor<2x2x6xf32> -> tensor<2x6xf32>
  %s = tensor.slice %0 {starts = array<i64: 3, 1>, stops = array<i64: 0, 6>, steps = array<i64: -2, 2>} : tensor<4x6xf32> -> tensor<2x3xf32>
  %3 = tensor.sin %s : tensor<2x3xf32> -> tensor<2x3xf32>
  %b = tensor.broadcast %0 {shape = array<i64: 3, 4, 6>} : tensor<4x6xf32> -> tensor<3x4x6xf32>
  %4 = tensor.cos %b : tensor<3x4x6xf32> -> tensor<3x4x6xf32>
  return %1, %2, %3, %4 : tensor<6x4xf32>, tensor<2x6xf32>, tensor<2x3xf32>, tensor<3x4x6xf32>
}

// -----

// Of an input only the part that is read is loaded, once for a broadcast.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[L:.*]] = dataflow.load %{{.*}} at 6 [6, 1] : tensor<4x6xf32> -> !dataflow.stream<tensor<2x6xf32>>
// CHECK-NEXT:    dataflow.buffer [2, 6] (%[[L]] at 0 [6, 1]) to (at 0 [6, 1])
// CHECK:         %[[C:.*]] = dataflow.load %{{.*}} at 2 [0, 6, 1] : tensor<4x6xf32> -> !dataflow.stream<tensor<1x4x1xf32>>
// CHECK-NEXT:    dataflow.buffer [1, 4, 1] (%[[C]] at 0 [4, 1, 1]) to (at 0 [0, 1, 1])
// CHECK-SAME:      -> !dataflow.stream<tensor<3x4x1xf32>>
func.func @main(%x: tensor<4x6xf32>) -> (tensor<2x6xf32>, tensor<3x4x1xf32>) {
  %s = tensor.slice %x {starts = array<i64: 1, 0>, stops = array<i64: 3, 6>, steps = array<i64: 1, 1>} : tensor<4x6xf32> -> tensor<2x6xf32>
  %0 = tensor.exp %s : tensor<2x6xf32> -> tensor<2x6xf32>
  %c = tensor.slice %x {starts = array<i64: 0, 2>, stops = array<i64: 4, 3>, steps = array<i64: 1, 1>} : tensor<4x6xf32> -> tensor<4x1xf32>
  %b = tensor.broadcast %c {shape = array<i64: 3, 4, 1>} : tensor<4x1xf32> -> tensor<3x4x1xf32>
  %1 = tensor.exp %b : tensor<3x4x1xf32> -> tensor<3x4x1xf32>
  return %0, %1 : tensor<2x6xf32>, tensor<3x4x1xf32>
}

// -----

// Parts of a concatenation are written side by side, on chip and off; what pads a tensor fills its buffer.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[N:.*]] = dataflow.stage "neg_0"
// CHECK:         %[[E:.*]] = dataflow.stage "exp_0"
// CHECK:         dataflow.buffer [2, 5] (%[[N]] at 0 [5, 1], %[[E]] at 3 [5, 1]) to (at 0 [5, 1])
// CHECK:         %[[S:.*]] = dataflow.stage "sin_0"
// CHECK:         dataflow.buffer [4, 5] (%[[S]] at 5 [5, 1]) to (at 0 [1, 5]) {fill = 2.5}
// CHECK:         dataflow.stage "cos_0"
// CHECK:         dataflow.store (%[[N]] at 0 [5, 1], %[[E]] at 3 [5, 1]) {{.*}} -> tensor<2x5xf32>
func.func @main(%x: tensor<2x3xf32>, %y: tensor<2x2xf32>) -> (tensor<2x5xf32>, tensor<5x4xf32>) {
  %0 = tensor.neg %x : tensor<2x3xf32> -> tensor<2x3xf32>
  %1 = tensor.exp %y : tensor<2x2xf32> -> tensor<2x2xf32>
  %c = tensor.concat %0, %1 {axis = 1 : i64} : tensor<2x3xf32>, tensor<2x2xf32> -> tensor<2x5xf32>
  %2 = tensor.sin %c : tensor<2x5xf32> -> tensor<2x5xf32>
  %p = tensor.pad %2 {lo = array<i64: 1, 0>, hi = array<i64: 1, 0>, value = 2.5 : f64} : tensor<2x5xf32> -> tensor<4x5xf32>
  %t = tensor.transpose %p {perm = array<i64: 1, 0>} : tensor<4x5xf32> -> tensor<5x4xf32>
  %3 = tensor.cos %t : tensor<5x4xf32> -> tensor<5x4xf32>
  return %c, %3 : tensor<2x5xf32>, tensor<5x4xf32>
}

// -----

// Where no strides say the order, the value is written in that order; a result that is padded passes through a buffer,
// since memory off chip is filled by nobody.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[N:.*]] = dataflow.stage "neg_0"
// CHECK:         %[[T:.*]] = dataflow.buffer [6, 4] (%[[N]] at 0 [1, 4]) to (at 0 [1])
// CHECK-NEXT:    dataflow.stage "exp_0"(%[[T]]) : (!dataflow.stream<tensor<24xf32>>)
// CHECK:         %[[P:.*]] = dataflow.buffer [6, 6] (%[[N]] at 6 [6, 1]) to (at 0 [6, 1])
// CHECK-NEXT:    %[[C:.*]] = dataflow.stage "copy_0"(%[[P]])
// CHECK-NEXT:    ^bb0(%[[A:.*]]: tensor<6x6xf32>):
// CHECK-NEXT:      dataflow.yield %[[A]]
// CHECK:         dataflow.store (%[[C]] at 0 [6, 1])
func.func @main(%x: tensor<4x6xf32>) -> (tensor<24xf32>, tensor<6x6xf32>) {
  %0 = tensor.neg %x : tensor<4x6xf32> -> tensor<4x6xf32>
  %t = tensor.transpose %0 {perm = array<i64: 1, 0>} : tensor<4x6xf32> -> tensor<6x4xf32>
  %r = tensor.reshape %t {shape = array<i64: 24>} : tensor<6x4xf32> -> tensor<24xf32>
  %1 = tensor.exp %r : tensor<24xf32> -> tensor<24xf32>
  %p = tensor.pad %0 {lo = array<i64: 1, 0>, hi = array<i64: 1, 0>} : tensor<4x6xf32> -> tensor<6x6xf32>
  return %1, %p : tensor<24xf32>, tensor<6x6xf32>
}

// -----

// A reshape of part of a value, which no strides express: the part gets a buffer of its own.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[N:.*]] = dataflow.stage "neg_0"
// CHECK:         %[[S:.*]] = dataflow.buffer [3, 4] (%[[N]] at 0 [4, 1]) to (at 2 [4, 1])
// CHECK:         %[[C:.*]] = dataflow.stage "copy_0"(%[[S]])
// CHECK:         %[[B:.*]] = dataflow.buffer [3, 2] (%[[C]] at 0 [2, 1]) to (at 0 [1])
// CHECK-NEXT:    dataflow.stage "exp_0"(%[[B]]) : (!dataflow.stream<tensor<6xf32>>)
func.func @main(%x: tensor<3x4xf32>) -> tensor<6xf32> {
  %0 = tensor.neg %x : tensor<3x4xf32> -> tensor<3x4xf32>
  %a, %b = tensor.split %0 {axis = 1 : i64, sizes = array<i64: 2, 2>} : tensor<3x4xf32> -> tensor<3x2xf32>, tensor<3x2xf32>
  %r = tensor.reshape %b {shape = array<i64: 6>} : tensor<3x2xf32> -> tensor<6xf32>
  %1 = tensor.exp %r : tensor<6xf32> -> tensor<6xf32>
  return %1 : tensor<6xf32>
}

// -----

// Results that nothing computes: dense views of an input stay views, others are moved by loads and stores; a constant
// becomes a weight that a recipe makes.
// CHECK-LABEL: tensor.recipe @"constant|main|0"
// CHECK-NEXT:    tensor.constant dense<[1.000000e+00, 2.000000e+00, 3.000000e+00]> : tensor<3xf32>
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[C:.*]] = tensor.weight "constant|main|0" : tensor<3xf32>
// CHECK-NEXT:    %[[T:.*]] = dataflow.section "main_0"(%x)
// CHECK:           %[[L:.*]] = dataflow.load %{{.*}} at 0 [6, 1]
// CHECK-NEXT:      dataflow.store (%[[L]] at 0 [1, 4]) {{.*}} -> tensor<6x4xf32>
// CHECK:         %[[S:.*]] = tensor.slice %x
// CHECK-NEXT:    func.return %[[S]], %x, %x, %[[C]], %[[T]]
func.func @main(%x: tensor<4x6xf32>) -> (tensor<2x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<3xf32>, tensor<6x4xf32>) {
  %c = tensor.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %s = tensor.slice %x {starts = array<i64: 1, 0>, stops = array<i64: 3, 6>, steps = array<i64: 1, 1>} : tensor<4x6xf32> -> tensor<2x6xf32>
  %t = tensor.transpose %x {perm = array<i64: 1, 0>} : tensor<4x6xf32> -> tensor<6x4xf32>
  return %s, %x, %x, %c, %t : tensor<2x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<3xf32>, tensor<6x4xf32>
}

// -----

// Of two parts of a split, one stays a view of the stored value and one, which is not dense, is stored by itself.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[S:.*]], %[[B:.*]] = dataflow.section "main_0"(%x)
// CHECK:         %[[A:.*]], %{{.*}} = tensor.split
// CHECK-NEXT:    func.return %[[S]], %[[A]], %[[B]]
func.func @main(%x: tensor<4x2xf32>) -> (tensor<4x2xf32>, tensor<1x1xf32>, tensor<3x1xf32>) {
  %0 = tensor.exp %x : tensor<4x2xf32> -> tensor<4x2xf32>
  %c = tensor.slice %0 {starts = array<i64: 0, 1>, stops = array<i64: 4, 2>, steps = array<i64: 1, 1>} : tensor<4x2xf32> -> tensor<4x1xf32>
  %a, %b = tensor.split %c {axis = 0 : i64, sizes = array<i64: 1, 3>} : tensor<4x1xf32> -> tensor<1x1xf32>, tensor<3x1xf32>
  return %0, %a, %b : tensor<4x2xf32>, tensor<1x1xf32>, tensor<3x1xf32>
}

// -----

// Rows of a table off chip are gathered there, along the first dim only; elsewhere the table comes on chip.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[I:.*]], %[[J:.*]] = dataflow.buffer [2, 3]
// CHECK-NEXT:    %[[G:.*]] = dataflow.gather %[[W:.*]][%[[I]]] : tensor<100x4xf32>, !dataflow.stream<tensor<2x3xi64>> -> !dataflow.stream<tensor<2x3x4xf32>>
// CHECK-NEXT:    %[[L:.*]] = dataflow.load %[[W]] at 0 [4, 1]
// CHECK-NEXT:    %[[B:.*]] = dataflow.buffer [100, 4] (%[[L]] at 0 [4, 1])
// CHECK-NEXT:    dataflow.stage "gather_0"(%[[B]], %[[J]])
func.func @main(%i: tensor<2x3xi64>) -> (tensor<2x3x4xf32>, tensor<100x2x3xf32>) {
  %w = tensor.weight "w" : tensor<100x4xf32>
  %0 = tensor.gather %w, %i {axis = 0 : i64} : tensor<100x4xf32>, tensor<2x3xi64> -> tensor<2x3x4xf32>
  %1 = tensor.gather %w, %i {axis = 1 : i64} : tensor<100x4xf32>, tensor<2x3xi64> -> tensor<100x2x3xf32>
  return %0, %1 : tensor<2x3x4xf32>, tensor<100x2x3xf32>
}

// -----

// A table that is put together of computed values is on chip.
// CHECK-LABEL: func.func @main(
// CHECK:         %[[B:.*]] = dataflow.buffer [4, 2] (%{{.*}} at 0 [2, 1], %{{.*}} at 4 [2, 1])
// CHECK:         dataflow.stage "gather_0"(%[[B]], %{{.*}})
func.func @main(%x: tensor<2x2xf32>, %i: tensor<3xi64>) -> tensor<3x2xf32> {
  %0 = tensor.exp %x : tensor<2x2xf32> -> tensor<2x2xf32>
  %1 = tensor.neg %x : tensor<2x2xf32> -> tensor<2x2xf32>
  %c = tensor.concat %0, %1 {axis = 0 : i64} : tensor<2x2xf32>, tensor<2x2xf32> -> tensor<4x2xf32>
  %2 = tensor.gather %c, %i {axis = 0 : i64} : tensor<4x2xf32>, tensor<3xi64> -> tensor<3x2xf32>
  return %2 : tensor<3x2xf32>
}

// -----

// Rows of a state are written where it lies, after what reads the old ones and before what reads the new ones.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[E:.*]] = dataflow.section "main_0"(%x)
// CHECK:           dataflow.stage "exp_0"
// CHECK:         %[[S:.*]] = dataflow.section "main_1"(%i, %[[E]], %x)
// CHECK-NEXT:    ^bb0(%{{.*}}: tensor<1x1xi64>, %{{.*}}: tensor<1x6xf32>, %[[X:.*]]: tensor<4x6xf32>):
// CHECK:           %[[I:.*]] = dataflow.buffer [1, 1] (%{{.*}} at 0 [1, 1]) to (at 0 [1])
// CHECK-SAME:        -> !dataflow.stream<tensor<1xi64>>
// CHECK:           %[[R:.*]] = dataflow.scatter %[[X]][%[[I]]] = %{{.*}} : tensor<4x6xf32>
// CHECK-NEXT:      dataflow.yield %[[R]]
// CHECK:         %[[N:.*]] = dataflow.section "main_2"(%[[S]])
// CHECK:           dataflow.stage "neg_0"
// CHECK:         func.return %[[S]], %[[N]]
func.func @main(%x: tensor<4x6xf32> {tensor.name = "x"}, %i: tensor<1x1xi64> {tensor.name = "i"}) -> (tensor<4x6xf32>, tensor<4x6xf32>)
    attributes {tensor.result_names = ["next", "y"], tensor.states = [["x", "next"]]} {
  %s = tensor.slice %x {starts = array<i64: 1, 0>, stops = array<i64: 2, 6>, steps = array<i64: 1, 1>} : tensor<4x6xf32> -> tensor<1x6xf32>
  %0 = tensor.exp %s : tensor<1x6xf32> -> tensor<1x6xf32>
  %1 = tensor.scatter_nd %x, %i, %0 : tensor<4x6xf32>, tensor<1x1xi64>, tensor<1x6xf32> -> tensor<4x6xf32>
  %2 = tensor.neg %1 : tensor<4x6xf32> -> tensor<4x6xf32>
  return %1, %2 : tensor<4x6xf32>, tensor<4x6xf32>
}

// -----

// A program returns a state as it was: a copy, since the state changes when the program ends.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[C:.*]] = dataflow.section "main_0"(%x)
// CHECK:           dataflow.load
// CHECK-NEXT:      dataflow.store
// CHECK:         func.return %y, %[[C]]
func.func @main(%x: tensor<4xf32> {tensor.name = "x"}, %y: tensor<4xf32> {tensor.name = "y"}) -> (tensor<4xf32>, tensor<4xf32>)
    attributes {tensor.result_names = ["next", "old"], tensor.states = [["x", "next"]]} {
  return %y, %x : tensor<4xf32>, tensor<4xf32>
}

// -----

// Of two sets of new rows, only those that become the state are written where it lies.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[C:.*]] = dataflow.section "main_0_copy0"(%x)
// CHECK:         dataflow.section "main_0"(%i, %r, %[[C]])
// CHECK:           dataflow.scatter
// CHECK:         dataflow.section "main_1"(%j, %r, %x)
// CHECK:           dataflow.scatter
func.func @main(%x: tensor<4x6xf32> {tensor.name = "x"}, %i: tensor<1x1xi64> {tensor.name = "i"}, %j: tensor<1x1xi64> {tensor.name = "j"}, %r: tensor<1x6xf32> {tensor.name = "r"})
    -> (tensor<4x6xf32>, tensor<4x6xf32>) attributes {tensor.result_names = ["other", "next"], tensor.states = [["x", "next"]]} {
  %0 = tensor.scatter_nd %x, %i, %r : tensor<4x6xf32>, tensor<1x1xi64>, tensor<1x6xf32> -> tensor<4x6xf32>
  %1 = tensor.scatter_nd %x, %j, %r : tensor<4x6xf32>, tensor<1x1xi64>, tensor<1x6xf32> -> tensor<4x6xf32>
  return %0, %1 : tensor<4x6xf32>, tensor<4x6xf32>
}

// -----

// Rows of an input are written into a copy of it: inputs are the caller's.
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[C:.*]] = dataflow.section "main_0_copy0"(%x)
// CHECK:           %[[L:.*]] = dataflow.load
// CHECK-NEXT:      dataflow.store (%[[L]] at 0 [6, 1])
// CHECK:         dataflow.section "main_0"(%i, %r, %[[C]])
// CHECK:           dataflow.scatter
func.func @main(%x: tensor<4x6xf32>, %i: tensor<1x1xi64>, %r: tensor<1x6xf32>) -> tensor<4x6xf32> {
  %0 = tensor.scatter_nd %x, %i, %r : tensor<4x6xf32>, tensor<1x1xi64>, tensor<1x6xf32> -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

// A call parts sections. A shared function writes the state that its caller hands on; blocks of a concatenation are
// written where they belong, unless they belong to two.
// CHECK-LABEL: func.func private @layer(
// CHECK:         dataflow.section "layer_0"(%i, %r, %s)
// CHECK:           dataflow.scatter
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    %[[E:.*]] = dataflow.section "main_0"(%s)
// CHECK:         %[[R:.*]] = tensor.reshape %[[E]]
// CHECK-NEXT:    %[[S:.*]], %[[Y:.*]] = func.call @layer(%s, %i, %[[R]])
// CHECK-NEXT:    %[[D:.*]] = dataflow.section "main_1"(%[[Y]], %[[E]])
// CHECK:           dataflow.store (%{{.*}} at 0 [6, 1], %{{.*}} at 6 [1])
// CHECK:         %[[C:.*]] = tensor.concat %[[R]], %[[Y]]
// CHECK-NEXT:    func.return %[[S]], %[[C]], %[[D]]
func.func private @layer(%s: tensor<4x6xf32>, %i: tensor<1x1xi64>, %r: tensor<1x6xf32>) -> (tensor<4x6xf32>, tensor<1x6xf32>) {
  %0 = tensor.scatter_nd %s, %i, %r : tensor<4x6xf32>, tensor<1x1xi64>, tensor<1x6xf32> -> tensor<4x6xf32>
  %1 = tensor.neg %r : tensor<1x6xf32> -> tensor<1x6xf32>
  return %0, %1 : tensor<4x6xf32>, tensor<1x6xf32>
}
func.func @main(%s: tensor<4x6xf32> {tensor.name = "s"}, %i: tensor<1x1xi64> {tensor.name = "i"}) -> (tensor<4x6xf32>, tensor<2x6xf32>, tensor<2x6xf32>)
    attributes {tensor.result_names = ["next", "y", "z"], tensor.states = [["s", "next"]]} {
  %f = tensor.reduce_max %s {axes = array<i64: 0>, keepdims = false} : tensor<4x6xf32> -> tensor<6xf32>
  %e = tensor.reshape %f {shape = array<i64: 1, 6>} : tensor<6xf32> -> tensor<1x6xf32>
  %0, %1 = func.call @layer(%s, %i, %e) : (tensor<4x6xf32>, tensor<1x1xi64>, tensor<1x6xf32>) -> (tensor<4x6xf32>, tensor<1x6xf32>)
  %c = tensor.concat %e, %1 {axis = 0 : i64} : tensor<1x6xf32>, tensor<1x6xf32> -> tensor<2x6xf32>
  %d = tensor.concat %1, %e {axis = 0 : i64} : tensor<1x6xf32>, tensor<1x6xf32> -> tensor<2x6xf32>
  return %0, %c, %d : tensor<4x6xf32>, tensor<2x6xf32>, tensor<2x6xf32>
}

// -----

// What a shared function returns of its arguments is copied: results of a call have memory of their own.
// CHECK-LABEL: func.func private @same(
// CHECK-NEXT:    %[[C:.*]] = dataflow.section "same_0"(%x)
// CHECK:         func.return %[[C]]
func.func private @same(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// Tensors without elements are no streams: what makes them is a constant, a sum of nothing is zero.
// CHECK-LABEL: tensor.recipe @"constant|main|0"
// CHECK:         tensor.constant dense<0.000000e+00> : tensor<5xf32>
// CHECK-LABEL: func.func @main(
// CHECK-NEXT:    tensor.weight "constant|main|0" : tensor<5xf32>
// CHECK-NEXT:    %[[E:.*]] = tensor.weight "constant|main|1" : tensor<0x5xf32>
// CHECK-NEXT:    dataflow.section "main_0"(%x)
// CHECK:           dataflow.stage "neg_0"
// CHECK-NOT:       dataflow.stage
// CHECK:         func.return %{{.*}}, %{{.*}}, %[[E]]
func.func @main(%x: tensor<4x5xf32>, %e: tensor<0x5xf32>) -> (tensor<4x5xf32>, tensor<5xf32>, tensor<0x5xf32>) {
  %c = tensor.concat %e, %x {axis = 0 : i64} : tensor<0x5xf32>, tensor<4x5xf32> -> tensor<4x5xf32>
  %0 = tensor.neg %c : tensor<4x5xf32> -> tensor<4x5xf32>
  %1 = tensor.reduce_sum %e {axes = array<i64: 0>, keepdims = false} : tensor<0x5xf32> -> tensor<5xf32>
  %2 = tensor.exp %e : tensor<0x5xf32> -> tensor<0x5xf32>
  return %0, %1, %2 : tensor<4x5xf32>, tensor<5xf32>, tensor<0x5xf32>
}

// -----

// A stage sends the results that something reads.
// CHECK-LABEL: func.func @main(
// CHECK:         dataflow.stage "sort_0"(%{{.*}}) : (!dataflow.stream<tensor<4x6xf32>>) -> !dataflow.stream<tensor<4x6xi64>>
// CHECK:           %{{.*}}, %[[I:.*]] = tensor.sort
// CHECK-NEXT:      dataflow.yield %[[I]] : tensor<4x6xi64>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xi64> {
  %0, %1 = tensor.sort %x {axis = 1 : i64} : tensor<4x6xf32> -> tensor<4x6xf32>, tensor<4x6xi64>
  return %1 : tensor<4x6xi64>
}
