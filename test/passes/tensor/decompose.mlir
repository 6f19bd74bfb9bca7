// RUN: headrace-opt %s -p decompose --split-input-file --print-debuginfo | filecheck %s
// RUN: headrace-opt %s -p 'decompose{keep=none}' --split-input-file | filecheck %s --check-prefix=ALL
// RUN: headrace-opt %s -p 'decompose{keep=attention}' --split-input-file | filecheck %s --check-prefix=KEEP

// By default what the mapping takes whole stays, and the rest becomes primitives at its location.
// CHECK-LABEL: @attention
// CHECK:         tensor.matmul {{.*}} loc("attend")
// CHECK:         tensor.exp {{.*}} loc("attend")
// CHECK:         tensor.matmul {{.*}} loc("attend")
// CHECK-NOT:     tensor.attention
// ALL-LABEL: @attention
// ALL-NOT:       tensor.attention
// KEEP-LABEL: @attention
// KEEP:          tensor.attention
func.func @attention(%q : tensor<2x4x8xf32>, %k : tensor<2x4x8xf32>, %v : tensor<2x4x8xf32>) -> tensor<2x4x8xf32> {
  %0 = tensor.attention %q, %k, %v : tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32> -> tensor<2x4x8xf32> loc("attend")
  return %0 : tensor<2x4x8xf32>
}

// -----

// CHECK-LABEL: @silu
// CHECK:         tensor.silu
// ALL-LABEL: @silu
// ALL-NEXT:      %[[S:.*]] = tensor.sigmoid %x
// ALL-NEXT:      tensor.mul %x, %[[S]]
// KEEP-LABEL: @silu
// KEEP-NEXT:     tensor.sigmoid
func.func @silu(%x : tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.silu %x : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
