// RUN: headrace-opt %s -p 'fuse,dce' --split-input-file | filecheck %s

// gelu with erf as torch exports it: x/√2, erf, +1, x·, ·½.
// CHECK-LABEL: @gelu_erf
// CHECK-NEXT:    %[[G:.*]] = tensor.gelu %x : tensor<4x8xf32> -> tensor<4x8xf32>
// CHECK-NEXT:    func.return %[[G]]
func.func @gelu_erf(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %root = tensor.constant dense<1.41421354> : tensor<f32>
  %one = tensor.constant dense<1.0> : tensor<f32>
  %half = tensor.constant dense<0.5> : tensor<f32>
  %0 = tensor.div %x, %root : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32>
  %1 = tensor.erf %0 : tensor<4x8xf32> -> tensor<4x8xf32>
  %2 = tensor.add %1, %one : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32>
  %3 = tensor.mul %x, %2 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %4 = tensor.mul %3, %half : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32>
  return %4 : tensor<4x8xf32>
}

// -----

// In another association, with the half on x and the constants on the left.
// CHECK-LABEL: @gelu_erf_other_order
// CHECK-NEXT:    tensor.gelu %x : tensor<4x8xf32> -> tensor<4x8xf32>
// CHECK-NEXT:    func.return
func.func @gelu_erf_other_order(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %root = tensor.constant dense<0.707106769> : tensor<f32>
  %one = tensor.constant dense<1.0> : tensor<f32>
  %half = tensor.constant dense<0.5> : tensor<f32>
  %0 = tensor.mul %root, %x : tensor<f32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %1 = tensor.erf %0 : tensor<4x8xf32> -> tensor<4x8xf32>
  %2 = tensor.add %one, %1 : tensor<f32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %3 = tensor.mul %half, %x : tensor<f32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %4 = tensor.mul %2, %3 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  return %4 : tensor<4x8xf32>
}

// -----

// The sum written out: ½x + ½x·erf.
// CHECK-LABEL: @gelu_erf_sum
// CHECK-NEXT:    tensor.gelu %x : tensor<4x8xf32> -> tensor<4x8xf32>
// CHECK-NEXT:    func.return
func.func @gelu_erf_sum(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %root = tensor.constant dense<0.707106769> : tensor<f32>
  %half = tensor.constant dense<0.5> : tensor<f32>
  %0 = tensor.mul %root, %x : tensor<f32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %1 = tensor.erf %0 : tensor<4x8xf32> -> tensor<4x8xf32>
  %2 = tensor.mul %half, %x : tensor<f32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %3 = tensor.mul %1, %2 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %4 = tensor.add %2, %3 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  return %4 : tensor<4x8xf32>
}

// -----

// gelu with tanh: the cube by multiplications.
// CHECK-LABEL: @gelu_tanh
// CHECK-NEXT:    tensor.gelu %x {approximate = "tanh"}
// CHECK-NEXT:    func.return
func.func @gelu_tanh(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %cubic = tensor.constant dense<0.044715> : tensor<f32>
  %root = tensor.constant dense<0.797884583> : tensor<f32>
  %one = tensor.constant dense<1.0> : tensor<f32>
  %half = tensor.constant dense<0.5> : tensor<f32>
  %0 = tensor.mul %x, %x : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %1 = tensor.mul %x, %0 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %2 = tensor.mul %cubic, %1 : tensor<f32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %3 = tensor.add %x, %2 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %4 = tensor.mul %root, %3 : tensor<f32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %5 = tensor.tanh %4 : tensor<4x8xf32> -> tensor<4x8xf32>
  %6 = tensor.add %one, %5 : tensor<f32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %7 = tensor.mul %x, %6 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %8 = tensor.mul %half, %7 : tensor<f32>, tensor<4x8xf32> -> tensor<4x8xf32>
  return %8 : tensor<4x8xf32>
}

// -----

// The cube by pow, x factored out.
// CHECK-LABEL: @gelu_tanh_pow
// CHECK-NEXT:    tensor.gelu %x {approximate = "tanh"}
// CHECK-NEXT:    func.return
func.func @gelu_tanh_pow(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %two = tensor.constant dense<2.0> : tensor<f32>
  %cubic = tensor.constant dense<0.0356774069> : tensor<f32>
  %root = tensor.constant dense<0.797884583> : tensor<f32>
  %one = tensor.constant dense<1.0> : tensor<f32>
  %half = tensor.constant dense<0.5> : tensor<f32>
  %0 = tensor.pow %x, %two : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32>
  %1 = tensor.mul %0, %cubic : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32>
  %2 = tensor.add %1, %root : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32>
  %3 = tensor.mul %2, %x : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %5 = tensor.tanh %3 : tensor<4x8xf32> -> tensor<4x8xf32>
  %6 = tensor.add %5, %one : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32>
  %7 = tensor.mul %6, %half : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32>
  %8 = tensor.mul %7, %x : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  return %8 : tensor<4x8xf32>
}

// -----

// CHECK-LABEL: @silu
// CHECK-NEXT:    tensor.silu %x : tensor<4x8xf32> -> tensor<4x8xf32>
// CHECK-NEXT:    func.return
func.func @silu(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = tensor.sigmoid %x : tensor<4x8xf32> -> tensor<4x8xf32>
  %1 = tensor.mul %0, %x : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// -----

// sigmoid from exp, and then silu from that sigmoid.
// CHECK-LABEL: @silu_exp
// CHECK-NEXT:    tensor.silu %x : tensor<4x8xf32> -> tensor<4x8xf32>
// CHECK-NEXT:    func.return
func.func @silu_exp(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %one = tensor.constant dense<1.0> : tensor<f32>
  %0 = tensor.neg %x : tensor<4x8xf32> -> tensor<4x8xf32>
  %1 = tensor.exp %0 : tensor<4x8xf32> -> tensor<4x8xf32>
  %2 = tensor.add %one, %1 : tensor<f32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %3 = tensor.div %one, %2 : tensor<f32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %4 = tensor.mul %x, %3 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  return %4 : tensor<4x8xf32>
}

// -----

// CHECK-LABEL: @softmax
// CHECK-NEXT:    tensor.softmax %x {axis = 1 : i64} : tensor<4x8xf32> -> tensor<4x8xf32>
// CHECK-NEXT:    func.return
func.func @softmax(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = tensor.reduce_max %x {axes = array<i64: -1>} : tensor<4x8xf32> -> tensor<4x1xf32>
  %1 = tensor.sub %x, %0 : tensor<4x8xf32>, tensor<4x1xf32> -> tensor<4x8xf32>
  %2 = tensor.exp %1 : tensor<4x8xf32> -> tensor<4x8xf32>
  %3 = tensor.reduce_sum %2 {axes = array<i64: 1>, keepdims = false} : tensor<4x8xf32> -> tensor<4xf32>
  %4 = tensor.reshape %3 {shape = array<i64: 4, 1>} : tensor<4xf32> -> tensor<4x1xf32>
  %5 = tensor.div %2, %4 : tensor<4x8xf32>, tensor<4x1xf32> -> tensor<4x8xf32>
  return %5 : tensor<4x8xf32>
}

// -----

// CHECK-LABEL: @log_softmax
// CHECK-NEXT:    tensor.log_softmax %x {axis = 0 : i64} : tensor<4x8xf32> -> tensor<4x8xf32>
// CHECK-NEXT:    func.return
func.func @log_softmax(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = tensor.reduce_max %x {axes = array<i64: 0>} : tensor<4x8xf32> -> tensor<1x8xf32>
  %1 = tensor.sub %x, %0 : tensor<4x8xf32>, tensor<1x8xf32> -> tensor<4x8xf32>
  %2 = tensor.exp %1 : tensor<4x8xf32> -> tensor<4x8xf32>
  %3 = tensor.reduce_sum %2 {axes = array<i64: 0>} : tensor<4x8xf32> -> tensor<1x8xf32>
  %4 = tensor.log %3 : tensor<1x8xf32> -> tensor<1x8xf32>
  %5 = tensor.sub %1, %4 : tensor<4x8xf32>, tensor<1x8xf32> -> tensor<4x8xf32>
  return %5 : tensor<4x8xf32>
}

// -----

// Layer norm as torch wrote it before there was an op: scale and bias from weights, one of them behind a unit dim.
// CHECK-LABEL: @layer_norm
// CHECK-DAG:     %[[S:.*]] = tensor.weight "s"
// CHECK-DAG:     %[[B:.*]] = tensor.weight "b"
// CHECK-DAG:     %[[R:.*]] = tensor.reshape %[[B]] {shape = array<i64: 8>}
// CHECK:         tensor.layer_norm %x, %[[S]], %[[R]] {axis = 1 : i64, epsilon = {{9.99999974.*e-06}} : f64}
// CHECK-NEXT:    func.return
func.func @layer_norm(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %two = tensor.constant dense<2.0> : tensor<f32>
  %epsilon = tensor.constant dense<1.0e-05> : tensor<f32>
  %s = tensor.weight "s" : tensor<8xf32>
  %b = tensor.weight "b" : tensor<1x8xf32>
  %0 = tensor.reduce_mean %x {axes = array<i64: -1>} : tensor<4x8xf32> -> tensor<4x1xf32>
  %1 = tensor.sub %x, %0 : tensor<4x8xf32>, tensor<4x1xf32> -> tensor<4x8xf32>
  %2 = tensor.pow %1, %two : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32>
  %3 = tensor.reduce_mean %2 {axes = array<i64: -1>} : tensor<4x8xf32> -> tensor<4x1xf32>
  %4 = tensor.add %3, %epsilon : tensor<4x1xf32>, tensor<f32> -> tensor<4x1xf32>
  %5 = tensor.sqrt %4 : tensor<4x1xf32> -> tensor<4x1xf32>
  %6 = tensor.div %1, %5 : tensor<4x8xf32>, tensor<4x1xf32> -> tensor<4x8xf32>
  %7 = tensor.mul %6, %s : tensor<4x8xf32>, tensor<8xf32> -> tensor<4x8xf32>
  %8 = tensor.add %7, %b : tensor<4x8xf32>, tensor<1x8xf32> -> tensor<4x8xf32>
  return %8 : tensor<4x8xf32>
}

// -----

// Rms norm as Llama's: 1/√ by a division, the scale after it.
// CHECK-LABEL: @rms_norm
// CHECK-NEXT:    tensor.rms_norm %x, %s {axis = 1 : i64, epsilon = {{9.99999997.*e-07}} : f64}
// CHECK-NEXT:    func.return
func.func @rms_norm(%x : tensor<4x8xf32>, %s : tensor<8xf32>) -> tensor<4x8xf32> {
  %one = tensor.constant dense<1.0> : tensor<f32>
  %epsilon = tensor.constant dense<1.0e-06> : tensor<f32>
  %2 = tensor.mul %x, %x : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %3 = tensor.reduce_mean %2 {axes = array<i64: -1>} : tensor<4x8xf32> -> tensor<4x1xf32>
  %4 = tensor.add %3, %epsilon : tensor<4x1xf32>, tensor<f32> -> tensor<4x1xf32>
  %5 = tensor.sqrt %4 : tensor<4x1xf32> -> tensor<4x1xf32>
  %6 = tensor.div %one, %5 : tensor<f32>, tensor<4x1xf32> -> tensor<4x1xf32>
  %7 = tensor.mul %x, %6 : tensor<4x8xf32>, tensor<4x1xf32> -> tensor<4x8xf32>
  %8 = tensor.mul %7, %s : tensor<4x8xf32>, tensor<8xf32> -> tensor<4x8xf32>
  return %8 : tensor<4x8xf32>
}

// -----

// Without a scale the composite gets one of ones; the residual that follows is no bias.
// CHECK-LABEL: @rms_norm_bare
// CHECK-NEXT:    %[[ONES:.*]] = tensor.constant dense<1.000000e+00> : tensor<8xf32>
// CHECK-NEXT:    %[[N:.*]] = tensor.rms_norm %x, %[[ONES]]
// CHECK-NEXT:    tensor.mul %[[N]], %y
func.func @rms_norm_bare(%x : tensor<4x8xf32>, %y : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %2 = tensor.mul %x, %x : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %3 = tensor.reduce_mean %2 {axes = array<i64: -1>} : tensor<4x8xf32> -> tensor<4x1xf32>
  %5 = tensor.rsqrt %3 : tensor<4x1xf32> -> tensor<4x1xf32>
  %7 = tensor.mul %x, %5 : tensor<4x8xf32>, tensor<4x1xf32> -> tensor<4x8xf32>
  %8 = tensor.mul %7, %y : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  return %8 : tensor<4x8xf32>
}

// -----

// Something else needs the sigmoid: no silu.
// CHECK-LABEL: @other_user
// CHECK:         tensor.sigmoid
// CHECK-NEXT:    tensor.mul
func.func @other_user(%x : tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = tensor.sigmoid %x : tensor<4x8xf32> -> tensor<4x8xf32>
  %1 = tensor.mul %x, %0 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  return %0, %1 : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// A wrong constant: 0.7 is not √½.
// CHECK-LABEL: @wrong_constant
// CHECK-NOT:     tensor.gelu
// CHECK:         func.return
func.func @wrong_constant(%x : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %root = tensor.constant dense<0.7> : tensor<f32>
  %one = tensor.constant dense<1.0> : tensor<f32>
  %half = tensor.constant dense<0.5> : tensor<f32>
  %0 = tensor.mul %x, %root : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32>
  %1 = tensor.erf %0 : tensor<4x8xf32> -> tensor<4x8xf32>
  %2 = tensor.add %1, %one : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32>
  %3 = tensor.mul %x, %2 : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %4 = tensor.mul %3, %half : tensor<4x8xf32>, tensor<f32> -> tensor<4x8xf32>
  return %4 : tensor<4x8xf32>
}

// -----

// Chains in f16 round after each step; they are left alone.
// CHECK-LABEL: @half
// CHECK:         tensor.sigmoid
// CHECK-NEXT:    tensor.mul
func.func @half(%x : tensor<4x8xf16>) -> tensor<4x8xf16> {
  %0 = tensor.sigmoid %x : tensor<4x8xf16> -> tensor<4x8xf16>
  %1 = tensor.mul %0, %x : tensor<4x8xf16>, tensor<4x8xf16> -> tensor<4x8xf16>
  return %1 : tensor<4x8xf16>
}

// -----

// Variance of one value, divided into another: no norm.
// CHECK-LABEL: @other_value
// CHECK-NOT:     _norm
// CHECK:         func.return
func.func @other_value(%x : tensor<4x8xf32>, %y : tensor<4x8xf32>) -> tensor<4x8xf32> {
  %2 = tensor.mul %x, %x : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
  %3 = tensor.reduce_mean %2 {axes = array<i64: -1>} : tensor<4x8xf32> -> tensor<4x1xf32>
  %5 = tensor.rsqrt %3 : tensor<4x1xf32> -> tensor<4x1xf32>
  %7 = tensor.mul %y, %5 : tensor<4x8xf32>, tensor<4x1xf32> -> tensor<4x8xf32>
  return %7 : tensor<4x8xf32>
}
