// Configs in each phase and the program that launches them: both printed forms parse to the same; defaults are not printed.
// RUN: headrace-opt %s | filecheck %s
// RUN: headrace-opt %s | headrace-opt | filecheck %s
// RUN: headrace-opt %s --print-op-generic | headrace-opt | filecheck %s

// CHECK-LABEL: rdu.config @gemm virtual ("x" in tensor<8x4xf32>, "w" in tensor<4x6xf32>, "y" out tensor<8x6xf32>) {
rdu.config @gemm virtual ("x" in tensor<8x4xf32>, "w" in tensor<4x6xf32>, "y" out tensor<8x6xf32>) {
  // CHECK-NEXT: rdu.agcu @load_x load param 0{{$}}
  rdu.agcu @load_x load param 0
  // CHECK-NEXT: rdu.pmu @rows tensor<8x4xf32> x 2 split 1 frames 1 copies 2 banks 4{{$}}
  rdu.pmu @rows tensor<8x4xf32> x 2 split 1 frames 1 copies 2 banks 4
  // CHECK-NEXT: rdu.flow @load_x -> @rows carries tensor<4x4xf32> time [2 on 0 by 4] from at 0 [4, 1] to at 0 [4, 1]{{$}}
  rdu.flow @load_x:0 -> @rows:0 carries tensor<4x4xf32> time [2 on 0 by 4] from at 0 [4, 1] to at 0 [4, 1]
  rdu.agcu @load_w load param 1 x 2
  // CHECK: rdu.pmu @weights tensor<4x6xf32>{{$}}
  rdu.pmu @weights tensor<4x6xf32> x 1 split 0 frames 0 copies 1 banks 1 fill 0.0
  rdu.flow @load_w -> @weights carries tensor<4x6xf32> from at 0 [6, 1] to at 0 [6, 1]
  // CHECK: rdu.pcu @dot systolic x 2 (%[[A:.*]]: tensor<4x4xf32>, %[[B:.*]]: tensor<4x3xf32>) {
  // CHECK-NEXT: %[[C:.*]] = tensor.matmul %[[A]], %[[B]]
  // CHECK-NEXT: rdu.yield %[[C]] : tensor<4x3xf32>
  rdu.pcu @dot systolic x 2 (%a: tensor<4x4xf32>, %b: tensor<4x3xf32>) {
    %c = tensor.matmul %a, %b : tensor<4x4xf32>, tensor<4x3xf32> -> tensor<4x3xf32>
    rdu.yield %c : tensor<4x3xf32>
  }
  // CHECK: rdu.flow @rows -> @dot carries tensor<4x4xf32> time [2 on 0 by 4] space [2 repeat] from at 0 [4, 1]{{$}}
  rdu.flow @rows -> @dot carries tensor<4x4xf32> time [2 on 0 by 4] space [2 repeat] from at 0 [4, 1]
  // CHECK-NEXT: rdu.flow @weights -> @dot:1 carries tensor<4x3xf32> time [2 repeat] space [2 on 1 by 3] from at 0 [6, 1]{{$}}
  rdu.flow @weights -> @dot:1 carries tensor<4x3xf32> time [2 repeat] space [2 on 1 by 3] from at 0 [6, 1]
  rdu.agcu @store store param 2
  // CHECK: rdu.flow @dot -> @store carries tensor<4x3xf32> time [2 on 0 by 4] space [2 on 1 by 3] to at 0 [6, 1]{{$}}
  rdu.flow @dot -> @store carries tensor<4x3xf32> time [2 on 0 by 4] space [2 on 1 by 3] to at 0 [6, 1]
}

// Placed: units have coordinates. Negative strides, an infinite fill, and attributes that are no part of an op.
// CHECK-LABEL: rdu.config @reversed placed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) attributes {note = "kept"} {
rdu.config @reversed placed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) attributes {note = "kept"} {
  // CHECK-NEXT: rdu.agcu @load_x load param 0 at [0 1]
  rdu.agcu @load_x load param 0 at [0 1]
  // CHECK-NEXT: rdu.pmu @b tensor<4xf32> x 2 banks 4 fill "-inf" at [2 1, 1 2] attributes {note = 1 : i64}
  rdu.pmu @b tensor<4xf32> x 2 banks 4 fill "-inf" at [2 1, 1 2] attributes {note = 1 : i64}
  rdu.flow @load_x -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1]
  // CHECK: rdu.pcu @neg simd at [1 1] (%{{.*}}: tensor<4xf32>) attributes {note = 2 : i64} {
  rdu.pcu @neg simd at [1 1] (%a: tensor<4xf32>) attributes {note = 2 : i64} {
    %n = tensor.neg %a : tensor<4xf32> -> tensor<4xf32>
    rdu.yield %n : tensor<4xf32>
  }
  // CHECK: rdu.flow @b -> @neg carries tensor<4xf32> from at 3 [-1] attributes {note = 3 : i64}
  rdu.flow @b -> @neg carries tensor<4xf32> from at 3 [-1] attributes {note = 3 : i64}
  rdu.agcu @store store param 1 at [5 1]
  rdu.flow @neg -> @store carries tensor<4xf32> to at 0 [1]
}

// Routed: each pair of sites has its way and, unless 0, its virtual channel; each flow has credits.
// CHECK-LABEL: rdu.config @copied routed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) link_load 0.25 {
rdu.config @copied routed ("x" in tensor<4xf32>, "y" out tensor<4xf32>) link_load 0.25 {
  rdu.agcu @load_x load param 0 at [0 1]
  rdu.pmu @b tensor<4xf32> x 2 at [2 1, 1 3]
  // CHECK: rdu.flow @load_x -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1] credits 10 routes [0 -> 0 e2, 0 -> 1 es2 on 1]
  rdu.flow @load_x -> @b carries tensor<4xf32> from at 0 [1] to at 0 [1] credits 10 routes [0 -> 0 e2, 0 -> 1 es2 on 1]
  rdu.agcu @store store param 1 at [2 1]
  // CHECK: rdu.flow @b -> @store carries tensor<4xf32> from at 0 [1] to at 0 [1] credits 8 routes [0 -> 0 stay, 1 -> 0 n2e on 3]
  rdu.flow @b -> @store carries tensor<4xf32> from at 0 [1] to at 0 [1] credits 8 routes [0 -> 0 stay, 1 -> 0 n2e1 on 3]
}

// Rows of a table by number, and rows written by number.
// CHECK-LABEL: rdu.config @rows_by_number virtual
rdu.config @rows_by_number virtual ("ids" in tensor<2xi64>, "table" in tensor<9x4xf32>, "state" inout tensor<8x4xf32>) {
  rdu.agcu @load_ids load param 0
  // CHECK: rdu.agcu @take gather param 1
  rdu.agcu @take gather param 1
  // CHECK-NEXT: rdu.agcu @put scatter param 2
  rdu.agcu @put scatter param 2
  // CHECK-NEXT: rdu.flow @load_ids -> @take carries tensor<1xi64> time [2 on 0 by 1] from at 0 [1]{{$}}
  rdu.flow @load_ids -> @take carries tensor<1xi64> time [2 on 0 by 1] from at 0 [1]
  rdu.flow @load_ids -> @put carries tensor<1xi64> time [2 on 0 by 1] from at 0 [1]
  // CHECK: rdu.flow @take -> @put:1 carries tensor<1x4xf32> time [2 on 0 by 1]{{$}}
  rdu.flow @take -> @put:1 carries tensor<1x4xf32> time [2 on 0 by 1]
}

// CHECK-LABEL: rdu.program @main states {{\[\["past", "present"\]\]}} {
rdu.program @main states [["past", "present"]] {
  // CHECK-NEXT: rdu.region @x input tensor<8x4xf32>{{$}}
  rdu.region @x input tensor<8x4xf32>
  // CHECK-NEXT: rdu.region @w weight tensor<2x4x6xf32> key "encoder.w" in hbm at 256{{$}}
  rdu.region @w weight tensor<2x4x6xf32> key "encoder.w" in hbm at 256
  // CHECK-NEXT: rdu.region @s state tensor<8x6xf32> in ddr at 0{{$}}
  rdu.region @s state tensor<8x6xf32> in ddr at 0
  rdu.region @t temp tensor<96xf32>
  // CHECK: rdu.port input "x" tensor<8x4xf32> in @x{{$}}
  rdu.port input "x" tensor<8x4xf32> in @x
  rdu.port input "past" tensor<8x6xf32> in @s
  rdu.port output "present" tensor<8x6xf32> in @s
  // CHECK: rdu.port output "a name with spaces" tensor<4x6xf32> in @t at 24{{$}}
  rdu.port output "a name with spaces" tensor<4x6xf32> in @t at 24
  // CHECK-NEXT: rdu.launch @gemm (@x, @w at 24, @t at 48) hw{{$}}
  rdu.launch @gemm (@x, @w at 24, @t at 48) hw
  // CHECK-NEXT: rdu.launch @gemm (@x, @w, @s) sw{{$}}
  rdu.launch @gemm (@x, @w, @s) sw
  // The weight's halves are 96 bytes apart; the other parameters stay.
  // CHECK-NEXT: rdu.loop 2 {
  // CHECK-NEXT:   rdu.launch @gemm (@x, @w, @s) sw
  // CHECK-NEXT:   rdu.launch @gemm (@x, @w at 24, @s) hw
  // CHECK-NEXT: }
  rdu.loop 2 {
    rdu.launch @gemm (@x, @w, @s) sw
    rdu.launch @gemm (@x, @w at 24, @s) hw
  }
}

// Several runs at a time: a tensor for each run, launches of all of them, and memory that keeps its weights.
// CHECK-LABEL: rdu.config @kept virtual
// CHECK:         rdu.pmu @b tensor<4xf32> copies 2 fill 1.0 kept{{$}}
rdu.config @kept virtual ("x" in tensor<4xf32>, "y" out tensor<4xf32>) {
  rdu.pmu @b tensor<4xf32> copies 2 fill 1.0 kept
}
// CHECK-LABEL: rdu.program @stream {
rdu.program @stream {
  // CHECK-NEXT: rdu.region @x input tensor<4xf32> runs 8 in hbm at 0{{$}}
  rdu.region @x input tensor<4xf32> runs 8 in hbm at 0
  // CHECK-NEXT: rdu.region @y output tensor<4xf32> runs 8{{$}}
  rdu.region @y output tensor<4xf32> runs 8
  // CHECK-NEXT: rdu.launch @kept (@x, @y) hw runs 8{{$}}
  rdu.launch @kept (@x, @y) hw runs 8
}

// An empty config and an empty program.
// CHECK-LABEL: rdu.config @nothing virtual () {
rdu.config @nothing virtual () {
}
// CHECK-LABEL: rdu.program @empty {
rdu.program @empty {
}
