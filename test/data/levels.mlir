// Programs that every level has to run alike; see test_levels.py.

// Results of several types and shapes from one chain
func.func @main(%x: tensor<6x8xf32>) -> (tensor<6x1xi64>, tensor<6x8xf32>, tensor<6x1xf32>) {
  %0 = tensor.exp %x : tensor<6x8xf32> -> tensor<6x8xf32>
  %1 = tensor.argmax %0 {axis = 1 : i64, keepdims = true} : tensor<6x8xf32> -> tensor<6x1xi64>
  %2 = tensor.cast %1 {to = "f32"} : tensor<6x1xi64> -> tensor<6x1xf32>
  return %1, %0, %2 : tensor<6x1xi64>, tensor<6x8xf32>, tensor<6x1xf32>
}

// -----

// Booleans in streams, combined and moved
func.func @main(%x: tensor<6x8xf32>, %b: tensor<6x8xi1>) -> (tensor<6x8xi1>, tensor<8x6xi1>) {
  %0 = tensor.greater %x, %x : tensor<6x8xf32>, tensor<6x8xf32> -> tensor<6x8xi1>
  %1 = tensor.or %0, %b : tensor<6x8xi1>, tensor<6x8xi1> -> tensor<6x8xi1>
  %n = tensor.not %b : tensor<6x8xi1> -> tensor<6x8xi1>
  %t = tensor.transpose %n {perm = array<i64: 1, 0>} : tensor<6x8xi1> -> tensor<8x6xi1>
  return %1, %t : tensor<6x8xi1>, tensor<8x6xi1>
}

// -----

// A shared function writes rows of an input and of a weight
func.func private @layer(%x: tensor<4x6xf32>, %i: tensor<2x1xi64>, %r: tensor<2x6xf32>) -> tensor<4x6xf32> {
  %0 = tensor.scatter_nd %x, %i, %r : tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32> -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}
func.func @main(%x: tensor<4x6xf32>, %i: tensor<2x1xi64>, %r: tensor<2x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) {
  %w = tensor.weight "w" : tensor<4x6xf32>
  %0 = func.call @layer(%x, %i, %r) : (tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32>) -> tensor<4x6xf32>
  %1 = func.call @layer(%w, %i, %r) : (tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32>) -> tensor<4x6xf32>
  %n = tensor.neg %x : tensor<4x6xf32> -> tensor<4x6xf32>
  return %0, %1, %n : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}

// -----

// A shared function that returns its argument and a part of a value; parts of calls side by side
func.func private @layer(%x: tensor<4x6xf32>, %w: tensor<6x6xf32>) -> (tensor<4x6xf32>, tensor<4x3xf32>, tensor<4x6xf32>) {
  %0 = tensor.matmul %x, %w : tensor<4x6xf32>, tensor<6x6xf32> -> tensor<4x6xf32>
  %s = tensor.slice %0 {starts = array<i64: 0, 0>, stops = array<i64: 4, 3>, steps = array<i64: 1, 1>} : tensor<4x6xf32> -> tensor<4x3xf32>
  return %0, %s, %x : tensor<4x6xf32>, tensor<4x3xf32>, tensor<4x6xf32>
}
func.func @main(%x: tensor<4x6xf32>) -> (tensor<8x6xf32>, tensor<4x6xf32>, tensor<4x3xf32>, tensor<4x6xf32>) {
  %w = tensor.weight "w" : tensor<6x6xf32>
  %v = tensor.weight "v" : tensor<6x6xf32>
  %0, %1, %2 = func.call @layer(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> (tensor<4x6xf32>, tensor<4x3xf32>, tensor<4x6xf32>)
  %3, %4, %5 = func.call @layer(%0, %v) : (tensor<4x6xf32>, tensor<6x6xf32>) -> (tensor<4x6xf32>, tensor<4x3xf32>, tensor<4x6xf32>)
  %c = tensor.concat %0, %3 {axis = 0 : i64} : tensor<4x6xf32>, tensor<4x6xf32> -> tensor<8x6xf32>
  return %c, %3, %4, %5 : tensor<8x6xf32>, tensor<4x6xf32>, tensor<4x3xf32>, tensor<4x6xf32>
}

// -----

// A value that a shared function returns twice, beside a weight, and as part of a concatenation
func.func private @layer(%x: tensor<4x6xf32>, %w: tensor<6x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<6x6xf32>, tensor<8x6xf32>, tensor<24xf32>) {
  %0 = tensor.matmul %x, %w : tensor<4x6xf32>, tensor<6x6xf32> -> tensor<4x6xf32>
  %1 = tensor.exp %x : tensor<4x6xf32> -> tensor<4x6xf32>
  %c = tensor.concat %0, %1 {axis = 0 : i64} : tensor<4x6xf32>, tensor<4x6xf32> -> tensor<8x6xf32>
  %r = tensor.reshape %0 {shape = array<i64: 24>} : tensor<4x6xf32> -> tensor<24xf32>
  return %0, %0, %w, %c, %r : tensor<4x6xf32>, tensor<4x6xf32>, tensor<6x6xf32>, tensor<8x6xf32>, tensor<24xf32>
}
func.func @main(%x: tensor<4x6xf32>) -> (tensor<8x6xf32>, tensor<18x6xf32>, tensor<4x6xf32>, tensor<8x6xf32>) {
  %w = tensor.weight "w" : tensor<6x6xf32>
  %0, %1, %2, %3, %4 = func.call @layer(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<6x6xf32>, tensor<8x6xf32>, tensor<24xf32>)
  %5, %6, %7, %8, %9 = func.call @layer(%0, %2) : (tensor<4x6xf32>, tensor<6x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<6x6xf32>, tensor<8x6xf32>, tensor<24xf32>)
  %c = tensor.concat %6, %5 {axis = 0 : i64} : tensor<4x6xf32>, tensor<4x6xf32> -> tensor<8x6xf32>
  %d = tensor.concat %7, %8, %1 {axis = 0 : i64} : tensor<6x6xf32>, tensor<8x6xf32>, tensor<4x6xf32> -> tensor<18x6xf32>
  %e = tensor.reshape %9 {shape = array<i64: 4, 6>} : tensor<24xf32> -> tensor<4x6xf32>
  return %c, %d, %e, %3 : tensor<8x6xf32>, tensor<18x6xf32>, tensor<4x6xf32>, tensor<8x6xf32>
}

// -----

// A value beside itself
func.func @main(%x: tensor<4x5xf32>) -> (tensor<8x5xf32>, tensor<4x10xf32>, tensor<8x5xf32>) {
  %n = tensor.neg %x : tensor<4x5xf32> -> tensor<4x5xf32>
  %0 = tensor.concat %n, %n {axis = 0 : i64} : tensor<4x5xf32>, tensor<4x5xf32> -> tensor<8x5xf32>
  %1 = tensor.concat %n, %n {axis = 1 : i64} : tensor<4x5xf32>, tensor<4x5xf32> -> tensor<4x10xf32>
  %2 = tensor.concat %x, %x {axis = 0 : i64} : tensor<4x5xf32>, tensor<4x5xf32> -> tensor<8x5xf32>
  return %0, %1, %2 : tensor<8x5xf32>, tensor<4x10xf32>, tensor<8x5xf32>
}

// -----

// Two concatenations of the same values
func.func @main(%x: tensor<4x5xf32>) -> (tensor<8x5xf32>, tensor<8x5xf32>, tensor<4x5xf32>, tensor<2x5xf32>) {
  %n = tensor.neg %x : tensor<4x5xf32> -> tensor<4x5xf32>
  %e = tensor.exp %x : tensor<4x5xf32> -> tensor<4x5xf32>
  %0 = tensor.concat %n, %e {axis = 0 : i64} : tensor<4x5xf32>, tensor<4x5xf32> -> tensor<8x5xf32>
  %1 = tensor.concat %e, %n {axis = 0 : i64} : tensor<4x5xf32>, tensor<4x5xf32> -> tensor<8x5xf32>
  %s = tensor.slice %0 {starts = array<i64: 3, 0>, stops = array<i64: 5, 5>, steps = array<i64: 1, 1>} : tensor<8x5xf32> -> tensor<2x5xf32>
  return %0, %1, %n, %s : tensor<8x5xf32>, tensor<8x5xf32>, tensor<4x5xf32>, tensor<2x5xf32>
}

// -----

// Ops on constants alone
func.func @main(%x: tensor<3xf32>) -> (tensor<f32>, tensor<3xf32>, tensor<2xf32>) {
  %s = tensor.constant dense<5.0> : tensor<f32>
  %1 = tensor.add %s, %s : tensor<f32>, tensor<f32> -> tensor<f32>
  %b = tensor.broadcast %s {shape = array<i64: 3>} : tensor<f32> -> tensor<3xf32>
  %r = tensor.reshape %s {shape = array<i64: 1>} : tensor<f32> -> tensor<1xf32>
  %c = tensor.concat %r, %r {axis = 0 : i64} : tensor<1xf32>, tensor<1xf32> -> tensor<2xf32>
  return %1, %b, %c : tensor<f32>, tensor<3xf32>, tensor<2xf32>
}

// -----

// A value and its transpose, read by one op
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = tensor.neg %x : tensor<8x8xf32> -> tensor<8x8xf32>
  %t = tensor.transpose %0 {perm = array<i64: 1, 0>} : tensor<8x8xf32> -> tensor<8x8xf32>
  %1 = tensor.add %0, %t : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}

// -----

// Rows at constant, single and many positions, along both dims
func.func @main(%x: tensor<4x6xf32>, %i: tensor<i64>, %j: tensor<2x3xi64>) -> (tensor<6xf32>, tensor<6xf32>, tensor<2x3x6xf32>, tensor<4x2x3xf32>) {
  %c = tensor.constant dense<1> : tensor<i64>
  %0 = tensor.gather %x, %c {axis = 0 : i64} : tensor<4x6xf32>, tensor<i64> -> tensor<6xf32>
  %1 = tensor.gather %x, %i {axis = 0 : i64} : tensor<4x6xf32>, tensor<i64> -> tensor<6xf32>
  %2 = tensor.gather %x, %j {axis = 0 : i64} : tensor<4x6xf32>, tensor<2x3xi64> -> tensor<2x3x6xf32>
  %3 = tensor.gather %x, %j {axis = 1 : i64} : tensor<4x6xf32>, tensor<2x3xi64> -> tensor<4x2x3xf32>
  return %0, %1, %2, %3 : tensor<6xf32>, tensor<6xf32>, tensor<2x3x6xf32>, tensor<4x2x3xf32>
}

// -----

// Grouped and depthwise convolutions
func.func @main(%x: tensor<2x6x5x5xf32>) -> (tensor<2x4x5x5xf32>, tensor<2x6x3x3xf32>) {
  %w = tensor.weight "w" : tensor<4x3x3x3xf32>
  %v = tensor.weight "v" : tensor<6x1x3x3xf32>
  %0 = tensor.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, groups = 2 : i64} : tensor<2x6x5x5xf32>, tensor<4x3x3x3xf32> -> tensor<2x4x5x5xf32>
  %1 = tensor.conv %x, %v {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, groups = 6 : i64} : tensor<2x6x5x5xf32>, tensor<6x1x3x3xf32> -> tensor<2x6x3x3xf32>
  return %0, %1 : tensor<2x4x5x5xf32>, tensor<2x6x3x3xf32>
}

// -----

// Windows with padding
func.func @main(%x: tensor<1x2x7x7xf32>) -> (tensor<1x2x4x4xf32>, tensor<1x2x3x3xf32>) {
  %0 = tensor.max_pool %x {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>} : tensor<1x2x7x7xf32> -> tensor<1x2x4x4xf32>
  %1 = tensor.avg_pool %x {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>} : tensor<1x2x7x7xf32> -> tensor<1x2x3x3xf32>
  return %0, %1 : tensor<1x2x4x4xf32>, tensor<1x2x3x3xf32>
}

// -----

// Slices that go backwards, of an input and of a value
func.func @main(%x: tensor<4x5xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>) {
  %0 = tensor.slice %x {starts = array<i64: 3, 4>, stops = array<i64: -1, -1>, steps = array<i64: -1, -2>} : tensor<4x5xf32> -> tensor<4x3xf32>
  %1 = tensor.exp %0 : tensor<4x3xf32> -> tensor<4x3xf32>
  %2 = tensor.exp %x : tensor<4x5xf32> -> tensor<4x5xf32>
  %3 = tensor.slice %2 {starts = array<i64: 3, 4>, stops = array<i64: -1, -1>, steps = array<i64: -1, -2>} : tensor<4x5xf32> -> tensor<4x3xf32>
  return %0, %1, %3 : tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>
}

// -----

// Nothing is computed
func.func @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<4xf32>) {
  %w = tensor.weight "w" : tensor<4xf32>
  return %x, %w : tensor<2x3xf32>, tensor<4xf32>
}

// -----

// No inputs
func.func @main() -> (tensor<f32>, tensor<2xi64>) {
  %s = tensor.constant dense<5.0> : tensor<f32>
  %i = tensor.iota {shape = array<i64: 2>, dtype = "i64", axis = 0 : i64} : tensor<2xi64>
  return %s, %i : tensor<f32>, tensor<2xi64>
}

// -----

// Inputs, weights and constants as results, some twice
func.func @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<4xf32>, tensor<3xf32>, tensor<f32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %w = tensor.weight "w" : tensor<4xf32>
  %c = tensor.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %s = tensor.constant dense<5.0> : tensor<f32>
  %0 = tensor.neg %x : tensor<2x3xf32> -> tensor<2x3xf32>
  return %x, %w, %c, %s, %0, %0, %x : tensor<2x3xf32>, tensor<4xf32>, tensor<3xf32>, tensor<f32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// -----

// Padding of integers and booleans
func.func @main(%x: tensor<2x3xi64>, %b: tensor<3xi1>) -> (tensor<4x3xi64>, tensor<5xi1>) {
  %0 = tensor.pad %x {lo = array<i64: 1, 0>, hi = array<i64: 1, 0>, value = 7.0 : f64} : tensor<2x3xi64> -> tensor<4x3xi64>
  %1 = tensor.pad %b {lo = array<i64: 1>, hi = array<i64: 1>, value = 1.0 : f64} : tensor<3xi1> -> tensor<5xi1>
  return %0, %1 : tensor<4x3xi64>, tensor<5xi1>
}

// -----

// Mirrored and repeated margins
func.func @main(%x: tensor<4x5xf32>) -> (tensor<6x7xf32>, tensor<6x7xf32>) {
  %0 = tensor.pad %x {lo = array<i64: 1, 1>, hi = array<i64: 1, 1>, mode = "reflect"} : tensor<4x5xf32> -> tensor<6x7xf32>
  %1 = tensor.pad %x {lo = array<i64: 1, 1>, hi = array<i64: 1, 1>, mode = "edge"} : tensor<4x5xf32> -> tensor<6x7xf32>
  return %0, %1 : tensor<6x7xf32>, tensor<6x7xf32>
}

// -----

// Padding of padding, beside padding
func.func @main(%x: tensor<2x3xf32>) -> (tensor<12x3xf32>, tensor<8x3xf32>) {
  %0 = tensor.pad %x {lo = array<i64: 1, 0>, hi = array<i64: 1, 0>, value = 2.5 : f64} : tensor<2x3xf32> -> tensor<4x3xf32>
  %1 = tensor.pad %0 {lo = array<i64: 2, 0>, hi = array<i64: 2, 0>, value = -1.5 : f64} : tensor<4x3xf32> -> tensor<8x3xf32>
  %c = tensor.concat %0, %1 {axis = 0 : i64} : tensor<4x3xf32>, tensor<8x3xf32> -> tensor<12x3xf32>
  %e = tensor.exp %1 : tensor<8x3xf32> -> tensor<8x3xf32>
  return %c, %e : tensor<12x3xf32>, tensor<8x3xf32>
}

// -----

// Padding with a number, as a result, read, and moved
func.func @main(%x: tensor<2x3xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<6x4xf32>) {
  %0 = tensor.pad %x {lo = array<i64: 1, 2>, hi = array<i64: 1, 1>, value = 2.5 : f64} : tensor<2x3xf32> -> tensor<4x6xf32>
  %n = tensor.neg %0 : tensor<4x6xf32> -> tensor<4x6xf32>
  %t = tensor.transpose %0 {perm = array<i64: 1, 0>} : tensor<4x6xf32> -> tensor<6x4xf32>
  %e = tensor.exp %t : tensor<6x4xf32> -> tensor<6x4xf32>
  return %0, %n, %e : tensor<4x6xf32>, tensor<4x6xf32>, tensor<6x4xf32>
}

// -----

// Views of an input as results
func.func @main(%x: tensor<4x6xf32>) -> (tensor<6x4xf32>, tensor<24xf32>, tensor<2x6xf32>, tensor<4x2xf32>, tensor<2x4x6xf32>) {
  %t = tensor.transpose %x {perm = array<i64: 1, 0>} : tensor<4x6xf32> -> tensor<6x4xf32>
  %r = tensor.reshape %x {shape = array<i64: 24>} : tensor<4x6xf32> -> tensor<24xf32>
  %s = tensor.slice %x {starts = array<i64: 1, 0>, stops = array<i64: 3, 6>, steps = array<i64: 1, 1>} : tensor<4x6xf32> -> tensor<2x6xf32>
  %c = tensor.slice %x {starts = array<i64: 0, 1>, stops = array<i64: 4, 3>, steps = array<i64: 1, 1>} : tensor<4x6xf32> -> tensor<4x2xf32>
  %b = tensor.broadcast %x {shape = array<i64: 2, 4, 6>} : tensor<4x6xf32> -> tensor<2x4x6xf32>
  return %t, %r, %s, %c, %b : tensor<6x4xf32>, tensor<24xf32>, tensor<2x6xf32>, tensor<4x2xf32>, tensor<2x4x6xf32>
}

// -----

// A value that one op reads twice
func.func @main(%x: tensor<6x8xf32>) -> tensor<6x8xf32> {
  %0 = tensor.neg %x : tensor<6x8xf32> -> tensor<6x8xf32>
  %1 = tensor.mul %0, %0 : tensor<6x8xf32>, tensor<6x8xf32> -> tensor<6x8xf32>
  return %1 : tensor<6x8xf32>
}

// -----

// A sum of everything, spread out again
func.func @main(%x: tensor<6x8xf32>) -> (tensor<f32>, tensor<6x8xf32>) {
  %0 = tensor.reduce_sum %x {axes = array<i64: 0, 1>, keepdims = false} : tensor<6x8xf32> -> tensor<f32>
  %1 = tensor.sqrt %0 : tensor<f32> -> tensor<f32>
  %2 = tensor.div %x, %1 : tensor<6x8xf32>, tensor<f32> -> tensor<6x8xf32>
  return %1, %2 : tensor<f32>, tensor<6x8xf32>
}

// -----

// Rows of an input replaced, then read
func.func @main(%x: tensor<4x6xf32>, %i: tensor<2x1xi64>, %r: tensor<2x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = tensor.scatter_nd %x, %i, %r : tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32> -> tensor<4x6xf32>
  %1 = tensor.exp %0 : tensor<4x6xf32> -> tensor<4x6xf32>
  return %0, %1 : tensor<4x6xf32>, tensor<4x6xf32>
}

// -----

// Scatters that add up
func.func @main(%x: tensor<4x6xf32>, %i: tensor<2x1xi64>, %r: tensor<2x6xf32>, %e: tensor<4x6xi64>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = tensor.scatter_nd %x, %i, %r {reduction = "add"} : tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32> -> tensor<4x6xf32>
  %1 = tensor.scatter_elements %x, %e, %x {axis = 0 : i64, reduction = "add"} : tensor<4x6xf32>, tensor<4x6xi64>, tensor<4x6xf32> -> tensor<4x6xf32>
  return %0, %1 : tensor<4x6xf32>, tensor<4x6xf32>
}

// -----

// Rows of an input replaced after it is read
func.func @main(%x: tensor<4x6xf32>, %i: tensor<2x1xi64>, %r: tensor<2x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %1 = tensor.exp %x : tensor<4x6xf32> -> tensor<4x6xf32>
  %0 = tensor.scatter_nd %x, %i, %r : tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32> -> tensor<4x6xf32>
  return %0, %1 : tensor<4x6xf32>, tensor<4x6xf32>
}

// -----

// Rows of an input replaced by what is made of it
func.func @main(%x: tensor<4x6xf32>, %i: tensor<2x1xi64>) -> (tensor<4x6xf32>) {
  %t = tensor.slice %x {starts = array<i64: 1, 0>, stops = array<i64: 3, 6>, steps = array<i64: 1, 1>} : tensor<4x6xf32> -> tensor<2x6xf32>
  %1 = tensor.exp %t : tensor<2x6xf32> -> tensor<2x6xf32>
  %0 = tensor.scatter_nd %x, %i, %1 : tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32> -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

// Rows of an input replaced, while the old ones are read and returned
func.func @main(%x: tensor<4x6xf32>, %i: tensor<2x1xi64>, %r: tensor<2x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = tensor.scatter_nd %x, %i, %r : tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32> -> tensor<4x6xf32>
  %1 = tensor.exp %x : tensor<4x6xf32> -> tensor<4x6xf32>
  return %0, %1, %x : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}

// -----

// Rows of a weight replaced
func.func @main(%i: tensor<2x1xi64>, %r: tensor<2x6xf32>) -> (tensor<4x6xf32>) {
  %x = tensor.weight "w" : tensor<4x6xf32>
  %0 = tensor.scatter_nd %x, %i, %r : tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32> -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

// Operands that broadcast along different dims
func.func @main(%x: tensor<4x1x6xf32>, %y: tensor<1x5x1xf32>, %z: tensor<1xf32>) -> (tensor<4x5x6xf32>, tensor<4x5x6xf32>) {
  %0 = tensor.add %x, %y : tensor<4x1x6xf32>, tensor<1x5x1xf32> -> tensor<4x5x6xf32>
  %1 = tensor.mul %0, %z : tensor<4x5x6xf32>, tensor<1xf32> -> tensor<4x5x6xf32>
  %2 = tensor.mul %x, %1 : tensor<4x1x6xf32>, tensor<4x5x6xf32> -> tensor<4x5x6xf32>
  return %1, %2 : tensor<4x5x6xf32>, tensor<4x5x6xf32>
}

// -----

// Softmax along outer and middle dims
func.func @main(%x: tensor<4x5x6xf32>) -> (tensor<4x5x6xf32>, tensor<4x5x6xf32>) {
  %0 = tensor.softmax %x {axis = 0 : i64} : tensor<4x5x6xf32> -> tensor<4x5x6xf32>
  %1 = tensor.log_softmax %x {axis = 1 : i64} : tensor<4x5x6xf32> -> tensor<4x5x6xf32>
  return %0, %1 : tensor<4x5x6xf32>, tensor<4x5x6xf32>
}

// -----

// A shared function writes two states and reads one
func.func private @layer(%x: tensor<4x6xf32>, %i: tensor<2x1xi64>, %r: tensor<2x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = tensor.scatter_nd %x, %i, %r : tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32> -> tensor<4x6xf32>
  %1 = tensor.exp %0 : tensor<4x6xf32> -> tensor<4x6xf32>
  return %0, %1 : tensor<4x6xf32>, tensor<4x6xf32>
}
func.func @main(%x: tensor<4x6xf32> {tensor.name = "x"}, %y: tensor<4x6xf32> {tensor.name = "y"}, %i: tensor<2x1xi64> {tensor.name = "i"}, %r: tensor<2x6xf32> {tensor.name = "r"}) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) attributes {tensor.result_names = ["u", "v", "e"], tensor.states = [["x", "u"], ["y", "v"]]} {
  %0, %a = func.call @layer(%x, %i, %r) : (tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>)
  %1, %b = func.call @layer(%y, %i, %r) : (tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>)
  %c = tensor.add %a, %b : tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
  return %0, %1, %c : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}

// -----

// Products of vectors
func.func @main(%x: tensor<6xf32>, %y: tensor<6xf32>, %a: tensor<4x6xf32>) -> (tensor<f32>, tensor<4xf32>, tensor<6xf32>) {
  %0 = tensor.matmul %x, %y : tensor<6xf32>, tensor<6xf32> -> tensor<f32>
  %1 = tensor.matmul %a, %y : tensor<4x6xf32>, tensor<6xf32> -> tensor<4xf32>
  %2 = tensor.matmul %1, %a : tensor<4xf32>, tensor<4x6xf32> -> tensor<6xf32>
  return %0, %1, %2 : tensor<f32>, tensor<4xf32>, tensor<6xf32>
}

// -----

// Tensors without elements
func.func @main(%x: tensor<4x5xf32>, %e: tensor<0x5xf32>) -> (tensor<4x5xf32>, tensor<0x5xf32>, tensor<5xf32>, tensor<4x0xf32>) {
  %c = tensor.concat %e, %x {axis = 0 : i64} : tensor<0x5xf32>, tensor<4x5xf32> -> tensor<4x5xf32>
  %n = tensor.neg %e : tensor<0x5xf32> -> tensor<0x5xf32>
  %r = tensor.reduce_sum %e {axes = array<i64: 0>, keepdims = false} : tensor<0x5xf32> -> tensor<5xf32>
  %s = tensor.slice %x {starts = array<i64: 0, 2>, stops = array<i64: 4, 2>, steps = array<i64: 1, 1>} : tensor<4x5xf32> -> tensor<4x0xf32>
  return %c, %n, %r, %s : tensor<4x5xf32>, tensor<0x5xf32>, tensor<5xf32>, tensor<4x0xf32>
}

// -----

// A product over no elements
func.func @main(%x: tensor<4x0xf32>, %y: tensor<0x5xf32>) -> (tensor<4x5xf32>) {
  %c = tensor.matmul %x, %y : tensor<4x0xf32>, tensor<0x5xf32> -> tensor<4x5xf32>
  %e = tensor.exp %c : tensor<4x5xf32> -> tensor<4x5xf32>
  return %e : tensor<4x5xf32>
}

// -----

// A value copied to a result and read by others
func.func @main(%x: tensor<4xf32>) -> (tensor<8xf32>, tensor<16xf32>) {
  %a = tensor.exp %x : tensor<4xf32> -> tensor<4xf32>
  %c = tensor.concat %a, %x {axis = 0 : i64} : tensor<4xf32>, tensor<4xf32> -> tensor<8xf32>
  %b = tensor.cast %c {to = "i32"} : tensor<8xf32> -> tensor<8xi32>
  %d = tensor.cast %b {to = "f32"} : tensor<8xi32> -> tensor<8xf32>
  %p = tensor.pad %d {lo = array<i64: 0>, hi = array<i64: 0>, value = 1.5 : f64} : tensor<8xf32> -> tensor<8xf32>
  %e = tensor.concat %d, %d {axis = 0 : i64} : tensor<8xf32>, tensor<8xf32> -> tensor<16xf32>
  return %p, %e : tensor<8xf32>, tensor<16xf32>
}

// -----

// A part of a value beside a weight
func.func @main(%x: tensor<1x3xf32>) -> (tensor<1x2xf32>) {
  %w = tensor.weight "w" : tensor<1x1xf32>
  %a = tensor.reduce_min %x {axes = array<i64: 0, 1>} : tensor<1x3xf32> -> tensor<1x1xf32>
  %s = tensor.slice %a {starts = array<i64: 0, 0>, stops = array<i64: -1, -1>, steps = array<i64: -1, -1>} : tensor<1x1xf32> -> tensor<1x1xf32>
  %c = tensor.concat %s, %w {axis = 1 : i64} : tensor<1x1xf32>, tensor<1x1xf32> -> tensor<1x2xf32>
  return %c : tensor<1x2xf32>
}

// -----

// Arguments without elements as results, of the program and of a shared function
func.func private @layer(%x: tensor<4x6xf32>, %e: tensor<3x0xi64>) -> (tensor<4x6xf32>, tensor<3x0xi64>) {
  %0 = tensor.exp %x : tensor<4x6xf32> -> tensor<4x6xf32>
  return %0, %e : tensor<4x6xf32>, tensor<3x0xi64>
}
func.func @main(%x: tensor<4x6xf32>, %e: tensor<3x0xi64> {tensor.name = "e"}) -> (tensor<4x6xf32>, tensor<3x0xi64>, tensor<3x0xi64>) attributes {tensor.result_names = ["y", "f", "g"], tensor.states = [["e", "g"]]} {
  %0, %1 = func.call @layer(%x, %e) : (tensor<4x6xf32>, tensor<3x0xi64>) -> (tensor<4x6xf32>, tensor<3x0xi64>)
  return %0, %1, %e : tensor<4x6xf32>, tensor<3x0xi64>, tensor<3x0xi64>
}

// -----

// A shared function writes rows of a value that its caller returns as well
func.func private @layer(%x: tensor<4x6xf32>, %i: tensor<2x1xi64>, %r: tensor<2x6xf32>) -> tensor<4x6xf32> {
  %0 = tensor.scatter_nd %x, %i, %r : tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32> -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}
func.func @main(%x: tensor<4x6xf32>, %i: tensor<2x1xi64>, %r: tensor<2x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = tensor.add %x, %x : tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
  %1 = func.call @layer(%0, %i, %r) : (tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32>) -> tensor<4x6xf32>
  return %0, %1 : tensor<4x6xf32>, tensor<4x6xf32>
}

// -----

// Rows written into a state twice; what stands between is a result
func.func @main(%s: tensor<4x6xf32> {tensor.name = "s"}, %i: tensor<2x1xi64>, %r: tensor<2x6xf32>, %q: tensor<1x1xi64>, %t: tensor<1x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) attributes {tensor.result_names = ["s2", "y"], tensor.states = [["s", "s2"]]} {
  %0 = tensor.scatter_nd %s, %i, %r : tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32> -> tensor<4x6xf32>
  %1 = tensor.scatter_nd %0, %q, %t : tensor<4x6xf32>, tensor<1x1xi64>, tensor<1x6xf32> -> tensor<4x6xf32>
  return %1, %0 : tensor<4x6xf32>, tensor<4x6xf32>
}

// -----

// Rows written into a state twice by a shared function; what stands between is a result
func.func private @write(%s: tensor<4x6xf32>, %i: tensor<2x1xi64>, %r: tensor<2x6xf32>) -> tensor<4x6xf32> {
  %0 = tensor.scatter_nd %s, %i, %r : tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32> -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}
func.func @main(%s: tensor<4x6xf32> {tensor.name = "s"}, %i: tensor<2x1xi64>, %r: tensor<2x6xf32>, %q: tensor<2x1xi64>, %t: tensor<2x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) attributes {tensor.result_names = ["s2", "y"], tensor.states = [["s", "s2"]]} {
  %0 = func.call @write(%s, %i, %r) : (tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32>) -> tensor<4x6xf32>
  %1 = func.call @write(%0, %q, %t) : (tensor<4x6xf32>, tensor<2x1xi64>, tensor<2x6xf32>) -> tensor<4x6xf32>
  return %1, %0 : tensor<4x6xf32>, tensor<4x6xf32>
}
