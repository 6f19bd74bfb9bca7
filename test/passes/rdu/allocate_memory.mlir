// Regions get a memory and an address: the busiest bytes first, temporaries that do not live together share space.
// RUN: headrace-opt %s -p allocate-memory --split-input-file | filecheck %s

#roomy = #machine.device<"roomy", {base = "sn40l"}>

builtin.module attributes {machine.device = #roomy} {
rdu.config @step virtual ("x" in tensor<16xf32>, "w" in tensor<16xf32>, "y" out tensor<16xf32>) {
}
// The weight is read by all launches, so it comes first; @a lives over launches 0 and 1, @c from launch 2 on: one place.
// CHECK-LABEL: rdu.program @main {
// CHECK-NEXT:    rdu.region @x input tensor<16xf32> in hbm at 64
// CHECK-NEXT:    rdu.region @w weight tensor<16xf32> key "w" in hbm at 0
// CHECK-NEXT:    rdu.region @a temp tensor<16xf32> in hbm at [[A:[0-9]+]]
// CHECK-NEXT:    rdu.region @b temp tensor<16xf32> in hbm at 256
// CHECK-NEXT:    rdu.region @c temp tensor<16xf32> in hbm at [[A]]
// CHECK-NEXT:    rdu.region @y output tensor<16xf32> in hbm at 128
rdu.program @main {
  rdu.region @x input tensor<16xf32>
  rdu.region @w weight tensor<16xf32> key "w"
  rdu.region @a temp tensor<16xf32>
  rdu.region @b temp tensor<16xf32>
  rdu.region @c temp tensor<16xf32>
  rdu.region @y output tensor<16xf32>
  rdu.launch @step (@x, @w, @a) sw
  rdu.launch @step (@a, @w, @b) sw
  rdu.launch @step (@b, @w, @c) sw
  rdu.launch @step (@c, @w, @y) sw
}
}

// -----

// Where there is room, they lie at equal distance.
builtin.module attributes {machine.device = #machine.device<"roomy", {base = "sn40l"}>} {
rdu.config @step virtual ("x" in tensor<16xf32>, "w" in tensor<16xf32>, "y" out tensor<16xf32>) {
}
// CHECK-LABEL: rdu.program @main {
// CHECK-NEXT:    rdu.region @x input tensor<16xf32> in hbm at 64
// CHECK-NEXT:    rdu.region @w weight tensor<16xf32> key "w" in hbm at 0
// CHECK-NEXT:    rdu.region @a temp tensor<16xf32> in hbm at 128
// CHECK-NEXT:    rdu.region @b temp tensor<16xf32> in hbm at 192
// CHECK-NEXT:    rdu.region @c temp tensor<16xf32> in hbm at 256
// CHECK-NEXT:    rdu.region @y output tensor<16xf32> in hbm at 320
rdu.program @main {
  rdu.region @x input tensor<16xf32>
  rdu.region @w weight tensor<16xf32> key "w"
  rdu.region @a temp tensor<16xf32>
  rdu.region @b temp tensor<16xf32>
  rdu.region @c temp tensor<16xf32>
  rdu.region @y output tensor<16xf32>
  rdu.launch @step (@x, @w, @a) hw
  rdu.launch @step (@a, @w, @b) hw
  rdu.launch @step (@b, @w, @c) hw
  rdu.launch @step (@c, @w, @y) hw
}
}

// -----

// The chip could repeat these launches if what they take one after the other lay at equal distance. HBM does not hold
// that, so it is given up.
#five = #machine.device<"five", {base = "sn40l", hbm = {bytes = 320}}>

builtin.module attributes {machine.device = #five} {
rdu.config @step virtual ("x" in tensor<16xf32>, "w" in tensor<16xf32>, "y" out tensor<16xf32>) {
}
// CHECK-LABEL: rdu.program @main {
// CHECK-NEXT:    rdu.region @x input tensor<16xf32> in hbm at 64
// CHECK-NEXT:    rdu.region @w weight tensor<16xf32> key "w" in hbm at 0
// CHECK-NEXT:    rdu.region @a temp tensor<16xf32> in hbm at [[A:[0-9]+]]
// CHECK-NEXT:    rdu.region @b temp tensor<16xf32> in hbm at 256
// CHECK-NEXT:    rdu.region @c temp tensor<16xf32> in hbm at [[A]]
// CHECK-NEXT:    rdu.region @y output tensor<16xf32> in hbm at 128
rdu.program @main {
  rdu.region @x input tensor<16xf32>
  rdu.region @w weight tensor<16xf32> key "w"
  rdu.region @a temp tensor<16xf32>
  rdu.region @b temp tensor<16xf32>
  rdu.region @c temp tensor<16xf32>
  rdu.region @y output tensor<16xf32>
  rdu.launch @step (@x, @w, @a) hw
  rdu.launch @step (@a, @w, @b) hw
  rdu.launch @step (@b, @w, @c) hw
  rdu.launch @step (@c, @w, @y) hw
}
}

// -----

// What HBM cannot hold goes to DDR: the regions that move fewest bytes per byte held; of equal ones, weights last.
#tight = #machine.device<"tight", {base = "sn40l", hbm = {bytes = 128}}>

builtin.module attributes {machine.device = #tight} {
rdu.config @step virtual ("x" in tensor<16xf32>, "w" in tensor<16xf32>, "y" out tensor<16xf32>) {
}
// CHECK-LABEL: rdu.program @main {
// CHECK-NEXT:    rdu.region @x input tensor<16xf32> in ddr at {{[0-9]+}}
// CHECK-NEXT:    rdu.region @w weight tensor<16xf32> key "w" in hbm at 0
// CHECK-NEXT:    rdu.region @v weight tensor<16xf32> key "v" in hbm at 64
// CHECK-NEXT:    rdu.region @y output tensor<16xf32> in ddr at {{[0-9]+}}
// CHECK-NEXT:    rdu.region @z output tensor<16xf32> in ddr at {{[0-9]+}}
rdu.program @main {
  rdu.region @x input tensor<16xf32>
  rdu.region @w weight tensor<16xf32> key "w"
  rdu.region @v weight tensor<16xf32> key "v"
  rdu.region @y output tensor<16xf32>
  rdu.region @z output tensor<16xf32>
  rdu.launch @step (@x, @w, @y) hw
  rdu.launch @step (@y, @v, @x) hw
  rdu.launch @step (@x, @v, @z) hw
  rdu.launch @step (@z, @w, @z) hw
  rdu.launch @step (@v, @w, @y) hw
}
}

// -----

// A device without HBM has everything in DDR.
builtin.module attributes {machine.device = #machine.device<"sn10">} {
// CHECK-LABEL: rdu.program @main {
// CHECK-NEXT:    rdu.region @x input tensor<16xf32> in ddr at 0
rdu.program @main {
  rdu.region @x input tensor<16xf32>
}
}

// -----

// Whatever the alignment, elements lie at multiples of their size.
// RUN: headrace-opt %s -p 'allocate-memory{align=1}' --split-input-file | filecheck %s --check-prefix=ONE
builtin.module attributes {machine.device = #machine.device<"roomy", {base = "sn40l"}>} {
// ONE:         rdu.region @flag input tensor<17xi8> in hbm at 0
// ONE-NEXT:    rdu.region @y input tensor<2xf64> in hbm at 24
rdu.program @main {
  rdu.region @flag input tensor<17xi8>
  rdu.region @y input tensor<2xf64>
}
}
