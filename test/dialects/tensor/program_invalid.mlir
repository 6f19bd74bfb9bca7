// What a module is refused for as a program: names, states, types, sizes and calls.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{tensor.result_names is a list of 2 strings, found ["a"]}}
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) attributes {tensor.result_names = ["a"]} {
  func.return %x, %x : tensor<4xf32>, tensor<4xf32>
}

// -----

// expected-error @+1 {{tensor.result_names is a list of 1 strings, found [1 : i64]}}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> attributes {tensor.result_names = [1]} {
  func.return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{tensor.name of argument 0 is a string, found 3 : i64}}
func.func @main(%x: tensor<4xf32> {tensor.name = 3}) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}

// -----

// What has no name counts as arg0, arg1, …
// expected-error @+2 {{2 arguments are called 'arg1'}}
// expected-error @+1 {{2 results are called 'y'}}
func.func @main(%x: tensor<4xf32> {tensor.name = "arg1"}, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) attributes {tensor.result_names = ["y", "y"]} {
  func.return %x, %y : tensor<4xf32>, tensor<4xf32>
}

// -----

// expected-error @+1 {{tensor.states is a list of pairs of an input's and a result's name, found [["x"]]}}
func.func @main(%x: tensor<4xf32> {tensor.name = "x"}) -> tensor<4xf32> attributes {tensor.states = [["x"]]} {
  func.return %x : tensor<4xf32>
}

// -----

// expected-error @+2 {{tensor.states names argument 'past', which is none}}
// expected-error @+1 {{tensor.states names result 'present', which is none}}
func.func @main(%x: tensor<4xf32> {tensor.name = "x"}) -> tensor<4xf32> attributes {tensor.states = [["past", "present"]]} {
  func.return %x : tensor<4xf32>
}

// -----

// expected-error @+2 {{tensor.states names argument 'x' 2 times}}
// expected-error @+1 {{state 'x' is tensor<4xf32> but 'b', which replaces it, is tensor<2xf32>}}
func.func @main(%x: tensor<4xf32> {tensor.name = "x"}, %y: tensor<2xf32>) -> (tensor<4xf32>, tensor<2xf32>) attributes {tensor.result_names = ["a", "b"], tensor.states = [["x", "a"], ["x", "b"]]} {
  func.return %x, %y : tensor<4xf32>, tensor<2xf32>
}

// -----

// expected-error @+2 {{argument 0 of a program is a tensor: expected a tensor, found i32}}
// expected-error @+1 {{result 0 of a program is a tensor: expected a tensor, found i32}}
func.func @main(%x: i32) -> i32 {
  func.return %x : i32
}

// -----

// expected-error @+1 {{argument 0 of a program is a tensor: shapes are static in Headrace, found tensor<?xf32>}}
func.func @main(%x: tensor<?xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  func.return %y : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4294967296x4294967296xf32>) -> tensor<4294967296x4294967296xf32> {
  // expected-error @+1 {{tensor<4294967296x4294967296xf32> has 18446744073709551616 elements; at most 4398046511104 make sense}}
  %0 = tensor.neg %x : tensor<4294967296x4294967296xf32> -> tensor<4294967296x4294967296xf32>
  func.return %0 : tensor<4294967296x4294967296xf32>
}

// -----

// expected-error @+1 {{it is called while it runs, by itself or what it calls}}
func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
// expected-error @+1 {{it is called while it runs, by itself or what it calls}}
func.func private @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
