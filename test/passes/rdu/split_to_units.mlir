// A body that one compute unit cannot hold becomes a chain of units, joined by flows of the values between them.
// RUN: headrace-opt %s -p split-to-units | filecheck %s

builtin.module attributes {machine.device = #machine.device<"sn40l">} {

// The tail of a contraction takes the bias; gelu is too much for it. What a later unit needs of the inputs flows straight
// to it, and the value between them steps with the units' own loops.
// CHECK-LABEL: rdu.config @ffn
// CHECK:       rdu.pcu @ffn.0 systolic x 2 (%[[X:.*]]: tensor<4x4xf32>, %[[W:.*]]: tensor<4x4xf32>, %[[B:.*]]: tensor<4xf32>) {
// CHECK-NEXT:    %[[M:.*]] = tensor.matmul %[[X]], %[[W]]
// CHECK-NEXT:    %[[A:.*]] = tensor.add %[[M]], %[[B]]
// CHECK-NEXT:    rdu.yield %[[A]] : tensor<4x4xf32>
// CHECK:       rdu.pcu @ffn.1 simd x 2 (%[[IN:.*]]: tensor<4x4xf32>, %[[R:.*]]: tensor<4x4xf32>) {
// CHECK-NEXT:    %[[G:.*]] = tensor.gelu %[[IN]]
// CHECK-NEXT:    tensor.add %[[G]], %[[R]]
// CHECK:       rdu.flow @xs -> @ffn.0 carries tensor<4x4xf32> time [2 on 0 by 4] space [2 repeat] from at 0 [4, 1]
// CHECK:       rdu.flow @ffn.0 -> @ffn.1 carries tensor<4x4xf32> time [2 on 0 by 4] space [2 on 1 by 4]
// CHECK-NEXT:  rdu.flow @rs -> @ffn.1:1 carries tensor<4x4xf32> time [2 on 0 by 4] space [2 on 1 by 4] from at 0 [8, 1]
// CHECK-NEXT:  rdu.flow @ffn.1 -> @store carries tensor<4x4xf32> time [2 on 0 by 4] space [2 on 1 by 4] to at 0 [8, 1]
// CHECK-NOT:   @ffn {{simd|systolic}}
rdu.config @ffn virtual ("x" in tensor<8x4xf32>, "w" in tensor<4x8xf32>, "b" in tensor<8xf32>, "r" in tensor<8x8xf32>, "y" out tensor<8x8xf32>) {
  rdu.agcu @load_x load param 0
  rdu.pmu @xs tensor<8x4xf32>
  rdu.flow @load_x -> @xs carries tensor<8x4xf32> from at 0 [4, 1] to at 0 [4, 1]
  rdu.agcu @load_w load param 1
  rdu.pmu @ws tensor<4x8xf32>
  rdu.flow @load_w -> @ws carries tensor<4x8xf32> from at 0 [8, 1] to at 0 [8, 1]
  rdu.agcu @load_b load param 2
  rdu.pmu @bs tensor<8xf32>
  rdu.flow @load_b -> @bs carries tensor<8xf32> from at 0 [1] to at 0 [1]
  rdu.agcu @load_r load param 3
  rdu.pmu @rs tensor<8x8xf32>
  rdu.flow @load_r -> @rs carries tensor<8x8xf32> from at 0 [8, 1] to at 0 [8, 1]
  rdu.pcu @ffn systolic x 2 (%x: tensor<4x4xf32>, %w: tensor<4x4xf32>, %b: tensor<4xf32>, %r: tensor<4x4xf32>) {
    %0 = tensor.matmul %x, %w : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    %1 = tensor.add %0, %b : tensor<4x4xf32>, tensor<4xf32> -> tensor<4x4xf32>
    %2 = tensor.gelu %1 : tensor<4x4xf32> -> tensor<4x4xf32>
    %3 = tensor.add %2, %r : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    rdu.yield %3 : tensor<4x4xf32>
  }
  rdu.flow @xs -> @ffn carries tensor<4x4xf32> time [2 on 0 by 4] space [2 repeat] from at 0 [4, 1]
  rdu.flow @ws -> @ffn:1 carries tensor<4x4xf32> time [2 repeat] space [2 on 1 by 4] from at 0 [8, 1]
  rdu.flow @bs -> @ffn:2 carries tensor<4xf32> time [2 repeat] space [2 on 0 by 4] from at 0 [1]
  rdu.flow @rs -> @ffn:3 carries tensor<4x4xf32> time [2 on 0 by 4] space [2 on 1 by 4] from at 0 [8, 1]
  rdu.agcu @store store param 4
  rdu.flow @ffn -> @store carries tensor<4x4xf32> time [2 on 0 by 4] space [2 on 1 by 4] to at 0 [8, 1]
}

// Every reduction has a unit of its own; constants go with the ops that use them, and both results leave where they arise.
// CHECK-LABEL: rdu.config @rows
// CHECK:       rdu.pcu @f.0 simd (%{{.*}}: tensor<2x4xf32>) {
// CHECK-NEXT:    tensor.softmax
// CHECK:       rdu.pcu @f.1 simd (%[[P:.*]]: tensor<2x4xf32>) {
// CHECK-NEXT:    %[[C:.*]] = tensor.constant dense<2.000000e+00>
// CHECK-NEXT:    %[[S:.*]] = tensor.reduce_sum %[[P]]
// CHECK-NEXT:    tensor.mul %[[S]], %[[C]]
// CHECK:       rdu.flow @f.0 -> @f.1 carries tensor<2x4xf32>{{$}}
// CHECK:       rdu.flow @f.0 -> @store carries tensor<2x4xf32>
// CHECK:       rdu.flow @f.1 -> @store.1 carries tensor<2x1xf32>
rdu.config @rows virtual ("x" in tensor<2x4xf32>, "y" out tensor<2x4xf32>, "z" out tensor<2x1xf32>) {
  rdu.agcu @load_x load param 0
  rdu.pcu @f simd (%x: tensor<2x4xf32>) {
    %c = tensor.constant dense<2.0> : tensor<f32>
    %0 = tensor.softmax %x : tensor<2x4xf32> -> tensor<2x4xf32>
    %1 = tensor.reduce_sum %0 {axes = array<i64: 1>, keepdims = true} : tensor<2x4xf32> -> tensor<2x1xf32>
    %2 = tensor.mul %1, %c : tensor<2x1xf32>, tensor<f32> -> tensor<2x1xf32>
    rdu.yield %0, %2 : tensor<2x4xf32>, tensor<2x1xf32>
  }
  rdu.flow @load_x -> @f carries tensor<2x4xf32> from at 0 [4, 1]
  rdu.agcu @store store param 1
  rdu.flow @f -> @store carries tensor<2x4xf32> to at 0 [4, 1]
  rdu.agcu @store.1 store param 2
  rdu.flow @f:1 -> @store.1 carries tensor<2x1xf32> to at 0 [1, 1]
}

// A block of the channels of a depthwise convolution is a convolution of fewer groups: here each unit has one of four.
// CHECK-LABEL: rdu.config @depthwise
// CHECK:       rdu.pcu @c.0 systolic x 4
// CHECK-NEXT:    tensor.conv {{.*}} -> tensor<1x1x6xf32>
// CHECK:       rdu.flow @c.0 -> @c.1 carries tensor<1x1x6xf32> time [2 on 0 by 1] space [4 on 1 by 1]
rdu.config @depthwise virtual ("x" in tensor<2x4x8xf32>, "w" in tensor<4x1x3xf32>, "y" out tensor<2x4x6xf32>) {
  rdu.agcu @load_x load param 0
  rdu.agcu @load_w load param 1
  rdu.pcu @c systolic x 4 (%x: tensor<1x1x8xf32>, %w: tensor<1x1x3xf32>) {
    %0 = tensor.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : tensor<1x1x8xf32>, tensor<1x1x3xf32> -> tensor<1x1x6xf32>
    %1 = tensor.gelu %0 : tensor<1x1x6xf32> -> tensor<1x1x6xf32>
    rdu.yield %1 : tensor<1x1x6xf32>
  }
  rdu.flow @load_x -> @c carries tensor<1x1x8xf32> time [2 on 0 by 1] space [4 on 1 by 1] from at 0 [32, 8, 1]
  rdu.flow @load_w -> @c:1 carries tensor<1x1x3xf32> time [2 repeat] space [4 on 0 by 1] from at 0 [3, 3, 1]
  rdu.agcu @store store param 2
  rdu.flow @c -> @store carries tensor<1x1x6xf32> time [2 on 0 by 1] space [4 on 1 by 1] to at 0 [24, 6, 1]
}

// A constant that leaves goes with the unit that uses it, and an input that is passed on with one that takes it, as long
// as they have ports; a unit may take nothing from outside.
// CHECK-LABEL: rdu.config @passed
// CHECK:       rdu.pcu @f.0 simd {
// CHECK-NEXT:    %[[I:.*]] = tensor.iota
// CHECK-NEXT:    %[[S:.*]] = tensor.softmax %[[I]]
// CHECK-NEXT:    rdu.yield %[[S]], %[[I]] : tensor<4xf32>, tensor<4xf32>
// CHECK:       rdu.pcu @f.1 simd (%[[P:.*]]: tensor<4xf32>, %[[X:.*]]: tensor<4xf32>) {
// CHECK-NEXT:    %[[T:.*]] = tensor.softmax %[[P]]
// CHECK-NEXT:    %[[M:.*]] = tensor.mul %[[T]], %[[X]]
// CHECK-NEXT:    rdu.yield %[[M]], %[[X]] : tensor<4xf32>, tensor<4xf32>
// CHECK:       rdu.flow @f.0 -> @f.1 carries tensor<4xf32>{{$}}
// CHECK-NEXT:  rdu.flow @load_x -> @f.1:1 carries tensor<4xf32> from at 0 [1]
// CHECK-NEXT:  rdu.flow @f.0:1 -> @store carries tensor<4xf32> to at 0 [1]
// CHECK-NEXT:  rdu.flow @f.1 -> @store.1 carries tensor<4xf32> to at 0 [1]
// CHECK-NEXT:  rdu.flow @f.1:1 -> @store.2 carries tensor<4xf32> to at 0 [1]
rdu.config @passed virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>, "z" out tensor<4xf32>, "w" out tensor<4xf32>) {
  rdu.agcu @load_x load param 0
  rdu.pcu @f simd (%x: tensor<4xf32>) {
    %0 = tensor.iota {shape = array<i64: 4>, dtype = "f32", axis = 0 : i64} : tensor<4xf32>
    %1 = tensor.softmax %0 {axis = 0 : i64} : tensor<4xf32> -> tensor<4xf32>
    %2 = tensor.softmax %1 {axis = 0 : i64} : tensor<4xf32> -> tensor<4xf32>
    %3 = tensor.mul %2, %x : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
    rdu.yield %0, %3, %x : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
  rdu.flow @load_x -> @f carries tensor<4xf32> from at 0 [1]
  rdu.agcu @store store param 1
  rdu.flow @f -> @store carries tensor<4xf32> to at 0 [1]
  rdu.agcu @store.1 store param 2
  rdu.flow @f:1 -> @store.1 carries tensor<4xf32> to at 0 [1]
  rdu.agcu @store.2 store param 3
  rdu.flow @f:2 -> @store.2 carries tensor<4xf32> to at 0 [1]
}

// Without a port left there, they have a unit of their own.
// CHECK-LABEL: rdu.config @many
// CHECK:       rdu.pcu @f.0 simd {
// CHECK-NEXT:    tensor.iota
// CHECK:         rdu.yield %{{.*}}, %{{.*}}, %{{.*}} :
// CHECK:       rdu.pcu @f.1 simd {
// CHECK-NEXT:    %[[I:.*]] = tensor.iota
// CHECK-NEXT:    rdu.yield %[[I]] : tensor<4xf32>
// CHECK-NEXT:  }
rdu.config @many virtual ("y" out tensor<4xf32>, "z" out tensor<4xf32>, "v" out tensor<4xf32>, "w" out tensor<4xf32>) {
  rdu.pcu @f simd {
    %0 = tensor.iota {shape = array<i64: 4>, dtype = "f32", axis = 0 : i64} : tensor<4xf32>
    %1 = tensor.neg %0 : tensor<4xf32> -> tensor<4xf32>
    %2 = tensor.abs %1 : tensor<4xf32> -> tensor<4xf32>
    %3 = tensor.neg %2 : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %0, %1, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
  rdu.agcu @store store param 0
  rdu.flow @f -> @store carries tensor<4xf32> to at 0 [1]
  rdu.agcu @store.1 store param 1
  rdu.flow @f:1 -> @store.1 carries tensor<4xf32> to at 0 [1]
  rdu.agcu @store.2 store param 2
  rdu.flow @f:2 -> @store.2 carries tensor<4xf32> to at 0 [1]
  rdu.agcu @store.3 store param 3
  rdu.flow @f:3 -> @store.3 carries tensor<4xf32> to at 0 [1]
}

// What fits stays as it is.
// CHECK-LABEL: rdu.config @small
// CHECK:       rdu.pcu @f simd
rdu.config @small virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load_x load param 0
  rdu.pcu @f simd (%x: tensor<4xf32>) {
    %0 = tensor.neg %x : tensor<4xf32> -> tensor<4xf32>
    %1 = tensor.relu %0 : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %1 : tensor<4xf32>
  }
  rdu.flow @load_x -> @f carries tensor<4xf32> from at 0 [1]
  rdu.agcu @store store param 1
  rdu.flow @f -> @store carries tensor<4xf32> to at 0 [1]
}
}
