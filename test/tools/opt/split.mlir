// Each part is a program of its own, and an error in one does not stop the next.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics | filecheck %s
// RUN: not headrace-opt %s --split-input-file 2>&1 | filecheck %s --check-prefix=ERROR

// CHECK: func.func @first
func.func @first(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}

// -----

func.func @second(%x: tensor<4xf32>) -> tensor<4xf32> {
  // ERROR: split.mlir:15:3: error: 'func.return'
  // expected-error @+1 {{Expected arguments to have the same types}}
  func.return
}

// -----

// CHECK: func.func @third
func.func @third() {
  func.return
}
