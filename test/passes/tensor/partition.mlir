// RUN: headrace-opt %s -p 'partition{mesh="tp=2"}' --split-input-file | filecheck %s
// RUN: headrace-opt %s -p 'partition{mesh="dp=2"}' --split-input-file | filecheck %s --check-prefix=DP

// A weight is cut along its columns where what it is multiplied with is whole, and along its rows where that is cut:
// sums are combined once. A socket holds its blocks alone. A batch that is cut stays so.
// CHECK:       tensor.mesh = {tp = 2 : i64}
// CHECK-LABEL: func.func @main
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32>
// CHECK:         %[[UP:.*]] = tensor.weight "up|socket_slice(axes=tp,axis=1,sizes=2,strides=1)" : tensor<8x16xf32>
// CHECK:         %[[H:.*]] = tensor.matmul %[[X]], %[[UP]] : {{.*}} -> tensor<4x16xf32>
// CHECK:         %[[R:.*]] = tensor.relu %[[H]]
// CHECK:         %[[DOWN:.*]] = tensor.weight "down|socket_slice(axes=tp,axis=0,sizes=2,strides=1)" : tensor<16x8xf32>
// CHECK:         %[[P:.*]] = tensor.matmul %[[R]], %[[DOWN]] : {{.*}} -> tensor<4x8xf32>
// CHECK:         %[[Y:.*]] = tensor.all_reduce %[[P]] {axes = ["tp"], sizes = array<i64: 2>, strides = array<i64: 1>}
// CHECK:         %[[Z:.*]] = tensor.add %[[Y]], %[[X]]
// CHECK:         func.return %[[Z]]
// DP:          tensor.mesh = {dp = 2 : i64}
// DP:          func.func @main(%x: tensor<2x8xf32> {tensor.name = "x"})
// DP-SAME:     tensor.shardings = {x = {{\[\[}}"dp"], []], y = {{\[\[}}"dp"], []]}
// DP-NOT:      tensor.all_
// DP:          tensor.weight "up" : tensor<8x32xf32>
// DP:          func.return {{.*}} : tensor<2x8xf32>
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x : tensor<4x8xf32> {tensor.name = "x"}) -> tensor<4x8xf32> attributes {tensor.result_names = ["y"]} {
    %up = tensor.weight "up" : tensor<8x32xf32>
    %down = tensor.weight "down" : tensor<32x8xf32>
    %h = tensor.matmul %x, %up : tensor<4x8xf32>, tensor<8x32xf32> -> tensor<4x32xf32>
    %r = tensor.relu %h : tensor<4x32xf32> -> tensor<4x32xf32>
    %p = tensor.matmul %r, %down : tensor<4x32xf32>, tensor<32x8xf32> -> tensor<4x8xf32>
    %y = tensor.add %p, %x : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }
}
