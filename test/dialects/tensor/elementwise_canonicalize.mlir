// What elementwise ops canonicalize to.
// RUN: headrace-opt %s -p canonicalize | filecheck %s

// CHECK-LABEL: func.func @neutral_constants_go(
// CHECK-NEXT:    func.return %x, %x, %x, %x, %x
func.func @neutral_constants_go(%x: tensor<2x3xf32>)
    -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %zero = tensor.constant dense<0.0> : tensor<2x3xf32>
  %one = tensor.constant dense<1.0> : tensor<f32>
  %low = tensor.constant dense<0xFF800000> : tensor<f32>
  %0 = tensor.add %zero, %x : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<2x3xf32>
  %1 = tensor.mul %x, %one : tensor<2x3xf32>, tensor<f32> -> tensor<2x3xf32>
  %2 = tensor.div %x, %one : tensor<2x3xf32>, tensor<f32> -> tensor<2x3xf32>
  %3 = tensor.max %x, %low : tensor<2x3xf32>, tensor<f32> -> tensor<2x3xf32>
  %4 = tensor.pow %x, %one : tensor<2x3xf32>, tensor<f32> -> tensor<2x3xf32>
  func.return %0, %1, %2, %3, %4
    : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// A neutral constant may still give the result its shape.
// CHECK-LABEL: func.func @neutral_but_larger(
// CHECK-NEXT:    %0 = tensor.broadcast %x {shape = array<i64: 2, 3>} : tensor<3xf32> -> tensor<2x3xf32>
// CHECK-NEXT:    func.return %0
func.func @neutral_but_larger(%x: tensor<3xf32>) -> tensor<2x3xf32> {
  %zero = tensor.constant dense<0.0> : tensor<2x3xf32>
  %0 = tensor.add %x, %zero : tensor<3xf32>, tensor<2x3xf32> -> tensor<2x3xf32>
  func.return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @zero_decides_for_integers_only(
// CHECK-NEXT:    %[[F:.*]] = tensor.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:    %[[R:.*]] = tensor.mul %x, %[[F]] : tensor<3xf32>, tensor<f32> -> tensor<3xf32>
// CHECK-NEXT:    %[[I:.*]] = tensor.constant dense<0> : tensor<3xi32>
// CHECK-NEXT:    func.return %[[R]], %[[I]]
func.func @zero_decides_for_integers_only(%x: tensor<3xf32>, %i: tensor<3xi32>) -> (tensor<3xf32>, tensor<3xi32>) {
  %f = tensor.constant dense<0.0> : tensor<f32>
  %z = tensor.constant dense<0> : tensor<i32>
  %0 = tensor.mul %x, %f : tensor<3xf32>, tensor<f32> -> tensor<3xf32>
  %1 = tensor.mul %i, %z : tensor<3xi32>, tensor<i32> -> tensor<3xi32>
  func.return %0, %1 : tensor<3xf32>, tensor<3xi32>
}

// CHECK-LABEL: func.func @integer_constants_together(
// CHECK-NEXT:    %[[C:.*]] = tensor.constant dense<7> : tensor<i32>
// CHECK-NEXT:    %[[R:.*]] = tensor.add %x, %[[C]] : tensor<3xi32>, tensor<i32> -> tensor<3xi32>
// CHECK-NEXT:    func.return %[[R]]
func.func @integer_constants_together(%x: tensor<3xi32>) -> tensor<3xi32> {
  %a = tensor.constant dense<3> : tensor<i32>
  %b = tensor.constant dense<4> : tensor<i32>
  %0 = tensor.add %a, %x : tensor<i32>, tensor<3xi32> -> tensor<3xi32>
  %1 = tensor.add %0, %b : tensor<3xi32>, tensor<i32> -> tensor<3xi32>
  func.return %1 : tensor<3xi32>
}

// CHECK-LABEL: func.func @twice_is_once(
// CHECK-NEXT:    %[[R:.*]] = tensor.relu %x : tensor<3xf32> -> tensor<3xf32>
// CHECK-NEXT:    %[[F:.*]] = tensor.floor %x : tensor<3xf32> -> tensor<3xf32>
// CHECK-NEXT:    func.return %[[R]], %x, %[[F]]
func.func @twice_is_once(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %0 = tensor.relu %x : tensor<3xf32> -> tensor<3xf32>
  %1 = tensor.relu %0 : tensor<3xf32> -> tensor<3xf32>
  %2 = tensor.neg %x : tensor<3xf32> -> tensor<3xf32>
  %3 = tensor.neg %2 : tensor<3xf32> -> tensor<3xf32>
  %4 = tensor.floor %x : tensor<3xf32> -> tensor<3xf32>
  %5 = tensor.round %4 : tensor<3xf32> -> tensor<3xf32>
  func.return %1, %3, %5 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}

// CHECK-LABEL: func.func @relu6(
// CHECK-NEXT:    %[[R:.*]] = tensor.clip %x {min = 0.000000e+00 : f64, max = 6.000000e+00 : f64}
// CHECK-NEXT:    func.return %[[R]]
func.func @relu6(%x: tensor<3xf32>) -> tensor<3xf32> {
  %zero = tensor.constant dense<0.0> : tensor<f32>
  %0 = tensor.max %x, %zero : tensor<3xf32>, tensor<f32> -> tensor<3xf32>
  %1 = tensor.clip %0 {min = -1.0 : f64, max = 6.0 : f64} : tensor<3xf32> -> tensor<3xf32>
  func.return %1 : tensor<3xf32>
}

// CHECK-LABEL: func.func @negation_merges(
// CHECK-NEXT:    %[[A:.*]] = tensor.sub %x, %y
// CHECK-NEXT:    %[[B:.*]] = tensor.add %x, %y
// CHECK-NEXT:    %[[C:.*]] = tensor.neg %x
// CHECK-NEXT:    func.return %[[A]], %[[B]], %[[C]]
func.func @negation_merges(%x: tensor<3xf32>, %y: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %zero = tensor.constant dense<0.0> : tensor<f32>
  %0 = tensor.neg %y : tensor<3xf32> -> tensor<3xf32>
  %1 = tensor.add %x, %0 : tensor<3xf32>, tensor<3xf32> -> tensor<3xf32>
  %2 = tensor.sub %x, %0 : tensor<3xf32>, tensor<3xf32> -> tensor<3xf32>
  %3 = tensor.sub %zero, %x : tensor<f32>, tensor<3xf32> -> tensor<3xf32>
  func.return %1, %2, %3 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}

// A division by a power of two is exact as a product; by others it is not.
// CHECK-LABEL: func.func @divisions_and_powers(
// CHECK-NEXT:    %[[THREE:.*]] = tensor.constant dense<3.000000e+00> : tensor<f32>
// CHECK-NEXT:    %[[EIGHTH:.*]] = tensor.constant dense<1.250000e-01> : tensor<f32>
// CHECK-NEXT:    %[[A:.*]] = tensor.mul %x, %[[EIGHTH]]
// CHECK-NEXT:    %[[B:.*]] = tensor.div %x, %[[THREE]]
// CHECK-NEXT:    %[[C:.*]] = tensor.rsqrt %x
// CHECK-NEXT:    %[[D:.*]] = tensor.mul %x, %x
// CHECK-NEXT:    func.return %[[A]], %[[B]], %[[C]], %[[D]]
func.func @divisions_and_powers(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %one = tensor.constant dense<1.0> : tensor<f32>
  %two = tensor.constant dense<2.0> : tensor<f32>
  %three = tensor.constant dense<3.0> : tensor<f32>
  %eight = tensor.constant dense<8.0> : tensor<f32>
  %0 = tensor.div %x, %eight : tensor<3xf32>, tensor<f32> -> tensor<3xf32>
  %1 = tensor.div %x, %three : tensor<3xf32>, tensor<f32> -> tensor<3xf32>
  %2 = tensor.sqrt %x : tensor<3xf32> -> tensor<3xf32>
  %3 = tensor.div %one, %2 : tensor<f32>, tensor<3xf32> -> tensor<3xf32>
  %4 = tensor.pow %x, %two : tensor<3xf32>, tensor<f32> -> tensor<3xf32>
  func.return %0, %1, %3, %4 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}

// CHECK-LABEL: func.func @selects(
// CHECK-NEXT:    %[[S:.*]] = tensor.select %c, %y, %x
// CHECK-NEXT:    func.return %x, %y, %[[S]]
func.func @selects(%c: tensor<3xi1>, %x: tensor<3xf32>, %y: tensor<3xf32>)
    -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %true = tensor.constant dense<true> : tensor<3xi1>
  %not = tensor.not %c : tensor<3xi1> -> tensor<3xi1>
  %0 = tensor.select %true, %x, %y : tensor<3xi1>, tensor<3xf32>, tensor<3xf32> -> tensor<3xf32>
  %1 = tensor.select %c, %y, %y : tensor<3xi1>, tensor<3xf32>, tensor<3xf32> -> tensor<3xf32>
  %2 = tensor.select %not, %x, %y : tensor<3xi1>, tensor<3xf32>, tensor<3xf32> -> tensor<3xf32>
  func.return %0, %1, %2 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}

// A cast that loses nothing goes when another follows; one that rounds stays.
// CHECK-LABEL: func.func @casts(
// CHECK-NEXT:    %[[A:.*]] = tensor.cast %y {to = "bf16"} : tensor<3xf32> -> tensor<3xbf16>
// CHECK-NEXT:    %[[B:.*]] = tensor.cast %[[A]] {to = "f32"} : tensor<3xbf16> -> tensor<3xf32>
// CHECK-NEXT:    func.return %x, %[[B]]
func.func @casts(%x: tensor<3xf16>, %y: tensor<3xf32>) -> (tensor<3xf16>, tensor<3xf32>) {
  %0 = tensor.cast %x {to = "f32"} : tensor<3xf16> -> tensor<3xf32>
  %1 = tensor.cast %0 {to = "f16"} : tensor<3xf32> -> tensor<3xf16>
  %2 = tensor.cast %y {to = "bf16"} : tensor<3xf32> -> tensor<3xbf16>
  %3 = tensor.cast %2 {to = "f32"} : tensor<3xbf16> -> tensor<3xf32>
  func.return %1, %3 : tensor<3xf16>, tensor<3xf32>
}

// CHECK-LABEL: func.func @broadcasts_are_implied(
// CHECK-NEXT:    %[[R:.*]] = tensor.add %x, %b : tensor<2x3xf32>, tensor<3xf32> -> tensor<2x3xf32>
// CHECK-NEXT:    func.return %[[R]]
func.func @broadcasts_are_implied(%x: tensor<2x3xf32>, %b: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = tensor.broadcast %b {shape = array<i64: 2, 3>} : tensor<3xf32> -> tensor<2x3xf32>
  %1 = tensor.add %x, %0 : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<2x3xf32>
  func.return %1 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @comparisons_turn(
// CHECK-NEXT:    %[[C:.*]] = tensor.constant dense<2.000000e+00> : tensor<f32>
// CHECK-NEXT:    %[[A:.*]] = tensor.greater %x, %[[C]]
// CHECK-NEXT:    %[[B:.*]] = tensor.not_equal %x, %[[C]]
// CHECK-NEXT:    func.return %[[A]], %[[B]]
func.func @comparisons_turn(%x: tensor<3xf32>) -> (tensor<3xi1>, tensor<3xi1>) {
  %c = tensor.constant dense<2.0> : tensor<f32>
  %0 = tensor.less %c, %x : tensor<f32>, tensor<3xf32> -> tensor<3xi1>
  %1 = tensor.equal %x, %c : tensor<3xf32>, tensor<f32> -> tensor<3xi1>
  %2 = tensor.not %1 : tensor<3xi1> -> tensor<3xi1>
  func.return %0, %2 : tensor<3xi1>, tensor<3xi1>
}

// CHECK-LABEL: func.func @contractions(
// CHECK-NEXT:    %[[R:.*]] = tensor.matmul %a, %a : tensor<2x2xbf16>, tensor<2x2xbf16> -> tensor<2x2xbf16>
// CHECK-NEXT:    func.return %[[R]], %x
func.func @contractions(%a: tensor<2x2xbf16>, %x: tensor<1x1x4xf32>) -> (tensor<2x2xbf16>, tensor<1x1x4xf32>) {
  %0 = tensor.matmul %a, %a {accumulate = "f32"} : tensor<2x2xbf16>, tensor<2x2xbf16> -> tensor<2x2xbf16>
  %1 = tensor.max_pool %x {kernel = array<i64: 1>} : tensor<1x1x4xf32> -> tensor<1x1x4xf32>
  func.return %0, %1 : tensor<2x2xbf16>, tensor<1x1x4xf32>
}

// A cube of bf16 would round twice as two products.
// CHECK-LABEL: @narrow_cube
// CHECK:         %[[P:.*]] = tensor.pow %x, %{{.*}} : tensor<4xbf16>, tensor<bf16>
// CHECK-NEXT:    %[[M:.*]] = tensor.mul %[[P]], %[[P]]
func.func @narrow_cube(%x: tensor<4xbf16>) -> tensor<4xbf16> {
  %c = tensor.constant dense<3.0> : tensor<bf16>
  %d = tensor.constant dense<2.0> : tensor<bf16>
  %0 = tensor.pow %x, %c : tensor<4xbf16>, tensor<bf16> -> tensor<4xbf16>
  %1 = tensor.pow %0, %d : tensor<4xbf16>, tensor<bf16> -> tensor<4xbf16>
  func.return %1 : tensor<4xbf16>
}
