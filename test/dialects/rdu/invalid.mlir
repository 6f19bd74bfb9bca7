// What units, flows, configs in each phase and programs refuse, and why.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.pmu: at least one unit}}
  rdu.pmu @b tensor<4xf32> x 0
}

// -----

rdu.config @c placed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.pmu: 2 units have 4 coordinates, 2 given}}
  rdu.pmu @b tensor<4xf32> x 2 at [1 1]
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.pcu: mode is systolic or simd, found vector}}
  rdu.pcu @f vector {
    rdu.yield
  }
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.pcu: the body ends in rdu.yield}}
  rdu.pcu @f simd {
    dataflow.yield
  }
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.pmu: split dim 1 of a buffer of 1 dims}}
  rdu.pmu @b tensor<4xf32> split 1
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.pmu: 5 units cannot share 4 indices of dim 0}}
  rdu.pmu @b tensor<4xf32> x 5
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.pmu: 1 frame loops, 0 copies, 1 banks; at least 0, 1 and 1}}
  rdu.pmu @b tensor<4xf32> frames 1 copies 0
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{"1.0" is no number}}
  rdu.pmu @b tensor<4xf32> fill "1.0"
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{expected a tensor type}}
  rdu.pmu @b i32
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.agcu: direction is load, store, gather or scatter, found send}}
  rdu.agcu @a send param 0
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @a load param 0
  rdu.pmu @b tensor<4xf32>
  // expected-error @+1 {{rdu.flow: `from` has 2 strides but tiles have 1 dims}}
  rdu.flow @a -> @b carries tensor<4xf32> from at 0 [4, 1] to at 0 [1]
}

// -----

rdu.config @c routed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) link_load 0.5 {
  rdu.agcu @a load param 0 at [0 1]
  rdu.pmu @b tensor<4xf32> at [2 1]
  // expected-error @+1 {{rdu.flow: at least one credit}}
  rdu.flow @a -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1] credits 0 routes [0 -> 0 e2]
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.stream: loop 2 on 1 does not fit tiles of 1 dims}}
  rdu.flow @a -> @b carries tensor<4xf32> time [2 on 1 by 4] from at 0 [1] to at 0 [1]
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{'up3' is no way: expected steps such as e3s2 (e, w, s, n), or stay}}
  rdu.flow @a -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1] credits 1 routes [0 -> 0 up3]
}

// -----

// expected-error @+1 {{rdu.param: direction is in, out or inout, found both}}
rdu.config @c virtual ("x" both tensor<4xf32>) {
}

// -----

// expected-error @+1 {{rdu.routes: virtual channels are counted from 0}}
module attributes {r = #rdu.routes<[0 -> 0 stay on -1]>} {
}

// -----

// expected-error @+1 {{rdu.config: phase is virtual, placed, routed, found drawn}}
rdu.config @c drawn ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {

}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.pmu @b tensor<4xf32>
  // expected-error @+1 {{rdu.pmu: two units are called b}}
  rdu.pmu @b tensor<4xf32>
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.region: rdu.config holds units and flows}}
  rdu.region @x input tensor<4xf32>
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.pmu @b tensor<4xf32>
  // expected-error @+1 {{rdu.flow: flow @a:0 -> @b:0: no unit a}}
  rdu.flow @a -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1]
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load load param 0
  rdu.pmu @b tensor<4xf32>
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1]
  rdu.pcu @neg simd (%a: tensor<4xf32>) {
    %n = tensor.neg %a : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %n : tensor<4xf32>
  }
  // expected-error @+1 {{rdu.flow: flow @b:0 -> @neg:0 carries tensor<2xf32> but port 0 of neg is tensor<4xf32>}}
  rdu.flow @b -> @neg carries tensor<2xf32> from at 0 [1]
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load load param 0
  rdu.pmu @b tensor<4xf32>
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1]
  rdu.pcu @neg simd (%a: tensor<4xf32>) {
    %n = tensor.neg %a : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %n : tensor<4xf32>
  }
  // expected-error @+1 {{rdu.flow: flow @b:0 -> @neg:1 carries tensor<4xf32> but port 1 of neg is no such port}}
  rdu.flow @b -> @neg:1 carries tensor<4xf32> from at 0 [1]
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load load param 0
  rdu.pmu @b tensor<4xf32>
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1]
  rdu.pcu @neg simd (%a: tensor<4xf32>) {
    %n = tensor.neg %a : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %n : tensor<4xf32>
  }
  // expected-error @+1 {{rdu.flow: flow @b:0 -> @neg:0 is for 2 sites but neg has 1}}
  rdu.flow @b -> @neg carries tensor<4xf32> space [2 repeat] from at 0 [1]
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load load param 0
  rdu.pmu @b tensor<4xf32>
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1]
  rdu.pcu @neg simd (%a: tensor<4xf32>) {
    %n = tensor.neg %a : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %n : tensor<4xf32>
  }
  // expected-error @+1 {{rdu.flow: flow @b:0 -> @neg:0: compute units have no address program}}
  rdu.flow @b -> @neg carries tensor<4xf32> from at 0 [1] to at 0 [1]
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load load param 0
  rdu.pmu @b tensor<4xf32>
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1]
  rdu.pcu @neg simd (%a: tensor<4xf32>) {
    %n = tensor.neg %a : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %n : tensor<4xf32>
  }
  // expected-error @+1 {{rdu.flow: flow @b:0 -> @neg:0: its source b needs an address program}}
  rdu.flow @b -> @neg carries tensor<4xf32>
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load load param 0
  rdu.pmu @b tensor<4xf32>
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1]
  rdu.pcu @neg simd (%a: tensor<4xf32>) {
    %n = tensor.neg %a : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %n : tensor<4xf32>
  }
  rdu.agcu @store store param 1
  rdu.flow @b -> @neg carries tensor<4xf32> time [2 repeat] from at 0 [1]
  // expected-error @+1 {{rdu.flow: flow @neg:0 -> @store:0 steps [3] at neg, where flow @b:0 -> @neg:0 steps [2]}}
  rdu.flow @neg -> @store carries tensor<4xf32> time [3 repeat] to at 0 [1]
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load load param 0
  rdu.pmu @b tensor<4xf32> frames 2
  // expected-error @+1 {{rdu.flow: flow @load:0 -> @b:0 has 1 time loops, but 2 enumerate the frames of b}}
  rdu.flow @load -> @b carries tensor<2xf32> time [2 on 0 by 2] from at 0 [1] to at 0 [1]
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load load param 0
  rdu.pmu @b tensor<4xf32>
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1]
  rdu.pcu @neg simd (%a: tensor<4xf32>) {
    %n = tensor.neg %a : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %n : tensor<4xf32>
  }
  rdu.flow @b -> @neg carries tensor<4xf32> from at 0 [1]
  // expected-error @+1 {{rdu.flow: port 0 of neg is fed twice}}
  rdu.flow @b:1 -> @neg carries tensor<4xf32> from at 0 [1]
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.pcu: no flow feeds port 0 of neg}}
  rdu.pcu @neg simd (%a: tensor<4xf32>) {
    %n = tensor.neg %a : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %n : tensor<4xf32>
  }
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.agcu: load names parameter 2 of 2}}
  rdu.agcu @load load param 2
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.pmu: b has sites exactly in phases placed and routed}}
  rdu.pmu @b tensor<4xf32> at [2 1]
}

// -----

rdu.config @c placed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.pmu: b has sites exactly in phases placed and routed}}
  rdu.pmu @b tensor<4xf32>
}

// -----

rdu.config @c placed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load load param 0 at [0 1]
  rdu.pmu @b tensor<4xf32> at [2 1]
  // expected-error @+1 {{rdu.flow: flow @load:0 -> @b:0 has routes exactly in phase routed}}
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1] routes [0 -> 0 e2]
}

// -----

rdu.config @c placed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load load param 0 at [0 1]
  rdu.pmu @b tensor<4xf32> at [2 1]
  // expected-error @+1 {{rdu.flow: flow @load:0 -> @b:0 has credits exactly in phase routed}}
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1] credits 2
}

// -----

// expected-error @+1 {{rdu.config: @c has link_load exactly in phase routed}}
rdu.config @c placed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) link_load 0.5 {
  rdu.agcu @load load param 0 at [0 1]
  rdu.pmu @b tensor<4xf32> at [2 1]
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1]
}

// -----

rdu.config @c routed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) link_load 0.5 {
  rdu.agcu @load load param 0 at [0 1]
  rdu.pmu @b tensor<4xf32> at [2 1]
  // expected-error @+1 {{rdu.flow: flow @load:0 -> @b:0 has routes exactly in phase routed}}
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1] credits 2
}

// -----

rdu.config @c routed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) link_load 0.5 {
  rdu.agcu @load load param 0 at [0 1]
  rdu.pmu @b tensor<4xf32> at [2 1]
  // expected-error @+1 {{rdu.flow: flow @load:0 -> @b:0 has credits exactly in phase routed}}
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1] routes [0 -> 0 e2]
}

// -----

// expected-error @+1 {{rdu.config: @c has link_load exactly in phase routed}}
rdu.config @c routed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.agcu @load load param 0 at [0 1]
  rdu.pmu @b tensor<4xf32> at [2 1]
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1] credits 2 routes [0 -> 0 e2]
}

// -----

rdu.config @c routed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) link_load 0.5 {
  rdu.agcu @load load param 0 at [0 1]
  rdu.pmu @b tensor<4xf32> at [2 1]
  // expected-error @+1 {{rdu.flow: flow @load:0 -> @b:0 has a route 0 -> 1 but 1 and 1 sites}}
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1] credits 2 routes [0 -> 1 e2]
}

// -----

rdu.config @c routed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) link_load 0.5 {
  rdu.agcu @load load param 0 at [0 1]
  rdu.pmu @b tensor<4xf32> at [2 1]
  // expected-error @+1 {{rdu.flow: flow @load:0 -> @b:0: the way of 0 -> 0 goes from (0, 1) to (1, 2), but b stands at (2, 1)}}
  rdu.flow @load -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1] credits 2 routes [0 -> 0 es]
}

// -----

rdu.program @main {
  // expected-error @+1 {{rdu.region: kind is input, output, weight, state, temp, found scratch}}
  rdu.region @x scratch tensor<4xf32>
}

// -----

rdu.program @main {
  // expected-error @+1 {{rdu.region: weights have a key and nothing else has; @x is weight}}
  rdu.region @x weight tensor<4xf32>
}

// -----

rdu.program @main {
  // expected-error @+1 {{rdu.region: memory and address go together; @x has one of them}}
  "rdu.region"() <{sym_name = "x", kind = "input", type = tensor<4xf32>, key = "", memory = "hbm"}> : () -> ()
}

// -----

rdu.program @main {
  // expected-error @+1 {{rdu.region: memory is hbm or ddr, found sram}}
  rdu.region @x input tensor<4xf32> in sram at 0
}

// -----

rdu.program @main {
  // expected-error @+1 {{rdu.region: @x lies at -64}}
  rdu.region @x input tensor<4xf32> in hbm at -64
}

// -----

rdu.program @main {
  rdu.region @x state tensor<4xf32>
  // expected-error @+1 {{rdu.port: kind is input or output, found state}}
  rdu.port state "x" tensor<4xf32> in @x
}

// -----

rdu.config @c virtual () {
}
rdu.program @main {
  // expected-error @+1 {{rdu.launch: mode is sw or hw, found fast}}
  rdu.launch @c () fast
}

// -----

rdu.config @c virtual () {
}
rdu.program @main {
  // expected-error @+1 {{rdu.launch: one offset for each argument}}
  "rdu.launch"() <{config = @c, args = [], offsets = array<i64: 0>, mode = "sw"}> : () -> ()
}

// -----

rdu.program @main {
  rdu.region @x input tensor<4xf32>
  // expected-error @+1 {{rdu.region: two regions are called x}}
  rdu.region @x temp tensor<4xf32>
}

// -----

rdu.program @main {
  // expected-error @+1 {{rdu.pmu: rdu.program holds regions, ports, launches and loops}}
  rdu.pmu @b tensor<4xf32>
}

// -----

rdu.program @main {
  // expected-error @+1 {{rdu.port: port "x": no region x}}
  rdu.port input "x" tensor<4xf32> in @x
}

// -----

rdu.program @main {
  rdu.region @x input tensor<4xf32>
  // expected-error @+1 {{rdu.port: port "x" is tensor<4xf64> but @x is tensor<4xf32>}}
  rdu.port input "x" tensor<4xf64> in @x
}

// -----

rdu.program @main {
  rdu.region @x input tensor<4xf32>
  // expected-error @+1 {{rdu.port: port "x" takes elements 2 to 5 of 4 of @x}}
  rdu.port input "x" tensor<4xf32> in @x at 2
}

// -----

// expected-error @+1 {{rdu.program: state "y" is no output}}
rdu.program @main states [["x", "y"]] {
  rdu.region @x input tensor<4xf32>
  rdu.port input "x" tensor<4xf32> in @x
}

// -----

// expected-error @+1 {{rdu.program: a state is a pair of an input and an output}}
rdu.program @main states [["x"]] {

}

// -----

rdu.program @main {
  // expected-error @+1 {{rdu.launch: a launch of c, which is no config}}
  rdu.launch @c () sw
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>) {
}
rdu.program @main {
  // expected-error @+1 {{rdu.launch: a launch of c gives 0 parameters, it takes 1}}
  rdu.launch @c () sw
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>) {
}
rdu.program @main {
  rdu.region @x input tensor<4xf32>
  // expected-error @+1 {{rdu.launch: parameter "x" of c takes elements 1 to 4 of 4 of @x}}
  rdu.launch @c (@x at 1) sw
}

// -----

rdu.config @layer virtual () {
}
rdu.program @main {
  // expected-error @+1 {{rdu.loop: at least two rounds, found 1}}
  rdu.loop 1 {
    rdu.launch @layer () hw
  }
}

// -----

rdu.config @layer virtual () {
}
rdu.program @main {
  // expected-error @+1 {{rdu.loop: 3 launches are not 2 equal rounds}}
  rdu.loop 2 {
    rdu.launch @layer () hw
    rdu.launch @layer () hw
    rdu.launch @layer () hw
  }
}

// -----

rdu.program @main {
  // expected-error @+1 {{rdu.loop: 0 launches are not 2 equal rounds}}
  rdu.loop 2 {
  }
}

// -----

rdu.program @main {
  rdu.loop 2 {
    // expected-error @+1 {{rdu.region: rdu.loop holds launches}}
    rdu.region @x input tensor<4xf32>
  }
}

// -----

rdu.config @layer virtual () {
}
rdu.program @main {
  rdu.loop 2 {
    rdu.launch @layer () sw
    // expected-error @+1 {{rdu.launch: the host launches only the first of a loop}}
    rdu.launch @layer () sw
  }
}

// -----

rdu.config @a virtual () {
}
rdu.config @b virtual () {
}
rdu.config @c virtual () {
}
rdu.program @main {
  rdu.loop 2 {
    rdu.launch @a () hw
    rdu.launch @b () hw
    rdu.launch @a () hw
    // expected-error @+1 {{rdu.launch: round 1 launches c, the first b}}
    rdu.launch @c () hw
  }
}

// -----

// A round that lies twice as far away.
rdu.config @layer virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
}
rdu.program @main {
  rdu.region @x input tensor<4xf32> in hbm at 0
  rdu.region @y temp tensor<4xf32> in hbm at 64
  rdu.region @z temp tensor<4xf32> in hbm at 128
  rdu.region @o output tensor<4xf32> in hbm at 256
  rdu.loop 3 {
    rdu.launch @layer (@x, @y) hw
    rdu.launch @layer (@y, @z) hw
    // expected-error @+1 {{rdu.launch: parameter 1 in round 2 lies 128 bytes after round 1, not 64}}
    rdu.launch @layer (@z, @o) hw
  }
}

// -----

rdu.config @layer virtual ("x" in tensor<4xf32>) {
}
rdu.program @main {
  rdu.region @x weight tensor<4xf32> key "x" in hbm at 0
  rdu.region @y weight tensor<4xf32> key "y" in ddr at 0
  rdu.loop 2 {
    rdu.launch @layer (@x) hw
    // expected-error @+1 {{rdu.launch: parameter 0 in round 1 lies in ddr, before in hbm}}
    rdu.launch @layer (@y) hw
  }
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  // expected-error @+1 {{rdu.pcu: the body ends in rdu.yield}}
  rdu.pcu @p simd {
    dataflow.yield
  }
  rdu.agcu @y store param 1
  rdu.flow @p -> @y carries tensor<4xf32> to at 0 [1]
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>) {
}
rdu.program @main {
  // expected-error @+1 {{rdu.region: weight @w has 2 tensors}}
  rdu.region @w weight tensor<4xf32> key "w" runs 2
  rdu.launch @c (@w) sw runs 2
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
}
rdu.program @main {
  rdu.region @x input tensor<4xf32> runs 2
  rdu.region @y output tensor<4xf32>
  // expected-error @+1 {{rdu.launch: 2 runs write @y, which has room for one}}
  rdu.launch @c (@x, @y) sw runs 2
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
}
rdu.program @main {
  rdu.region @x input tensor<4xf32>
  // expected-error @+1 {{rdu.region: @y has 4 tensors, the program 2 runs}}
  rdu.region @y output tensor<4xf32> runs 4
  rdu.launch @c (@x, @y) sw runs 2
}

// -----

rdu.config @c virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
}
rdu.program @main {
  rdu.region @x input tensor<4xf32>
  rdu.region @y output tensor<4xf32> runs 2
  rdu.launch @c (@x, @y) sw runs 2
  // expected-error @+1 {{rdu.launch: a launch of 1 runs in a program of 2}}
  rdu.launch @c (@x, @y) hw
}

// -----

rdu.config @c virtual () {
}
// expected-error @+1 {{rdu.program: runs wait for each other's state, so there are not several at a time}}
rdu.program @main states [["past", "present"]] {
  rdu.region @s state tensor<4xf32>
  rdu.port input "past" tensor<4xf32> in @s
  rdu.port output "present" tensor<4xf32> in @s
  rdu.launch @c () sw runs 2
}

// -----

rdu.config @c virtual () {
}
rdu.program @main {
  // expected-error @+1 {{rdu.launch: at least one run, found 0}}
  rdu.launch @c () sw runs 0
}
