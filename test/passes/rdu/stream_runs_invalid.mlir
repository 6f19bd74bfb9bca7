// Runs that need what the one before leaves cannot follow each other.
// RUN: not headrace-opt %s -p stream-runs 2>&1 | filecheck %s

// CHECK:      error: stream-runs: 4 runs at a time, but each needs the state that the one before leaves [runs-depend]
// CHECK-NEXT:   fix: compile for latency
builtin.module attributes {machine.device = #machine.device<"sn40l">, dataflow.runs = 4 : i64} {
rdu.program @main states [["past", "present"]] {
  rdu.region @s state tensor<4xf32>
  rdu.port input "past" tensor<4xf32> in @s
  rdu.port output "present" tensor<4xf32> in @s
}
}
