// A device is held by the module, all of it; a shipped device may be written by its name alone.
// RUN: headrace-opt %s --split-input-file | filecheck %s
// RUN: headrace-opt %s --split-input-file | headrace-opt --split-input-file | filecheck %s

// CHECK: #machine.device<"plasticine", {clock = 1000000000.0, grid = {pattern = "checkerboard", columns = 16, rows = 8,
// CHECK-SAME: lanes = 16, stages = 6
// CHECK-SAME: {name = "f32", systolic = 1.0, simd = 1.0, emulated_as = "", multiplier = 1.0}
builtin.module attributes {machine.device = #machine.device<"plasticine">} {}

// -----

// A few numbers of a shipped device changed.
// CHECK: #machine.device<"small", {clock = 1600000000.0,
// CHECK-SAME: lanes = 32, stages = 6
// CHECK-SAME: pmu = {bytes = 4096, banks = 32,
builtin.module attributes {machine.device = #machine.device<"small", {base = "sn40l", pmu = {bytes = 4096}}>} {}
