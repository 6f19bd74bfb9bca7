// A row that was just written is put into the old tensor for what reads it, so that one section writes and reads.
// RUN: headrace-opt %s -p 'convert-tensor-to-dataflow{forward=1}' --device sn40l --split-input-file | filecheck %s
// RUN: headrace-opt %s -p convert-tensor-to-dataflow --device sn40l --split-input-file | filecheck %s --check-prefix=STORED

// CHECK:       tensor.recipe @"rows|8|i32" {
// CHECK-NEXT:    tensor.iota
// CHECK:       dataflow.section "main_0"
// CHECK:         dataflow.scatter
// CHECK:         tensor.equal
// CHECK:         tensor.select {{.*}} tensor<8x1xi1>, tensor<1x4xf32>, tensor<8x4xf32> -> tensor<8x4xf32>
// CHECK:         tensor.exp
// CHECK-NOT:   "main_1"
// CHECK:       func.return
// STORED:      dataflow.section "main_0"
// STORED:        dataflow.scatter
// STORED:      dataflow.section "main_1"
// STORED:        tensor.exp
func.func @main(%past: tensor<8x4xf32> {tensor.name = "past"}, %at: tensor<1x1xi32> {tensor.name = "at"}, %row: tensor<1x4xf32>)
    -> (tensor<8x4xf32>, tensor<8x4xf32>)
    attributes {tensor.result_names = ["present", "y"], tensor.states = [["past", "present"]]} {
  %0 = tensor.scatter_nd %past, %at, %row : tensor<8x4xf32>, tensor<1x1xi32>, tensor<1x4xf32> -> tensor<8x4xf32>
  %1 = tensor.exp %0 : tensor<8x4xf32> -> tensor<8x4xf32>
  func.return %0, %1 : tensor<8x4xf32>, tensor<8x4xf32>
}

// -----

// Two rows, or a tensor that is not the program's own: all is read from memory.
// CHECK:       dataflow.section "main_0"
// CHECK:         dataflow.scatter
// CHECK-NOT:     tensor.select
// CHECK:       dataflow.section "main_1"
// CHECK:         tensor.exp
// STORED:      dataflow.section "main_1"
func.func @main(%past: tensor<8x4xf32> {tensor.name = "past"}, %at: tensor<2x1xi32> {tensor.name = "at"}, %rows: tensor<2x4xf32>)
    -> (tensor<8x4xf32>, tensor<8x4xf32>)
    attributes {tensor.result_names = ["present", "y"], tensor.states = [["past", "present"]]} {
  %0 = tensor.scatter_nd %past, %at, %rows : tensor<8x4xf32>, tensor<2x1xi32>, tensor<2x4xf32> -> tensor<8x4xf32>
  %1 = tensor.exp %0 : tensor<8x4xf32> -> tensor<8x4xf32>
  func.return %0, %1 : tensor<8x4xf32>, tensor<8x4xf32>
}

// -----

// Somebody reads the old rows afterwards, so the row is written into a copy.
// CHECK:       dataflow.section
// CHECK-NOT:     tensor.select
// CHECK:         tensor.neg
// STORED:      tensor.neg
func.func @main(%past: tensor<8x4xf32> {tensor.name = "past"}, %at: tensor<1x1xi32> {tensor.name = "at"}, %row: tensor<1x4xf32>)
    -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>)
    attributes {tensor.result_names = ["present", "y", "z"], tensor.states = [["past", "present"]]} {
  %0 = tensor.scatter_nd %past, %at, %row : tensor<8x4xf32>, tensor<1x1xi32>, tensor<1x4xf32> -> tensor<8x4xf32>
  %1 = tensor.exp %0 : tensor<8x4xf32> -> tensor<8x4xf32>
  %2 = tensor.neg %past : tensor<8x4xf32> -> tensor<8x4xf32>
  func.return %0, %1, %2 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>
}
