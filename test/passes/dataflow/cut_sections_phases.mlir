// RUN: headrace-opt %s -p 'tile,cut-sections{most=1024}' --split-input-file | filecheck %s
// RUN: headrace-opt %s -p 'tile,cut-sections{by=order}' --split-input-file | filecheck %s --check-prefix=ORDER
// RUN: headrace-opt %s -p 'tile,cut-sections{by=op}' --split-input-file | filecheck %s --check-prefix=OP
// RUN: headrace-opt %s -p 'tile,cut-sections{by=rule}' --split-input-file | filecheck %s --check-prefix=OP
// RUN: headrace-opt %s -p 'tile,cut-sections{by=rule rules="%S/Inputs/two_products.yaml"}' --split-input-file | filecheck %s --check-prefix=RULE
// Unchanged (ORDER, RULE): these ways to cut have no reason to.

// The second product needs the first one whole, so that the units of one would idle while the other works: each gets a
// section and all units, although both fit at once.
// ORDER-LABEL: func.func @transposed(
// ORDER:         dataflow.section "main_0"(
// ORDER:           dataflow.load {{.*}} -> !dataflow.stream<tensor<8x4096xbf16>, [64 on 0 by 64, 8 on 0 by 8]>
// OP-LABEL:    func.func @transposed(
// OP:            dataflow.section "main_0.0"
// OP:            dataflow.section "main_0.1"
// RULE-LABEL:  func.func @transposed(
// RULE:          dataflow.section "main_0"(
// RULE:            dataflow.load {{.*}} -> !dataflow.stream<tensor<8x4096xbf16>, [64 on 0 by 64, 8 on 0 by 8]>
// CHECK-LABEL: func.func @transposed(
// CHECK:         dataflow.section "main_0.0"
// CHECK:           dataflow.stage "matmul_0"
// CHECK-NOT:       dataflow.stage
// CHECK:         dataflow.section "main_0.1"
// CHECK:           dataflow.stage "matmul_1"
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @transposed(%x: tensor<4096x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16> {
    %0 = dataflow.section "main_0"(%x, %w) : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16> {
    ^bb0(%1: tensor<4096x4096xbf16>, %2: tensor<4096x4096xbf16>):
      %3 = dataflow.load %1 at 0 [4096, 1] : tensor<4096x4096xbf16> -> !dataflow.stream<tensor<4096x4096xbf16>>
      %4 = dataflow.buffer [4096, 4096] (%3 at 0 [4096, 1]) to (at 0 [4096, 1]) : (!dataflow.stream<tensor<4096x4096xbf16>>) -> !dataflow.stream<tensor<4096x4096xbf16>>
      %5 = dataflow.load %2 at 0 [4096, 1] : tensor<4096x4096xbf16> -> !dataflow.stream<tensor<4096x4096xbf16>>
      %6, %7 = dataflow.buffer [4096, 4096] (%5 at 0 [4096, 1]) to (at 0 [4096, 1], at 0 [4096, 1]) : (!dataflow.stream<tensor<4096x4096xbf16>>) -> (!dataflow.stream<tensor<4096x4096xbf16>>, !dataflow.stream<tensor<4096x4096xbf16>>)
      %8 = dataflow.stage "matmul_0"(%4, %6) : (!dataflow.stream<tensor<4096x4096xbf16>>, !dataflow.stream<tensor<4096x4096xbf16>>) -> !dataflow.stream<tensor<4096x4096xbf16>> {
      ^bb0(%a: tensor<4096x4096xbf16>, %b: tensor<4096x4096xbf16>):
        %c = tensor.matmul %a, %b : tensor<4096x4096xbf16>, tensor<4096x4096xbf16> -> tensor<4096x4096xbf16>
        dataflow.yield %c : tensor<4096x4096xbf16>
      }
      %9 = dataflow.buffer [4096, 4096] (%8 at 0 [4096, 1]) to (at 0 [1, 4096]) : (!dataflow.stream<tensor<4096x4096xbf16>>) -> !dataflow.stream<tensor<4096x4096xbf16>>
      %10 = dataflow.stage "matmul_1"(%9, %7) : (!dataflow.stream<tensor<4096x4096xbf16>>, !dataflow.stream<tensor<4096x4096xbf16>>) -> !dataflow.stream<tensor<4096x4096xbf16>> {
      ^bb0(%a: tensor<4096x4096xbf16>, %b: tensor<4096x4096xbf16>):
        %c = tensor.matmul %a, %b : tensor<4096x4096xbf16>, tensor<4096x4096xbf16> -> tensor<4096x4096xbf16>
        dataflow.yield %c : tensor<4096x4096xbf16>
      }
      %11 = dataflow.store (%10 at 0 [4096, 1]) : (!dataflow.stream<tensor<4096x4096xbf16>>) -> tensor<4096x4096xbf16>
      dataflow.yield %11 : tensor<4096x4096xbf16>
    }
    func.return %0 : tensor<4096x4096xbf16>
  }
}

// -----

// Read by rows, as it is written: both work at the same time, in one section.
// CHECK-LABEL: func.func @followed(
// CHECK:         dataflow.section "main_0"
// CHECK:           dataflow.stage "matmul_0"
// CHECK:           dataflow.stage "matmul_1"
// CHECK-NOT:     dataflow.section
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
  func.func @followed(%x: tensor<1024x1024xbf16>, %w: tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
    %0 = dataflow.section "main_0"(%x, %w) : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
    ^bb0(%1: tensor<1024x1024xbf16>, %2: tensor<1024x1024xbf16>):
      %3 = dataflow.load %1 at 0 [1024, 1] : tensor<1024x1024xbf16> -> !dataflow.stream<tensor<1024x1024xbf16>>
      %4 = dataflow.buffer [1024, 1024] (%3 at 0 [1024, 1]) to (at 0 [1024, 1]) : (!dataflow.stream<tensor<1024x1024xbf16>>) -> !dataflow.stream<tensor<1024x1024xbf16>>
      %5 = dataflow.load %2 at 0 [1024, 1] : tensor<1024x1024xbf16> -> !dataflow.stream<tensor<1024x1024xbf16>>
      %6, %7 = dataflow.buffer [1024, 1024] (%5 at 0 [1024, 1]) to (at 0 [1024, 1], at 0 [1024, 1]) : (!dataflow.stream<tensor<1024x1024xbf16>>) -> (!dataflow.stream<tensor<1024x1024xbf16>>, !dataflow.stream<tensor<1024x1024xbf16>>)
      %8 = dataflow.stage "matmul_0"(%4, %6) : (!dataflow.stream<tensor<1024x1024xbf16>>, !dataflow.stream<tensor<1024x1024xbf16>>) -> !dataflow.stream<tensor<1024x1024xbf16>> {
      ^bb0(%a: tensor<1024x1024xbf16>, %b: tensor<1024x1024xbf16>):
        %c = tensor.matmul %a, %b : tensor<1024x1024xbf16>, tensor<1024x1024xbf16> -> tensor<1024x1024xbf16>
        dataflow.yield %c : tensor<1024x1024xbf16>
      }
      %9 = dataflow.buffer [1024, 1024] (%8 at 0 [1024, 1]) to (at 0 [1024, 1]) : (!dataflow.stream<tensor<1024x1024xbf16>>) -> !dataflow.stream<tensor<1024x1024xbf16>>
      %10 = dataflow.stage "matmul_1"(%9, %7) : (!dataflow.stream<tensor<1024x1024xbf16>>, !dataflow.stream<tensor<1024x1024xbf16>>) -> !dataflow.stream<tensor<1024x1024xbf16>> {
      ^bb0(%a: tensor<1024x1024xbf16>, %b: tensor<1024x1024xbf16>):
        %c = tensor.matmul %a, %b : tensor<1024x1024xbf16>, tensor<1024x1024xbf16> -> tensor<1024x1024xbf16>
        dataflow.yield %c : tensor<1024x1024xbf16>
      }
      %11 = dataflow.store (%10 at 0 [1024, 1]) : (!dataflow.stream<tensor<1024x1024xbf16>>) -> tensor<1024x1024xbf16>
      dataflow.yield %11 : tensor<1024x1024xbf16>
    }
    func.return %0 : tensor<1024x1024xbf16>
  }
}
