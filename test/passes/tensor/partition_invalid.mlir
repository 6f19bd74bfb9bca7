// RUN: not headrace-opt %s -p 'partition{mesh="tp=7"}' 2>&1 | filecheck %s --check-prefix=PRIME
// RUN: not headrace-opt %s -p 'partition{mesh="dp=3"}' 2>&1 | filecheck %s --check-prefix=BATCH
// RUN: not headrace-opt %s -p 'partition{mesh="ep=2"}' 2>&1 | filecheck %s --check-prefix=EXPERTS
// RUN: not headrace-opt %s -p 'partition{mesh="pp=2"}' 2>&1 | filecheck %s --check-prefix=LAYERS
// RUN: not headrace-opt %s -p 'partition{mesh="tp=2,pp=2,tq=2,tp=x"}' 2>&1 | filecheck %s --check-prefix=AXES
// RUN: not headrace-opt %s -p 'partition{mesh="tp=2"},partition{mesh="tp=2"}' 2>&1 | filecheck %s --check-prefix=TWICE

// PRIME: error: partition: nothing is cut along tp=7 [bad-mesh]
// PRIME: dims of the weights of products are not shared evenly by so many sockets
// PRIME: sizes that fit: 2, 4
// BATCH: error: partition: dp=3 cannot cut the batch, dim 0 of input 'x', of 4 [bad-mesh]
// BATCH: dp=2 or 4
// EXPERTS: error: partition: nothing is cut along ep=2 [bad-mesh]
// EXPERTS: no product has weights of several experts side by side
// LAYERS: error: partition: there are no layers to divide among pp=2 sockets [bad-mesh]
// AXES: error: axis 'pp' of the mesh is behind 'tp' [bad-mesh]
// AXES: error: there is no axis 'tq' of a mesh [bad-mesh]
// AXES: error: mesh 'tp=x' is no axis and its size [bad-mesh]
// TWICE: error: partition: the program is one socket's of a mesh already [already-partitioned]
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @main(%x : tensor<4x4xf32> {tensor.name = "x"}) -> tensor<4x4xf32> {
    %w = tensor.weight "w" : tensor<4x4xf32>
    %y = tensor.matmul %x, %w : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
}
