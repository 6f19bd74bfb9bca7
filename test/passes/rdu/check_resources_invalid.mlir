// What check-resources refuses: units, bytes and banks of memory units, bodies, sites, and addresses beyond the device.
// RUN: headrace-opt %s -p check-resources --split-input-file --verify-diagnostics

#small = #machine.device<"small", {base = "sn40l", grid = {columns = 4, rows = 4, tile_columns = 1, tile_rows = 1, dies = 1, agcus_per_edge = 2}, pmu = {bytes = 4096}}>

builtin.module attributes {machine.device = #small} {
// All offenders at once.
// expected-error @+1 {{check-resources: config @c takes 5 agcu units of 4}}
rdu.config @c virtual ("x" in tensor<4096xf32>, "y" out tensor<4096xf32>) {
  rdu.agcu @load_x load param 0 x 4
  // expected-error @+2 {{check-resources: a unit of @b (tensor<4096xf32>) holds 8192 bytes of 4096}}
  // expected-error @+1 {{check-resources: @b takes 64 banks of 32}}
  rdu.pmu @b tensor<4096xf32> x 2 banks 64
  rdu.flow @load_x -> @b carries tensor<4096xf32> from at 0 [1] to at 0 [1]
  rdu.agcu @store store param 1
  rdu.flow @b -> @store carries tensor<4096xf32> from at 0 [1] to at 0 [1]
}
}

// -----

#small = #machine.device<"small", {base = "sn40l", grid = {columns = 4, rows = 4, tile_columns = 1, tile_rows = 1, dies = 1, agcus_per_edge = 2}}>

builtin.module attributes {machine.device = #small} {
// expected-error @+1 {{check-resources: config @c takes 9 pcu units of 8}}
rdu.config @c virtual ("x" in tensor<9xf32>, "y" out tensor<9xf32>) {
  rdu.agcu @load_x load param 0
  // expected-error @+1 {{check-resources: the body of @f needs 2 units in a chain}}
  rdu.pcu @f simd x 9 (%x: tensor<1xf32>) {
    %0 = tensor.softmax %x : tensor<1xf32> -> tensor<1xf32>
    %1 = tensor.softmax %0 : tensor<1xf32> -> tensor<1xf32>
    rdu.yield %1 : tensor<1xf32>
  }
  rdu.flow @load_x -> @f carries tensor<1xf32> space [9 on 0 by 1] from at 0 [1]
  rdu.agcu @store store param 1
  rdu.flow @f -> @store carries tensor<1xf32> space [9 on 0 by 1] to at 0 [1]
}
}

// -----

#small = #machine.device<"small", {base = "sn40l", grid = {columns = 4, rows = 4, tile_columns = 1, tile_rows = 1, dies = 1, agcus_per_edge = 2}}>

builtin.module attributes {machine.device = #small} {
rdu.config @c placed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{check-resources: @load_x stands at (0, 0), where there is no agcu}}
  rdu.agcu @load_x load param 0 at [0 0]
  // expected-error @+1 {{check-resources: @a stands at (2, 1), where there is no pmu}}
  rdu.pmu @a tensor<4xf32> at [2 1]
  rdu.pmu @b tensor<4xf32> at [1 1]
  // expected-error @+1 {{check-resources: @d stands at (1, 1), where @b is there too}}
  rdu.pmu @d tensor<4xf32> at [1 1]
  rdu.flow @load_x -> @a carries tensor<4xf32> from at 0 [1] to at 0 [1]
  rdu.flow @a -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1]
  rdu.flow @b -> @d carries tensor<4xf32> from at 0 [1] to at 0 [1]
  rdu.agcu @store store param 1 at [5 1]
  rdu.flow @d -> @store carries tensor<4xf32> from at 0 [1] to at 0 [1]
}
}

// -----

#full = #machine.device<"full", {base = "sn40l", hbm = {bytes = 128}}>

builtin.module attributes {machine.device = #full} {
rdu.program @main {
  // expected-error @+1 {{check-resources: region @x ends at byte 192 of hbm (128 bytes)}}
  rdu.region @x input tensor<16xf32> in hbm at 128
  rdu.region @y input tensor<16xf32> in ddr at 128
}
}

// -----

builtin.module attributes {machine.device = #machine.device<"sn10">} {
rdu.program @main {
  // expected-error @+1 {{check-resources: region @x ends at byte 64 of hbm (no such memory)}}
  rdu.region @x input tensor<16xf32> in hbm at 0
}
}

// -----

// No cut makes one op of five operands fit a unit of three inputs.
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
rdu.config @c virtual ("x" in tensor<1x4xf32>, "p" in tensor<4xf32>, "y" out tensor<1x4xf32>) {
  rdu.agcu @load_x load param 0
  rdu.agcu @load_p load param 1
  // expected-error @+1 {{check-resources: @f takes 5 values, and a unit has ports for 3}}
  rdu.pcu @f simd (%x: tensor<1x4xf32>, %s: tensor<4xf32>, %b: tensor<4xf32>, %m: tensor<4xf32>, %v: tensor<4xf32>) {
    %0 = tensor.batch_norm %x, %s, %b, %m, %v : tensor<1x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<1x4xf32>
    rdu.yield %0 : tensor<1x4xf32>
  }
  rdu.flow @load_x -> @f carries tensor<1x4xf32> from at 0 [4, 1]
  rdu.flow @load_p -> @f:1 carries tensor<4xf32> from at 0 [1]
  rdu.flow @load_p -> @f:2 carries tensor<4xf32> from at 0 [1]
  rdu.flow @load_p -> @f:3 carries tensor<4xf32> from at 0 [1]
  rdu.flow @load_p -> @f:4 carries tensor<4xf32> from at 0 [1]
  rdu.agcu @store store param 2
  rdu.flow @f -> @store carries tensor<1x4xf32> to at 0 [4, 1]
}
}
