// A config with more units than the device has sites is refused with the numbers.
// RUN: headrace-opt %s -p place --verify-diagnostics

#small = #machine.device<"small", {base = "sn40l", grid = {columns = 4, rows = 4, tile_columns = 1, tile_rows = 1, dies = 1, agcus_per_edge = 2}}>

builtin.module attributes {machine.device = #small} {
// expected-error @+1 {{place: config @big: 9 units of kind pmu do not fit 8 sites [too-many-units]}}
rdu.config @big virtual ("x" in tensor<9xf32>, "y" out tensor<9xf32>) {
  rdu.agcu @load_x load param 0
  rdu.pmu @b tensor<9xf32> x 9
  rdu.flow @load_x -> @b carries tensor<9xf32> from at 0 [1] to at 0 [1]
  rdu.agcu @store store param 1
  rdu.flow @b -> @store carries tensor<9xf32> from at 0 [1] to at 0 [1]
}
}
