// Elementwise ops: both printed forms parse to the same; defaults are not printed.
// RUN: headrace-opt %s | filecheck %s
// RUN: headrace-opt %s | headrace-opt | filecheck %s
// RUN: headrace-opt %s --print-op-generic | headrace-opt | filecheck %s

// CHECK-LABEL: func.func @add(
func.func @add(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.add %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  %r = tensor.add %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @sub(
func.func @sub(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.sub %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  %r = tensor.sub %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @mul(
func.func @mul(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.mul %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  %r = tensor.mul %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @div(
func.func @div(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.div %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  %r = tensor.div %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @pow(
func.func @pow(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.pow %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  %r = tensor.pow %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @max(
func.func @max(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.max %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  %r = tensor.max %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @min(
func.func @min(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.min %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  %r = tensor.min %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @mod(
func.func @mod(%a: tensor<4xi32>, %b: tensor<4xi32>) -> tensor<4xi32> {
  // CHECK-NEXT: tensor.mod %a, %b {fmod = true} : tensor<4xi32>, tensor<4xi32> -> tensor<4xi32>
  %r = tensor.mod %a, %b {fmod = true} : tensor<4xi32>, tensor<4xi32> -> tensor<4xi32>
  func.return %r : tensor<4xi32>
}

// CHECK-LABEL: func.func @atan2(
func.func @atan2(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.atan2 %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  %r = tensor.atan2 %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @and(
func.func @and(%a: tensor<2x4xi1>, %b: tensor<4xi1>) -> tensor<2x4xi1> {
  // CHECK-NEXT: tensor.and %a, %b : tensor<2x4xi1>, tensor<4xi1> -> tensor<2x4xi1>
  %r = tensor.and %a, %b : tensor<2x4xi1>, tensor<4xi1> -> tensor<2x4xi1>
  func.return %r : tensor<2x4xi1>
}

// CHECK-LABEL: func.func @or(
func.func @or(%a: tensor<2x4xi1>, %b: tensor<4xi1>) -> tensor<2x4xi1> {
  // CHECK-NEXT: tensor.or %a, %b : tensor<2x4xi1>, tensor<4xi1> -> tensor<2x4xi1>
  %r = tensor.or %a, %b : tensor<2x4xi1>, tensor<4xi1> -> tensor<2x4xi1>
  func.return %r : tensor<2x4xi1>
}

// CHECK-LABEL: func.func @xor(
func.func @xor(%a: tensor<2x4xi1>, %b: tensor<4xi1>) -> tensor<2x4xi1> {
  // CHECK-NEXT: tensor.xor %a, %b : tensor<2x4xi1>, tensor<4xi1> -> tensor<2x4xi1>
  %r = tensor.xor %a, %b : tensor<2x4xi1>, tensor<4xi1> -> tensor<2x4xi1>
  func.return %r : tensor<2x4xi1>
}

// CHECK-LABEL: func.func @equal(
func.func @equal(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xi1> {
  // CHECK-NEXT: tensor.equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
  %r = tensor.equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
  func.return %r : tensor<2x4xi1>
}

// CHECK-LABEL: func.func @not_equal(
func.func @not_equal(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xi1> {
  // CHECK-NEXT: tensor.not_equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
  %r = tensor.not_equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
  func.return %r : tensor<2x4xi1>
}

// CHECK-LABEL: func.func @less(
func.func @less(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xi1> {
  // CHECK-NEXT: tensor.less %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
  %r = tensor.less %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
  func.return %r : tensor<2x4xi1>
}

// CHECK-LABEL: func.func @less_equal(
func.func @less_equal(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xi1> {
  // CHECK-NEXT: tensor.less_equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
  %r = tensor.less_equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
  func.return %r : tensor<2x4xi1>
}

// CHECK-LABEL: func.func @greater(
func.func @greater(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xi1> {
  // CHECK-NEXT: tensor.greater %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
  %r = tensor.greater %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
  func.return %r : tensor<2x4xi1>
}

// CHECK-LABEL: func.func @greater_equal(
func.func @greater_equal(%a: tensor<2x4xf32>, %b: tensor<4xf32>) -> tensor<2x4xi1> {
  // CHECK-NEXT: tensor.greater_equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
  %r = tensor.greater_equal %a, %b : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xi1>
  func.return %r : tensor<2x4xi1>
}

// CHECK-LABEL: func.func @neg(
func.func @neg(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.neg %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.neg %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @abs(
func.func @abs(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.abs %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.abs %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @sign(
func.func @sign(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.sign %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.sign %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @exp(
func.func @exp(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.exp %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.exp %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @log(
func.func @log(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.log %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.log %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @sqrt(
func.func @sqrt(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.sqrt %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.sqrt %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @rsqrt(
func.func @rsqrt(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.rsqrt %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.rsqrt %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @reciprocal(
func.func @reciprocal(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.reciprocal %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.reciprocal %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @erf(
func.func @erf(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.erf %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.erf %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @tanh(
func.func @tanh(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.tanh %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.tanh %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @sigmoid(
func.func @sigmoid(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.sigmoid %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.sigmoid %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @sin(
func.func @sin(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.sin %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.sin %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @cos(
func.func @cos(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.cos %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.cos %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @tan(
func.func @tan(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.tan %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.tan %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @floor(
func.func @floor(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.floor %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.floor %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @ceil(
func.func @ceil(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.ceil %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.ceil %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @round(
func.func @round(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.round %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.round %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @relu(
func.func @relu(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.relu %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.relu %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @silu(
func.func @silu(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.silu %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.silu %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @softplus(
func.func @softplus(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // CHECK-NEXT: tensor.softplus %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %r = tensor.softplus %x : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @not(
func.func @not(%x: tensor<4xi1>) -> tensor<4xi1> {
  // CHECK-NEXT: tensor.not %x : tensor<4xi1> -> tensor<4xi1>
  %r = tensor.not %x : tensor<4xi1> -> tensor<4xi1>
  func.return %r : tensor<4xi1>
}

// CHECK-LABEL: func.func @is_nan(
func.func @is_nan(%x: tensor<4xf32>) -> tensor<4xi1> {
  // CHECK-NEXT: tensor.is_nan %x : tensor<4xf32> -> tensor<4xi1>
  %r = tensor.is_nan %x : tensor<4xf32> -> tensor<4xi1>
  func.return %r : tensor<4xi1>
}

// CHECK-LABEL: func.func @is_inf(
func.func @is_inf(%x: tensor<4xf32>) -> tensor<4xi1> {
  // CHECK-NEXT: tensor.is_inf %x : tensor<4xf32> -> tensor<4xi1>
  %r = tensor.is_inf %x : tensor<4xf32> -> tensor<4xi1>
  func.return %r : tensor<4xi1>
}

// CHECK-LABEL: func.func @leaky_relu(
func.func @leaky_relu(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: tensor.leaky_relu %x {alpha = 2.000000e-01 : f64} : tensor<4xf32> -> tensor<4xf32>
  %r = tensor.leaky_relu %x {alpha = 2.000000e-01 : f64} : tensor<4xf32> -> tensor<4xf32>
  func.return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @elu(
func.func @elu(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: tensor.elu %x {alpha = 5.000000e-01 : f64} : tensor<4xf32> -> tensor<4xf32>
  %r = tensor.elu %x {alpha = 5.000000e-01 : f64} : tensor<4xf32> -> tensor<4xf32>
  func.return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @clip(
func.func @clip(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: tensor.clip %x {min = 0.000000e+00 : f64, max = 6.000000e+00 : f64} : tensor<4xf32> -> tensor<4xf32>
  %r = tensor.clip %x {min = 0.000000e+00 : f64, max = 6.000000e+00 : f64} : tensor<4xf32> -> tensor<4xf32>
  func.return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @gelu(
func.func @gelu(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: tensor.gelu %x {approximate = "tanh"} : tensor<4xf32> -> tensor<4xf32>
  %r = tensor.gelu %x {approximate = "tanh"} : tensor<4xf32> -> tensor<4xf32>
  func.return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @hard_sigmoid(
func.func @hard_sigmoid(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: tensor.hard_sigmoid %x {alpha = 2.500000e-01 : f64} : tensor<4xf32> -> tensor<4xf32>
  %r = tensor.hard_sigmoid %x {alpha = 2.500000e-01 : f64} : tensor<4xf32> -> tensor<4xf32>
  func.return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @cast(
func.func @cast(%x: tensor<4xf32>) -> tensor<4xbf16> {
  // CHECK-NEXT: tensor.cast %x {to = "bf16"} : tensor<4xf32> -> tensor<4xbf16>
  %r = tensor.cast %x {to = "bf16"} : tensor<4xf32> -> tensor<4xbf16>
  func.return %r : tensor<4xbf16>
}

// CHECK-LABEL: func.func @select(
func.func @select(%c: tensor<4x1xi1>, %a: tensor<4x4xf32>, %b: tensor<f32>) -> tensor<4x4xf32> {
  // CHECK-NEXT: tensor.select %c, %a, %b : tensor<4x1xi1>, tensor<4x4xf32>, tensor<f32> -> tensor<4x4xf32>
  %r = tensor.select %c, %a, %b : tensor<4x1xi1>, tensor<4x4xf32>, tensor<f32> -> tensor<4x4xf32>
  func.return %r : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @mod_2(
func.func @mod_2(%a: tensor<4xui8>, %b: tensor<4xui8>) -> tensor<4xui8> {
  // CHECK-NEXT: tensor.mod %a, %b : tensor<4xui8>, tensor<4xui8> -> tensor<4xui8>
  %r = tensor.mod %a, %b : tensor<4xui8>, tensor<4xui8> -> tensor<4xui8>
  func.return %r : tensor<4xui8>
}

// CHECK-LABEL: func.func @add_2(
func.func @add_2(%a: tensor<f32>, %b: tensor<8x1x6x1xf32>) -> tensor<8x1x6x1xf32> {
  // CHECK-NEXT: tensor.add %a, %b : tensor<f32>, tensor<8x1x6x1xf32> -> tensor<8x1x6x1xf32>
  %r = tensor.add %a, %b : tensor<f32>, tensor<8x1x6x1xf32> -> tensor<8x1x6x1xf32>
  func.return %r : tensor<8x1x6x1xf32>
}

// CHECK-LABEL: func.func @add_3(
func.func @add_3(%a: tensor<8x1x6x1xbf16>, %b: tensor<7x1x5xbf16>) -> tensor<8x7x6x5xbf16> {
  // CHECK-NEXT: tensor.add %a, %b : tensor<8x1x6x1xbf16>, tensor<7x1x5xbf16> -> tensor<8x7x6x5xbf16>
  %r = tensor.add %a, %b : tensor<8x1x6x1xbf16>, tensor<7x1x5xbf16> -> tensor<8x7x6x5xbf16>
  func.return %r : tensor<8x7x6x5xbf16>
}

// CHECK-LABEL: func.func @equal_2(
func.func @equal_2(%a: tensor<2xi1>, %b: tensor<2xi1>) -> tensor<2xi1> {
  // CHECK-NEXT: tensor.equal %a, %b : tensor<2xi1>, tensor<2xi1> -> tensor<2xi1>
  %r = tensor.equal %a, %b : tensor<2xi1>, tensor<2xi1> -> tensor<2xi1>
  func.return %r : tensor<2xi1>
}

// CHECK-LABEL: func.func @leaky_relu_2(
func.func @leaky_relu_2(%x: tensor<4xf64>) -> tensor<4xf64> {
  // CHECK-NEXT: tensor.leaky_relu %x : tensor<4xf64> -> tensor<4xf64>
  %r = tensor.leaky_relu %x : tensor<4xf64> -> tensor<4xf64>
  func.return %r : tensor<4xf64>
}

// CHECK-LABEL: func.func @elu_2(
func.func @elu_2(%x: tensor<4xf16>) -> tensor<4xf16> {
  // CHECK-NEXT: tensor.elu %x : tensor<4xf16> -> tensor<4xf16>
  %r = tensor.elu %x : tensor<4xf16> -> tensor<4xf16>
  func.return %r : tensor<4xf16>
}

// CHECK-LABEL: func.func @clip_2(
func.func @clip_2(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: tensor.clip %x : tensor<4xf32> -> tensor<4xf32>
  %r = tensor.clip %x : tensor<4xf32> -> tensor<4xf32>
  func.return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @clip_3(
func.func @clip_3(%x: tensor<4xi8>) -> tensor<4xi8> {
  // CHECK-NEXT: tensor.clip %x {max = 6 : i64} : tensor<4xi8> -> tensor<4xi8>
  %r = tensor.clip %x {max = 6 : i64} : tensor<4xi8> -> tensor<4xi8>
  func.return %r : tensor<4xi8>
}

// CHECK-LABEL: func.func @gelu_2(
func.func @gelu_2(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: tensor.gelu %x : tensor<4xf32> -> tensor<4xf32>
  %r = tensor.gelu %x : tensor<4xf32> -> tensor<4xf32>
  func.return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @hard_sigmoid_2(
func.func @hard_sigmoid_2(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: tensor.hard_sigmoid %x : tensor<4xf32> -> tensor<4xf32>
  %r = tensor.hard_sigmoid %x : tensor<4xf32> -> tensor<4xf32>
  func.return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @cast_2(
func.func @cast_2(%x: tensor<4xui64>) -> tensor<4xi1> {
  // CHECK-NEXT: tensor.cast %x {to = "i1"} : tensor<4xui64> -> tensor<4xi1>
  %r = tensor.cast %x {to = "i1"} : tensor<4xui64> -> tensor<4xi1>
  func.return %r : tensor<4xi1>
}
