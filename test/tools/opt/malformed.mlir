// Text that does not parse is refused with its line and column, and no traceback.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics
// RUN: not headrace-opt %s --split-input-file 2>&1 | filecheck %s
// CHECK-NOT: Traceback

// CHECK: malformed.mlir:10:3: error: Operation func.nonsense is not registered
func.func @unknown_op(%x: tensor<4xf32>) {
  // An unknown op.
  // expected-error @+1 {{Operation func.nonsense is not registered}}
  func.nonsense %x
}

// -----

// CHECK: malformed.mlir:18:13: error: values used but not defined: [%y]
func.func @undefined() {
  // expected-error @+1 {{values used but not defined: [%y]}}
  "test.op"(%y) : (tensor<4xf32>) -> ()
  func.return
}

// -----

// CHECK: malformed.mlir:26:37: error: Expected '>'
// expected-error @below {{Expected '>'}}
func.func @bad_type(%x: tensor<4xf32) {
  func.return
}

// -----

// CHECK: error: 'func.func': operand 0 of 'test.op' is used before 'test.op' defines it
func.func @order(%x: tensor<4xf32>) {
  // expected-error @above {{is used before}}
  "test.op"(%1) : (tensor<4xf32>) -> ()
  %1 = "test.op"() : () -> tensor<4xf32>
  func.return
}
