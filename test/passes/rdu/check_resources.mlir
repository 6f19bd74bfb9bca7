// Unchanged: a check; what it accepts stays as it is, in every phase.
// RUN: headrace-opt %s -p check-resources | filecheck %s

#small = #machine.device<"small", {base = "sn40l", grid = {columns = 4, rows = 4, tile_columns = 1, tile_rows = 1, dies = 1, agcus_per_edge = 2}, pmu = {bytes = 4096}}>

builtin.module attributes {machine.device = #small} {
// Two copies of one of four frames fit where the whole does not.
// CHECK-LABEL: rdu.config @frames placed
// CHECK:         rdu.pmu @b tensor<4x512xf32> frames 1 copies 2 banks 32 at [1 1]
rdu.config @frames placed ("x" in tensor<4x512xf32>, "y" out tensor<4x512xf32>) {
  rdu.agcu @load_x load param 0 at [0 1]
  rdu.pmu @b tensor<4x512xf32> frames 1 copies 2 banks 32 at [1 1]
  rdu.flow @load_x -> @b carries tensor<1x512xf32> time [4 on 0 by 1] from at 0 [512, 1] to at 0 [512, 1]
  rdu.agcu @store store param 1 at [5 1]
  rdu.flow @b -> @store carries tensor<1x512xf32> time [4 on 0 by 1] from at 0 [512, 1] to at 0 [512, 1]
}
}
