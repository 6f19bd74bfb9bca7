// Every unit of a config gets a site of its kind, and the config is placed; what is placed stays as it is.
// RUN: headrace-opt %s -p place | filecheck %s
// RUN: headrace-opt %s -p 'place,check-resources' | headrace-opt -p 'place{seed=3}' | filecheck %s

#small = #machine.device<"small", {base = "sn40l", grid = {columns = 4, rows = 4, tile_columns = 1, tile_rows = 1, dies = 1, agcus_per_edge = 2}}>

builtin.module attributes {machine.device = #small} {

// Address generators stand on the edges; compute units where column + row is odd, memory units where it is even.
// CHECK-LABEL: rdu.config @copy placed
// CHECK-NEXT:    rdu.agcu @load_x load param 0 at [{{[05] [13]}}]
// CHECK-NEXT:    rdu.pmu @b tensor<8xf32> x 2 at [{{(([13] [13])|([24] [02]))}}, {{(([13] [13])|([24] [02]))}}]
// CHECK-NEXT:    rdu.flow @load_x -> @b carries tensor<8xf32> from at 0 [1] to at 0 [1]{{$}}
// CHECK-NEXT:    rdu.pcu @neg simd x 2 at [{{(([13] [02])|([24] [13]))}}, {{(([13] [02])|([24] [13]))}}]
rdu.config @copy virtual ("x" in tensor<8xf32>, "y" out tensor<8xf32>) {
  rdu.agcu @load_x load param 0
  rdu.pmu @b tensor<8xf32> x 2
  rdu.flow @load_x -> @b carries tensor<8xf32> from at 0 [1] to at 0 [1]
  rdu.pcu @neg simd x 2 (%x: tensor<4xf32>) {
    %0 = tensor.neg %x : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %0 : tensor<4xf32>
  }
  rdu.flow @b -> @neg carries tensor<4xf32> space [2 on 0 by 4] from at 0 [1]
  rdu.agcu @store store param 1
  rdu.flow @neg -> @store carries tensor<4xf32> space [2 on 0 by 4] to at 0 [1]
}

// CHECK-LABEL: rdu.config @there placed
// CHECK-NEXT:    rdu.agcu @load_x load param 0 at [5 3]
rdu.config @there placed ("x" in tensor<8xf32>, "y" out tensor<8xf32>) {
  rdu.agcu @load_x load param 0 at [5 3]
  rdu.agcu @store store param 1 at [0 1]
  rdu.flow @load_x -> @store carries tensor<8xf32> from at 0 [1] to at 0 [1]
}
}
