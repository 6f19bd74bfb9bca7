// A device that is unknown or incomplete is refused with everything that is wrong.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{did you mean 'sn40l'?}}
builtin.module attributes {machine.device = #machine.device<"sn40">} {}

// -----

// A path is not followed.
// expected-error @below {{there is no device '/etc/passwd.toml'}}
builtin.module attributes {machine.device = #machine.device<"/etc/passwd.toml">} {}

// -----

// expected-error @below {{missing grid.columns}}
builtin.module attributes {machine.device = #machine.device<"mine", {clock = 1.0e9, grid = {colums = 4}}>} {}

// -----

// expected-error @+1 {{there is no device 'sn40'}}
builtin.module attributes {machine.device = #machine.device<"small", {base = "sn40", pmu = {bytes = 4096}}>} {}
