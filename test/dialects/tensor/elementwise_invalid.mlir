// What elementwise ops refuse, and why.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics

func.func @f(%a: tensor<2x3xf32>, %b: tensor<4xf32>) {
  // expected-error @+1 {{tensor.add: lhs dim 1 has size 3 but rhs dim 0 has size 4; broadcasting needs equal sizes or 1}}
  %r = tensor.add %a, %b : tensor<2x3xf32>, tensor<4xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%a: tensor<3xf32>, %b: tensor<3xf16>) {
  // expected-error @+1 {{tensor.sub: lhs has element type f32 but rhs has f16; cast one of them}}
  %r = tensor.sub %a, %b : tensor<3xf32>, tensor<3xf16> -> tensor<3xf32>
  func.return
}

// -----

func.func @f(%a: tensor<3xi1>, %b: tensor<3xi1>) {
  // expected-error @+1 {{tensor.mul: lhs has element type i1 but must be a number type, not i1}}
  %r = tensor.mul %a, %b : tensor<3xi1>, tensor<3xi1> -> tensor<3xi1>
  func.return
}

// -----

func.func @f(%a: tensor<2x1xf32>, %b: tensor<3xf32>) {
  // expected-error @+1 {{tensor.add: result type is tensor<2x1xf32> but operands and attributes give tensor<2x3xf32>}}
  %r = tensor.add %a, %b : tensor<2x1xf32>, tensor<3xf32> -> tensor<2x1xf32>
  func.return
}

// -----

func.func @f(%a: tensor<3xf32>, %b: tensor<3xf32>) {
  // expected-error @+1 {{tensor.less: result type is tensor<3xf32> but operands and attributes give tensor<3xi1>}}
  %r = tensor.less %a, %b : tensor<3xf32>, tensor<3xf32> -> tensor<3xf32>
  func.return
}

// -----

func.func @f(%a: tensor<3xi1>, %b: tensor<3xi1>) {
  // expected-error @+1 {{must be a number type, not i1}}
  %r = tensor.greater %a, %b : tensor<3xi1>, tensor<3xi1> -> tensor<3xi1>
  func.return
}

// -----

func.func @f(%a: tensor<3xf32>, %b: tensor<3xf32>) {
  // expected-error @+1 {{tensor.and: lhs has element type f32 but must be i1 or an integer type}}
  %r = tensor.and %a, %b : tensor<3xf32>, tensor<3xf32> -> tensor<3xf32>
  func.return
}

// -----

func.func @f(%a: tensor<3xi32>, %b: tensor<3xi32>) {
  // expected-error @+1 {{tensor.atan2: lhs has element type i32 but must be a floating-point type (f64, f32, f16, bf16)}}
  %r = tensor.atan2 %a, %b : tensor<3xi32>, tensor<3xi32> -> tensor<3xi32>
  func.return
}

// -----

func.func @f(%a: tensor<3xi32>) {
  // expected-error @+1 {{tensor.exp: operand has element type i32 but must be a floating-point type}}
  %r = tensor.exp %a : tensor<3xi32> -> tensor<3xi32>
  func.return
}

// -----

func.func @f(%a: tensor<3xui8>) {
  // expected-error @+1 {{tensor.neg: operand has element type ui8 but must be a signed number type}}
  %r = tensor.neg %a : tensor<3xui8> -> tensor<3xui8>
  func.return
}

// -----

func.func @f(%a: tensor<3xi1>) {
  // expected-error @+1 {{tensor.relu: operand has element type i1 but must be a number type, not i1}}
  %r = tensor.relu %a : tensor<3xi1> -> tensor<3xi1>
  func.return
}

// -----

func.func @f(%a: tensor<3xf32>) {
  // expected-error @+1 {{tensor.not: operand has element type f32 but must be i1 or an integer type}}
  %r = tensor.not %a : tensor<3xf32> -> tensor<3xf32>
  func.return
}

// -----

func.func @f(%a: tensor<3xi32>) {
  // expected-error @+1 {{tensor.is_nan: operand has element type i32}}
  %r = tensor.is_nan %a : tensor<3xi32> -> tensor<3xi1>
  func.return
}

// -----

func.func @f(%a: tensor<3xf32>) {
  // expected-error @+1 {{tensor.tanh: result type is tensor<4xf32> but operands and attributes give tensor<3xf32>}}
  %r = tensor.tanh %a : tensor<3xf32> -> tensor<4xf32>
  func.return
}

// -----

func.func @f(%a: tensor<3xf32>) {
  // expected-error @+1 {{tensor.gelu: approximate is "erf" but must be "none" or "tanh"}}
  %r = tensor.gelu %a {approximate = "erf"} : tensor<3xf32> -> tensor<3xf32>
  func.return
}

// -----

func.func @f(%a: tensor<3xf32>) {
  // expected-error @+1 {{tensor.clip: min 2.0 is above max 1.0}}
  %r = tensor.clip %a {min = 2.0 : f64, max = 1.0 : f64} : tensor<3xf32> -> tensor<3xf32>
  func.return
}

// -----

func.func @f(%a: tensor<3xi32>) {
  // expected-error @+1 {{tensor.clip: min is 0.5 but the operand has element type i32; write an integer}}
  %r = tensor.clip %a {min = 0.5 : f64} : tensor<3xi32> -> tensor<3xi32>
  func.return
}

// -----

func.func @f(%a: tensor<3xui8>) {
  // expected-error @+1 {{tensor.clip: max is 300, outside the range [0, 255] of ui8}}
  %r = tensor.clip %a {max = 300 : i64} : tensor<3xui8> -> tensor<3xui8>
  func.return
}

// -----

func.func @f(%a: tensor<3xf32>) {
  // expected-error @+1 {{tensor.cast: to is "f8" but must be one of f64, f32}}
  %r = tensor.cast %a {to = "f8"} : tensor<3xf32> -> tensor<3xf32>
  func.return
}

// -----

func.func @f(%a: tensor<3xf32>) {
  // expected-error @+1 {{tensor.cast: result type is tensor<3xbf16> but operands and attributes give tensor<3xf16>}}
  %r = tensor.cast %a {to = "f16"} : tensor<3xf32> -> tensor<3xbf16>
  func.return
}

// -----

func.func @f(%a: tensor<3xf32>, %b: tensor<3xf32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{tensor.select: condition has element type f32 but must be i1}}
  %r = tensor.select %a, %b, %c : tensor<3xf32>, tensor<3xf32>, tensor<3xf32> -> tensor<3xf32>
  func.return
}

// -----

func.func @f(%a: tensor<3xi1>, %b: tensor<3xf32>, %c: tensor<3xi32>) {
  // expected-error @+1 {{tensor.select: on_true has element type f32 but on_false has i32}}
  %r = tensor.select %a, %b, %c : tensor<3xi1>, tensor<3xf32>, tensor<3xi32> -> tensor<3xf32>
  func.return
}

// -----

func.func @f(%a: tensor<2xi1>, %b: tensor<2xf32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{tensor.select: condition dim 0 has size 2 but on_false dim 0 has size 3}}
  %r = tensor.select %a, %b, %c : tensor<2xi1>, tensor<2xf32>, tensor<3xf32> -> tensor<2xf32>
  func.return
}

// -----

func.func @f(%a: tensor<?xf32>, %b: tensor<3xf32>) {
  // expected-error @+1 {{shapes are static in Headrace, found tensor<?xf32>}}
  %r = tensor.add %a, %b : tensor<?xf32>, tensor<3xf32> -> tensor<3xf32>
  func.return
}

// -----

func.func @f(%a: tensor<3xi4>, %b: tensor<3xi4>) {
  // expected-error @+1 {{unsupported element type i4}}
  %r = tensor.add %a, %b : tensor<3xi4>, tensor<3xi4> -> tensor<3xi4>
  func.return
}
