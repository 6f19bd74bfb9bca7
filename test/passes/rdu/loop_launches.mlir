// Rounds of the same configs whose parameters advance by constant steps become a loop of the chip.
// RUN: headrace-opt %s -p allocate-memory,loop-launches --split-input-file | filecheck %s
// RUN: headrace-opt %s -p allocate-memory,loop-launches{min-times=4} --split-input-file | filecheck %s --check-prefix=FOUR
// RUN: headrace-opt %s -p loop-launches --split-input-file | filecheck %s --check-prefix=NOWHERE
// Unchanged (FOUR, NOWHERE): there are three rounds, and a loop is made of four here; regions without addresses advance by no step.

// The weights of a layer lie at equal distance, and so do @t, @y0, @y1, @y2; what a round makes for itself stays.
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
rdu.config @first virtual ("x" in tensor<16xf32>, "y" out tensor<16xf32>) {
}
rdu.config @a virtual ("x" in tensor<16xf32>, "w" in tensor<16xf32>, "y" out tensor<16xf32>) {
}
rdu.config @b virtual ("x" in tensor<16xf32>, "h" in tensor<16xf32>, "y" out tensor<16xf32>) {
}
// CHECK-LABEL: rdu.program @main {
// CHECK:         rdu.region @t temp tensor<16xf32> in hbm at 0
// CHECK-NEXT:    rdu.region @w0 weight tensor<16xf32> key "w0" in hbm at 256
// CHECK-NEXT:    rdu.region @w1 weight tensor<16xf32> key "w1" in hbm at 320
// CHECK-NEXT:    rdu.region @w2 weight tensor<16xf32> key "w2" in hbm at 384
// CHECK-NEXT:    rdu.region @h0 temp tensor<16xf32> in hbm at 512
// CHECK-NEXT:    rdu.region @h1 temp tensor<16xf32> in hbm at 512
// CHECK-NEXT:    rdu.region @h2 temp tensor<16xf32> in hbm at 512
// CHECK-NEXT:    rdu.region @y0 temp tensor<16xf32> in hbm at 64
// CHECK-NEXT:    rdu.region @y1 temp tensor<16xf32> in hbm at 128
// CHECK-NEXT:    rdu.region @y2 output tensor<16xf32> in hbm at 192
// CHECK:         rdu.launch @first (@x, @t) sw
// CHECK-NEXT:    rdu.loop 3 {
// CHECK-NEXT:      rdu.launch @a (@t, @w0, @h0) hw
// CHECK-NEXT:      rdu.launch @b (@t, @h0, @y0) hw
// CHECK-NEXT:      rdu.launch @a (@y0, @w1, @h1) hw
// CHECK-NEXT:      rdu.launch @b (@y0, @h1, @y1) hw
// CHECK-NEXT:      rdu.launch @a (@y1, @w2, @h2) hw
// CHECK-NEXT:      rdu.launch @b (@y1, @h2, @y2) hw
// CHECK-NEXT:    }
// CHECK-NEXT:  }
// FOUR-LABEL: rdu.program @main {
// FOUR-NOT:     rdu.loop
// FOUR:         rdu.program
// NOWHERE-NOT:  rdu.loop
// NOWHERE:      {{^}}    rdu.launch @a (@t, @w0, @h0) hw
// NOWHERE-NOT:  rdu.loop
rdu.program @main {
  rdu.region @x input tensor<16xf32>
  rdu.region @t temp tensor<16xf32>
  rdu.region @w0 weight tensor<16xf32> key "w0"
  rdu.region @w1 weight tensor<16xf32> key "w1"
  rdu.region @w2 weight tensor<16xf32> key "w2"
  rdu.region @h0 temp tensor<16xf32>
  rdu.region @h1 temp tensor<16xf32>
  rdu.region @h2 temp tensor<16xf32>
  rdu.region @y0 temp tensor<16xf32>
  rdu.region @y1 temp tensor<16xf32>
  rdu.region @y2 output tensor<16xf32>
  rdu.port input "x" tensor<16xf32> in @x
  rdu.port output "y" tensor<16xf32> in @y2
  rdu.launch @first (@x, @t) sw
  rdu.launch @a (@t, @w0, @h0) hw
  rdu.launch @b (@t, @h0, @y0) hw
  rdu.launch @a (@y0, @w1, @h1) hw
  rdu.launch @b (@y0, @h1, @y1) hw
  rdu.launch @a (@y1, @w2, @h2) hw
  rdu.launch @b (@y1, @h2, @y2) hw
}
}

// -----

// The first weight is read by another launch before, at another offset: its round stays outside. Launches by the host
// are no loop.
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
rdu.config @a virtual ("w" in tensor<4xf32>, "y" out tensor<4xf32>) {
}
// CHECK-LABEL: rdu.program @main {
// CHECK:         rdu.launch @a (@w, @y) sw
// CHECK-NEXT:    rdu.launch @a (@w, @y at 4) sw
// CHECK-NEXT:    rdu.loop 3 {
// CHECK-NEXT:      rdu.launch @a (@w at 4, @y) hw
// CHECK-NEXT:      rdu.launch @a (@w at 8, @y) hw
// CHECK-NEXT:      rdu.launch @a (@w at 12, @y) hw
// CHECK-NEXT:    }
rdu.program @main {
  rdu.region @w weight tensor<16xf32> key "w"
  rdu.region @y output tensor<16xf32>
  rdu.launch @a (@w, @y) sw
  rdu.launch @a (@w, @y at 4) sw
  rdu.launch @a (@w at 4, @y) hw
  rdu.launch @a (@w at 8, @y) hw
  rdu.launch @a (@w at 12, @y) hw
}
}
