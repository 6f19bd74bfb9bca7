// Every pair of sites gets its way, every flow the credits that cover its longest, and the config the load of its busiest
// link. In a row or a column there is one shortest way.
// RUN: headrace-opt %s -p route | filecheck %s
// RUN: headrace-opt %s -p 'route,check-resources' | headrace-opt -p route | filecheck %s

#small = #machine.device<"small", {base = "sn40l", grid = {columns = 4, rows = 4, tile_columns = 1, tile_rows = 1, dies = 1, agcus_per_edge = 2}}>

builtin.module attributes {machine.device = #small} {

// A word over h links passes h + 1 switches of 2 cycles and 2 cycles at the ends; its credit comes back as long.
// CHECK-LABEL: rdu.config @line routed ("x" in tensor<8xf32>, "y" out tensor<8xf32>) link_load {{[0-9.e-]+}} {
// CHECK:         rdu.flow @load_x -> @b carries tensor<8xf32> from at 0 [1] to at 0 [1] credits 20 routes [0 -> 0 e3{{( on [0-9])?}}]
// CHECK:         rdu.flow @b -> @neg carries tensor<4xf32> space [2 on 0 by 4] from at 0 [1] credits 12 routes [0 -> 0 e{{( on [0-9])?}}, 0 -> 1 s{{( on [0-9])?}}]
// CHECK:         rdu.flow @neg -> @store carries tensor<4xf32> space [2 on 0 by 4] to at 0 [1] credits {{[0-9]+}} routes [0 -> 0 {{[ewns0-9]+( on [0-9])?}}, 1 -> 0 {{[ewns0-9]+( on [0-9])?}}]
rdu.config @line placed ("x" in tensor<8xf32>, "y" out tensor<8xf32>) {
  rdu.agcu @load_x load param 0 at [0 1]
  rdu.pmu @b tensor<8xf32> at [3 1]
  rdu.flow @load_x -> @b carries tensor<8xf32> from at 0 [1] to at 0 [1]
  rdu.pcu @neg simd x 2 at [4 1, 3 2] (%x: tensor<4xf32>) {
    %0 = tensor.neg %x : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %0 : tensor<4xf32>
  }
  rdu.flow @b -> @neg carries tensor<4xf32> space [2 on 0 by 4] from at 0 [1]
  rdu.agcu @store store param 1 at [5 3]
  rdu.flow @neg -> @store carries tensor<4xf32> space [2 on 0 by 4] to at 0 [1]
}

// A buffer over two memory units: each block goes to the unit that holds it, and comes from there.
// CHECK-LABEL: rdu.config @split routed
// CHECK:         rdu.flow @load_x -> @b carries tensor<8xf32> from at 0 [1] to at 0 [1] credits {{[0-9]+}} routes [0 -> 0 {{.*}}, 0 -> 1 {{.*}}]
// CHECK:         rdu.flow @b -> @neg carries tensor<4xf32> space [2 on 0 by 4] from at 0 [1] credits {{[0-9]+}} routes [0 -> 0 {{[^>]*}}, 1 -> 1 {{[^>]*}}]
rdu.config @split placed ("x" in tensor<8xf32>, "y" out tensor<8xf32>) {
  rdu.agcu @load_x load param 0 at [0 1]
  rdu.pmu @b tensor<8xf32> x 2 at [1 1, 2 2]
  rdu.flow @load_x -> @b carries tensor<8xf32> from at 0 [1] to at 0 [1]
  rdu.pcu @neg simd x 2 at [2 1, 3 2] (%x: tensor<4xf32>) {
    %0 = tensor.neg %x : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %0 : tensor<4xf32>
  }
  rdu.flow @b -> @neg carries tensor<4xf32> space [2 on 0 by 4] from at 0 [1]
  rdu.agcu @store store param 1 at [5 3]
  rdu.flow @neg -> @store carries tensor<4xf32> space [2 on 0 by 4] to at 0 [1]
}
}
