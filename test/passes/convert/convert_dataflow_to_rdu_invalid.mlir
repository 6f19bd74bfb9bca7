// What has no units, and what has no memory, is refused.
// RUN: headrace-opt %s -p convert-dataflow-to-rdu --split-input-file --verify-diagnostics

builtin.module attributes {machine.device = #machine.device<"sn40l">} {
// expected-error @* {{convert-dataflow-to-rdu: the module has no function @main}}
func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
}

// -----

builtin.module attributes {machine.device = #machine.device<"sn40l">} {
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{convert-dataflow-to-rdu: tensor.neg stands outside of sections}}
  %y = tensor.neg %x : tensor<4xf32> -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}
}

// -----

builtin.module attributes {machine.device = #machine.device<"sn40l">} {
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %y = dataflow.section "s"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    %0 = dataflow.load %a at 0 [4, 1] : tensor<4x4xf32> -> !dataflow.stream<tensor<4x4xf32>>
    // expected-error @+1 {{convert-dataflow-to-rdu: stage "softmax" cannot be cut into 2 parts along dim 1 [bad-parts]}}
    %1 = dataflow.stage "softmax"(%0) par [1 by 2] : (!dataflow.stream<tensor<4x4xf32>>) -> !dataflow.stream<tensor<4x4xf32>> {
    ^bb1(%p: tensor<4x4xf32>):
      %r = tensor.softmax %p : tensor<4x4xf32> -> tensor<4x4xf32>
      dataflow.yield %r : tensor<4x4xf32>
    }
    %2 = dataflow.store (%1 at 0 [4, 1]) : (!dataflow.stream<tensor<4x4xf32>>) -> tensor<4x4xf32>
    dataflow.yield %2 : tensor<4x4xf32>
  }
  func.return %y : tensor<4x4xf32>
}
}

// -----

builtin.module attributes {machine.device = #machine.device<"sn40l">} {
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %y, %z = dataflow.section "s"(%x) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  ^bb0(%a: tensor<4xf32>):
    %0 = dataflow.load %a at 0 [1] : tensor<4xf32> -> !dataflow.stream<tensor<4xf32>>
    // expected-error @+1 {{convert-dataflow-to-rdu: no units for dataflow.fork}}
    %1, %2 = dataflow.fork %0 : !dataflow.stream<tensor<4xf32>> -> !dataflow.stream<tensor<4xf32>>, !dataflow.stream<tensor<4xf32>>
    %3 = dataflow.store (%1 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    %4 = dataflow.store (%2 at 0 [1]) : (!dataflow.stream<tensor<4xf32>>) -> tensor<4xf32>
    dataflow.yield %3, %4 : tensor<4xf32>, tensor<4xf32>
  }
  func.return %y, %z : tensor<4xf32>, tensor<4xf32>
}
}

// -----

builtin.module attributes {machine.device = #machine.device<"sn40l">} {
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error @+1 {{convert-dataflow-to-rdu: a tensor<4x4xf32> between sections is not a dense part of its memory}}
  %t = tensor.transpose %x {perm = array<i64: 1, 0>} : tensor<4x4xf32> -> tensor<4x4xf32>
  func.return %t : tensor<4x4xf32>
}
}
