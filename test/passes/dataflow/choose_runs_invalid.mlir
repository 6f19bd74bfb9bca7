// Runs that need what the one before leaves cannot follow each other.
// RUN: not headrace-opt %s -p choose-runs 2>&1 | filecheck %s

// CHECK:      error: several runs cannot be on the chip at a time: each needs the state ('past') that the one before leaves [runs-depend]
// CHECK-NEXT:   why: throughput comes from inputs that do not depend on each other
// CHECK-NEXT:   fix: compile for latency, or make the batch larger; without states, caches are inputs and outputs
builtin.module attributes {machine.device = #machine.device<"sn40l">} {
func.func @main(%past: tensor<4xf32> {tensor.name = "past"}) -> tensor<4xf32> attributes {tensor.result_names = ["present"], tensor.states = [["past", "present"]]} {
  %0 = tensor.exp %past : tensor<4xf32> -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
}
