// What no routing can do is refused with the cut that proves it: too many words with overload=false, too many flows that
// branch in any case.
// RUN: not headrace-opt %s -p 'route{overload=false}' 2>&1 | filecheck %s --check-prefix WORDS
// RUN: not headrace-opt %s -p 'route' 2>&1 | filecheck %s --check-prefix FLOWS

#narrow = #machine.device<"narrow", {base = "sn40l", grid = {columns = 8, rows = 1, tile_columns = 1, tile_rows = 1, dies = 1, agcus_per_edge = 1}, network = {links = 1, flow_ids = 1}}>

// WORDS:      route_invalid.mlir:15:1: error: route: config @crowd: 2 words per cycle must pass from x = 5 to x = 6 [congestion]
// WORDS-NEXT:   why: the one link there carries 1; the flows are 'a -> f' (2 nets, 1 words/cycle), 'f -> b' (2 nets, 1 words/cycle)
// WORDS-NEXT:   fix: lower the parallel factors, spread the buffer over more units, cut the section, or allow the links to be overloaded
// FLOWS:      route_invalid.mlir:15:1: error: route: config @crowd: 2 flows that branch must pass from x = 4 to x = 5 [congestion]
// FLOWS-NEXT:   why: the one link there tells 1 flows apart; the flows are 'a -> f' (2 nets, 1 words/cycle)
// FLOWS-NEXT:   fix: spread the buffer over fewer units, lower the parallel factors, or cut the section
builtin.module attributes {machine.device = #narrow} {
rdu.config @crowd placed ("x" in tensor<64x64xf32>, "y" out tensor<64x64xf32>) {
  rdu.agcu @load_x load param 0 at [0 0]
  rdu.pmu @a tensor<64x64xf32> x 2 at [2 0, 4 0]
  rdu.flow @load_x -> @a carries tensor<64x64xf32> from at 0 [64, 1] to at 0 [64, 1]
  rdu.pcu @f simd x 2 at [5 0, 7 0] (%x: tensor<64x64xf32>) {
    %0 = tensor.neg %x : tensor<64x64xf32> -> tensor<64x64xf32>
    rdu.yield %0 : tensor<64x64xf32>
  }
  rdu.flow @a -> @f carries tensor<64x64xf32> space [2 repeat] from at 0 [64, 1]
  rdu.pmu @b tensor<64x64xf32> x 2 at [6 0, 8 0]
  rdu.agcu @store store param 1 at [9 0]
  rdu.flow @f -> @b carries tensor<64x64xf32> space [2 repeat] to at 0 [64, 1]
  rdu.flow @b -> @store carries tensor<64x64xf32> from at 0 [64, 1] to at 0 [64, 1]
}
}
