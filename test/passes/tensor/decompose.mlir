// RUN: headrace-opt %s -p decompose --split-input-file --print-debuginfo | filecheck %s
// RUN: headrace-opt %s -p 'decompose{keep=none}' --split-input-file | filecheck %s --check-prefix=ALL
// RUN: headrace-opt %s -p 'decompose{keep=attention}' --split-input-file | filecheck %s --check-prefix=KEEP

// By default what the mapping takes whole stays, and the rest becomes primitives at its location.
// CHECK-LABEL: @attention
// CHECK:         tensor.matmul {{.*}} loc("attend")
// CHECK:         tensor.mul {{.*}} loc("attend")
// CHECK:         tensor.softmax {{.*}} loc("attend")
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

// -----

// Random words in ui64, where products of words fit.
// CHECK-LABEL: @philox
// CHECK:         tensor.philox
// ALL-LABEL: @philox
// ALL:           tensor.add %rows, %columns
// ALL:           tensor.less
// ALL-COUNT-20:  tensor.mul {{.*}} tensor<3x2xui64>
// ALL-NOT:       tensor.mul
// ALL:           tensor.concat {{.*}} {axis = 2 : i64}
// KEEP-LABEL: @philox
// KEEP-NOT:      tensor.philox
func.func @philox(%state: tensor<3xui64>, %rows: tensor<3x1xui64>, %columns: tensor<2xui64>) -> tensor<3x2x4xui32> {
  %0 = tensor.philox %state, %rows, %columns : tensor<3xui64>, tensor<3x1xui64>, tensor<2xui64> -> tensor<3x2x4xui32>
  return %0 : tensor<3x2x4xui32>
}
