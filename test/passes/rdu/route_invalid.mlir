// With overload=false, flows that the links cannot carry are refused with the numbers and the flows.
// RUN: not headrace-opt %s -p 'route{overload=false}' 2>&1 | filecheck %s

#narrow = #machine.device<"narrow", {base = "sn40l", grid = {columns = 4, rows = 4, tile_columns = 1, tile_rows = 1, dies = 1, agcus_per_edge = 2}, network = {links = 1, flow_ids = 1}}>

builtin.module attributes {machine.device = #narrow} {
// CHECK:      route_invalid.mlir:10:1: error: route: config @crowd: the link from switch ({{[0-9]}}, {{[0-9]}}) to ({{[0-9]}}, {{[0-9]}}) has {{[0-9.]+}} words per cycle and 2 flows [congestion]
// CHECK-NEXT:   why: it carries 1 words and 1 flows; on it are 'a -> b' (2 nets, {{[0-9.]+}} words/cycle)
// CHECK-NEXT:   fix: place the units further apart, lower the parallel factors, or cut the section
rdu.config @crowd placed ("x" in tensor<96xf32>, "y" out tensor<96xf32>) {
  rdu.agcu @load_x load param 0 at [0 1]
  rdu.pmu @a tensor<96xf32> x 3 at [1 1, 2 2, 1 3]
  rdu.flow @load_x -> @a carries tensor<96xf32> from at 0 [1] to at 0 [1]
  rdu.pmu @b tensor<96xf32> x 3 at [3 1, 4 2, 3 3]
  rdu.flow @a -> @b carries tensor<96xf32> time [8 repeat] from at 0 [1] to at 0 [1]
  rdu.agcu @store store param 1 at [5 1]
  rdu.flow @b -> @store carries tensor<96xf32> from at 0 [1] to at 0 [1]
}
}
