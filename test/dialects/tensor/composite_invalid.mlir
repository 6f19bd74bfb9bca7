// What softmax, the norms and attention refuse, and why.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{tensor.softmax: axis 2 is out of range for rank 2}}
  %r = tensor.softmax %x {axis = 2 : i64} : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}

// -----

func.func @f(%x: tensor<2x3xi32>) {
  // expected-error @+1 {{tensor.log_softmax: operand has element type i32 but must be a floating-point type}}
  %r = tensor.log_softmax %x : tensor<2x3xi32> -> tensor<2x3xi32>
  func.return
}

// -----

func.func @f(%x: tensor<4x768xf32>, %s: tensor<512xf32>) {
  // expected-error @+1 {{tensor.layer_norm: scale is tensor<512xf32> but the normalized dims of the input are [768]}}
  %r = tensor.layer_norm %x, %s : tensor<4x768xf32>, tensor<512xf32> -> tensor<4x768xf32>
  func.return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %s: tensor<8xf32>, %b: tensor<1xf32>) {
  // expected-error @+1 {{tensor.layer_norm: bias is tensor<1xf32> but the normalized dims of the input are [8]}}
  %r = tensor.layer_norm %x, %s, %b : tensor<4x8xf32>, tensor<8xf32>, tensor<1xf32> -> tensor<4x8xf32>
  func.return
}

// -----

func.func @f(%x: tensor<4x8xbf16>, %s: tensor<8xf32>) {
  // expected-error @+1 {{tensor.layer_norm: input has element type bf16 but scale has f32; cast one of them}}
  %r = tensor.layer_norm %x, %s : tensor<4x8xbf16>, tensor<8xf32> -> tensor<4x8xbf16>
  func.return
}

// -----

func.func @f(%x: tensor<4x2x8xf32>, %s: tensor<8xf32>) {
  // expected-error @+1 {{tensor.rms_norm: scale is tensor<8xf32> but the normalized dims of the input are [2, 8]}}
  %r = tensor.rms_norm %x, %s {axis = 1 : i64} : tensor<4x2x8xf32>, tensor<8xf32> -> tensor<4x2x8xf32>
  func.return
}

// -----

func.func @f(%x: tensor<1x4x8xf32>, %s: tensor<4xf32>, %b: tensor<4xf32>, %m: tensor<8xf32>, %v: tensor<4xf32>) {
  // expected-error @+1 {{tensor.batch_norm: mean is tensor<8xf32> but the input has 4 channels}}
  %r = tensor.batch_norm %x, %s, %b, %m, %v : tensor<1x4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8xf32>, tensor<4xf32> -> tensor<1x4x8xf32>
  func.return
}

// -----

func.func @f(%x: tensor<4xf32>, %s: tensor<4xf32>, %b: tensor<4xf32>, %m: tensor<4xf32>, %v: tensor<4xf32>) {
  // expected-error @+1 {{tensor.batch_norm: input is tensor<4xf32> but needs a batch dim and a channel dim}}
  %r = tensor.batch_norm %x, %s, %b, %m, %v : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  func.return
}

// -----

func.func @f(%x: tensor<1x4x8xf32>, %s: tensor<4xf32>, %b: tensor<4xf32>) {
  // expected-error @+1 {{tensor.group_norm: groups is 3 but must divide 4 channels}}
  %r = tensor.group_norm %x, %s, %b {groups = 3 : i64} : tensor<1x4x8xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<1x4x8xf32>
  func.return
}

// -----

func.func @f(%q: tensor<2x4x8xf32>, %k: tensor<2x5x16xf32>, %v: tensor<2x5x8xf32>) {
  // expected-error @+1 {{tensor.attention: query has 8 features but key has 16}}
  %r = tensor.attention %q, %k, %v : tensor<2x4x8xf32>, tensor<2x5x16xf32>, tensor<2x5x8xf32> -> tensor<2x4x8xf32>
  func.return
}

// -----

func.func @f(%q: tensor<2x4x8xf32>, %k: tensor<2x5x8xf32>, %v: tensor<2x6x8xf32>) {
  // expected-error @+1 {{tensor.attention: key has 5 positions but value has 6}}
  %r = tensor.attention %q, %k, %v : tensor<2x4x8xf32>, tensor<2x5x8xf32>, tensor<2x6x8xf32> -> tensor<2x4x8xf32>
  func.return
}

// -----

func.func @f(%q: tensor<2x4x8xf32>, %k: tensor<3x5x8xf32>, %v: tensor<3x5x8xf32>) {
  // expected-error @+1 {{tensor.attention: query dim 0 has size 2 but key dim 0 has size 3}}
  %r = tensor.attention %q, %k, %v : tensor<2x4x8xf32>, tensor<3x5x8xf32>, tensor<3x5x8xf32> -> tensor<2x4x8xf32>
  func.return
}

// -----

func.func @f(%q: tensor<8xf32>, %k: tensor<5x8xf32>, %v: tensor<5x8xf32>) {
  // expected-error @+1 {{tensor.attention: query is tensor<8xf32> but needs two dims or more}}
  %r = tensor.attention %q, %k, %v : tensor<8xf32>, tensor<5x8xf32>, tensor<5x8xf32> -> tensor<8xf32>
  func.return
}

// -----

func.func @f(%q: tensor<4x8xf32>, %k: tensor<5x8xf32>, %v: tensor<5x8xf32>, %m: tensor<4x4xf32>) {
  // expected-error @+1 {{tensor.attention: scores dim 1 has size 5 but mask dim 1 has size 4}}
  %r = tensor.attention %q, %k, %v, %m : tensor<4x8xf32>, tensor<5x8xf32>, tensor<5x8xf32>, tensor<4x4xf32> -> tensor<4x8xf32>
  func.return
}

// -----

func.func @f(%q: tensor<4x8xf32>, %k: tensor<5x8xf32>, %v: tensor<5x8xf32>, %m: tensor<2x4x5xf32>) {
  // expected-error @+1 {{tensor.attention: mask is tensor<2x4x5xf32> but the scores that it must broadcast to are [4, 5]}}
  %r = tensor.attention %q, %k, %v, %m : tensor<4x8xf32>, tensor<5x8xf32>, tensor<5x8xf32>, tensor<2x4x5xf32> -> tensor<4x8xf32>
  func.return
}

// -----

func.func @f(%q: tensor<4x8xf32>, %k: tensor<5x8xf32>, %v: tensor<5x8xf32>, %m: tensor<4x5xi32>) {
  // expected-error @+1 {{tensor.attention: mask has element type i32 but must be i1 or f32}}
  %r = tensor.attention %q, %k, %v, %m : tensor<4x8xf32>, tensor<5x8xf32>, tensor<5x8xf32>, tensor<4x5xi32> -> tensor<4x8xf32>
  func.return
}
