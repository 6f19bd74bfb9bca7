// RUN: headrace-opt %s -p 'outline-repeated-layers{min-ops=3 min-saved=3}' --split-input-file | filecheck %s
// RUN: headrace-opt %s -p 'outline-repeated-layers{min-ops=3 min-saved=3}' --split-input-file --print-debuginfo | filecheck %s --check-prefix=LOC

// Three equal layers: weights and constants that differ become arguments, what they share is inside.
// BEGIN CHECK @layers @layer (generated: `python -m headrace.tools.update_tests`)
// CHECK-LABEL: func.func @layers(
// CHECK-SAME:  %[[X:.*]]: tensor<4x4xf32>) -> tensor<4x4xf32> {
// CHECK-NEXT:    %[[BIAS:.*]] = tensor.weight "bias" : tensor<4xf32>
// CHECK-NEXT:    %[[W0:.*]] = tensor.weight "h.0.weight" : tensor<4x4xf32>
// CHECK-NEXT:    %[[S0:.*]] = tensor.constant dense<1.000000e+00> : tensor<f32>
// CHECK-NEXT:    %[[CALL:.*]] = func.call @layer(%[[X]], %[[W0]], %[[S0]]) : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>) -> tensor<4x4xf32>
// CHECK-NEXT:    %[[W1:.*]] = tensor.weight "h.1.weight" : tensor<4x4xf32>
// CHECK-NEXT:    %[[S1:.*]] = tensor.constant dense<2.000000e+00> : tensor<f32>
// CHECK-NEXT:    %[[CALL_2:.*]] = func.call @layer(%[[CALL]], %[[W1]], %[[S1]]) : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>) -> tensor<4x4xf32>
// CHECK-NEXT:    %[[W2:.*]] = tensor.weight "h.2.weight" : tensor<4x4xf32>
// CHECK-NEXT:    %[[S2:.*]] = tensor.constant dense<3.000000e+00> : tensor<f32>
// CHECK-NEXT:    %[[CALL_3:.*]] = func.call @layer(%[[CALL_2]], %[[W2]], %[[S2]]) : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>) -> tensor<4x4xf32>
// CHECK-NEXT:    func.return %[[CALL_3]] : tensor<4x4xf32>
// CHECK-NEXT:  }
// CHECK-LABEL: func.func private @layer(
// CHECK-SAME:  %[[X:.*]]: tensor<4x4xf32>, %[[WEIGHT:.*]]: tensor<4x4xf32>, %[[S0:.*]]: tensor<f32>) -> tensor<4x4xf32> {
// CHECK-NEXT:    %[[MATMUL:.*]] = tensor.matmul %[[X]], %[[WEIGHT]] : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
// CHECK-NEXT:    %[[BIAS:.*]] = tensor.weight "bias" : tensor<4xf32>
// CHECK-NEXT:    %[[ADD:.*]] = tensor.add %[[MATMUL]], %[[BIAS]] : tensor<4x4xf32>, tensor<4xf32> -> tensor<4x4xf32>
// CHECK-NEXT:    %[[MUL:.*]] = tensor.mul %[[ADD]], %[[S0]] : tensor<4x4xf32>, tensor<f32> -> tensor<4x4xf32>
// CHECK-NEXT:    func.return %[[MUL]] : tensor<4x4xf32>
// CHECK-NEXT:  }
// END CHECK

// A call stands for the ops of its layer, under their path; an op inside for those of all layers, under what follows it.
// LOC-LABEL: @layers
// LOC:         func.call @layer({{.*}} loc("/h.0"(fused["/h.0/attn/matmul", "/h.0/add", "/h.0/mul"]))
// LOC:         func.call @layer({{.*}} loc("/h.1"(fused["/h.1/attn/matmul", "/h.1/add", "/h.1/mul"]))
// LOC:         func.call @layer({{.*}} loc("/h.2"(fused["/h.2/attn/matmul", "/h.2/add", "/h.2/mul"]))
// LOC:         @layer(%x: tensor<4x4xf32> loc("x"(fused[{{.*}}":38:19, "/h.0/mul", "/h.1/mul"]))
// LOC:         tensor.matmul {{.*}} loc("attn/matmul"(fused["/h.0/attn/matmul", "/h.1/attn/matmul", "/h.2/attn/matmul"]))
// LOC:         tensor.add {{.*}} loc("add"(fused["/h.0/add", "/h.1/add", "/h.2/add"]))
func.func @layers(%x : tensor<4x4xf32>) -> tensor<4x4xf32> {
  %bias = tensor.weight "bias" : tensor<4xf32>
  %w0 = tensor.weight "h.0.weight" : tensor<4x4xf32>
  %s0 = tensor.constant dense<1.0> : tensor<f32>
  %0 = tensor.matmul %x, %w0 : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32> loc("/h.0/attn/matmul")
  %1 = tensor.add %0, %bias : tensor<4x4xf32>, tensor<4xf32> -> tensor<4x4xf32> loc("/h.0/add")
  %2 = tensor.mul %1, %s0 : tensor<4x4xf32>, tensor<f32> -> tensor<4x4xf32> loc("/h.0/mul")
  %w1 = tensor.weight "h.1.weight" : tensor<4x4xf32>
  %s1 = tensor.constant dense<2.0> : tensor<f32>
  %3 = tensor.matmul %2, %w1 : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32> loc("/h.1/attn/matmul")
  %4 = tensor.add %3, %bias : tensor<4x4xf32>, tensor<4xf32> -> tensor<4x4xf32> loc("/h.1/add")
  %5 = tensor.mul %4, %s1 : tensor<4x4xf32>, tensor<f32> -> tensor<4x4xf32> loc("/h.1/mul")
  %w2 = tensor.weight "h.2.weight" : tensor<4x4xf32>
  %s2 = tensor.constant dense<3.0> : tensor<f32>
  %6 = tensor.matmul %5, %w2 : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32> loc("/h.2/attn/matmul")
  %7 = tensor.add %6, %bias : tensor<4x4xf32>, tensor<4xf32> -> tensor<4x4xf32> loc("/h.2/add")
  %8 = tensor.mul %7, %s2 : tensor<4x4xf32>, tensor<f32> -> tensor<4x4xf32> loc("/h.2/mul")
  return %8 : tensor<4x4xf32>
}

// -----

// Each layer reads its part of an argument and makes a part of a result: the slices stay outside, the parts go in and
// out of the calls.
// CHECK-LABEL: @caches
// CHECK:         %[[P0:.*]] = tensor.slice %past {starts = array<i64: 0, 0, 0>
// CHECK:         %[[KA:.*]], %[[A:.*]] = func.call @layer(%x, %[[P0]])
// CHECK:         %[[P1:.*]] = tensor.slice %past {starts = array<i64: 1, 0, 0>
// CHECK:         %[[KB:.*]], %[[B:.*]] = func.call @layer(%[[A]], %[[P1]])
// CHECK:         tensor.concat %[[KA]], %[[KB]]
// CHECK:       func.func private @layer
func.func @caches(%x : tensor<1x4x4xf32>, %past : tensor<2x4x4xf32>) -> (tensor<1x4x4xf32>, tensor<2x4x4xf32>) {
  %p0 = tensor.slice %past {starts = array<i64: 0, 0, 0>, stops = array<i64: 1, 4, 4>, steps = array<i64: 1, 1, 1>} : tensor<2x4x4xf32> -> tensor<1x4x4xf32>
  %0 = tensor.matmul %x, %p0 : tensor<1x4x4xf32>, tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  %1 = tensor.softmax %0 : tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  %2 = tensor.exp %1 : tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  %3 = tensor.add %1, %x : tensor<1x4x4xf32>, tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  %p1 = tensor.slice %past {starts = array<i64: 1, 0, 0>, stops = array<i64: 2, 4, 4>, steps = array<i64: 1, 1, 1>} : tensor<2x4x4xf32> -> tensor<1x4x4xf32>
  %4 = tensor.matmul %3, %p1 : tensor<1x4x4xf32>, tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  %5 = tensor.softmax %4 : tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  %6 = tensor.exp %5 : tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  %7 = tensor.add %5, %3 : tensor<1x4x4xf32>, tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  %8 = tensor.concat %2, %6 {axis = 0 : i64} : tensor<1x4x4xf32>, tensor<1x4x4xf32> -> tensor<2x4x4xf32>
  return %7, %8 : tensor<1x4x4xf32>, tensor<2x4x4xf32>
}

// -----

// Slices that differ of a value that is computed stay outside as well.
// CHECK-LABEL: @computed
// CHECK:         %[[E:.*]] = tensor.exp %past
// CHECK:         tensor.slice %[[E]] {starts = array<i64: 0, 0, 0>
// CHECK:         func.call @layer
// CHECK:         tensor.slice %[[E]] {starts = array<i64: 1, 0, 0>
// CHECK:         func.call @layer
func.func @computed(%x : tensor<1x4x4xf32>, %past : tensor<2x4x4xf32>) -> tensor<1x4x4xf32> {
  %e = tensor.exp %past : tensor<2x4x4xf32> -> tensor<2x4x4xf32>
  %p0 = tensor.slice %e {starts = array<i64: 0, 0, 0>, stops = array<i64: 1, 4, 4>, steps = array<i64: 1, 1, 1>} : tensor<2x4x4xf32> -> tensor<1x4x4xf32>
  %0 = tensor.matmul %x, %p0 : tensor<1x4x4xf32>, tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  %1 = tensor.softmax %0 : tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  %3 = tensor.add %1, %x : tensor<1x4x4xf32>, tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  %p1 = tensor.slice %e {starts = array<i64: 1, 0, 0>, stops = array<i64: 2, 4, 4>, steps = array<i64: 1, 1, 1>} : tensor<2x4x4xf32> -> tensor<1x4x4xf32>
  %4 = tensor.matmul %3, %p1 : tensor<1x4x4xf32>, tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  %5 = tensor.softmax %4 : tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  %7 = tensor.add %5, %3 : tensor<1x4x4xf32>, tensor<1x4x4xf32> -> tensor<1x4x4xf32>
  return %7 : tensor<1x4x4xf32>
}

// -----

// The first layer computes what all share, in its midst: it is a call, too.
// CHECK-LABEL: @first_is_longer
// CHECK:         tensor.sin %t
// CHECK-COUNT-3: func.call @layer
// CHECK:       func.func private @layer
// CHECK-NOT:     tensor.sin
func.func @first_is_longer(%x : tensor<4x4xf32>, %t : tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = tensor.exp %x : tensor<4x4xf32> -> tensor<4x4xf32>
  %shared = tensor.sin %t : tensor<4x4xf32> -> tensor<4x4xf32>
  %1 = tensor.mul %0, %shared : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %2 = tensor.add %1, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %3 = tensor.exp %2 : tensor<4x4xf32> -> tensor<4x4xf32>
  %4 = tensor.mul %3, %shared : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %5 = tensor.add %4, %2 : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %6 = tensor.exp %5 : tensor<4x4xf32> -> tensor<4x4xf32>
  %7 = tensor.mul %6, %shared : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %8 = tensor.add %7, %5 : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  return %8 : tensor<4x4xf32>
}

// -----

// The same ops but another dataflow in the last layer: two layers, not three.
// CHECK-LABEL: @near_miss
// CHECK-COUNT-2: func.call @layer
// CHECK-NOT:     func.call
// CHECK:         tensor.exp
// CHECK:         func.return
func.func @near_miss(%x : tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = tensor.exp %x : tensor<4x4xf32> -> tensor<4x4xf32>
  %1 = tensor.sub %0, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %2 = tensor.add %1, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %3 = tensor.exp %2 : tensor<4x4xf32> -> tensor<4x4xf32>
  %4 = tensor.sub %3, %2 : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %5 = tensor.add %4, %2 : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %6 = tensor.exp %5 : tensor<4x4xf32> -> tensor<4x4xf32>
  %7 = tensor.sub %6, %5 : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %8 = tensor.add %5, %7 : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  return %8 : tensor<4x4xf32>
}

// -----

// Repeated movement is no layer.
// CHECK-LABEL: @movement
// CHECK-NOT:     func.call
// CHECK:         func.return
func.func @movement(%x : tensor<4x4xf32>, %y : tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %e = tensor.exp %x : tensor<4x4xf32> -> tensor<4x4xf32>
  %0 = tensor.transpose %e {perm = array<i64: 1, 0>} : tensor<4x4xf32> -> tensor<4x4xf32>
  %1 = tensor.reshape %0 {shape = array<i64: 2, 8>} : tensor<4x4xf32> -> tensor<2x8xf32>
  %2 = tensor.reshape %1 {shape = array<i64: 4, 4>} : tensor<2x8xf32> -> tensor<4x4xf32>
  %3 = tensor.transpose %2 {perm = array<i64: 1, 0>} : tensor<4x4xf32> -> tensor<4x4xf32>
  %4 = tensor.reshape %3 {shape = array<i64: 2, 8>} : tensor<4x4xf32> -> tensor<2x8xf32>
  %5 = tensor.reshape %4 {shape = array<i64: 4, 4>} : tensor<2x8xf32> -> tensor<4x4xf32>
  return %2, %5 : tensor<4x4xf32>, tensor<4x4xf32>
}
