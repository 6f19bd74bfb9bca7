// What weights, constants and recipes refuse, and why.
// RUN: headrace-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{tensor.weight: the key is empty}}
%0 = tensor.weight "" : tensor<2xf32>

// -----

// expected-error @+1 {{tensor.weight: unsupported element type i7}}
%0 = tensor.weight "w" : tensor<2xi7>

// -----

// expected-error @+1 {{elements are nested as [3] but the type is tensor<2xf32>}}
%0 = tensor.constant dense<[1.0, 2.0, 3.0]> : tensor<2xf32>

// -----

// expected-error @+1 {{the lists of a literal differ in length}}
%0 = tensor.constant dense<[[1, 2], [3]]> : tensor<2x2xi32>

// -----

// expected-error @+1 {{an element does not fit i8}}
%0 = tensor.constant dense<[1, 300]> : tensor<2xi8>

// -----

// expected-error @+1 {{an element does not fit i1}}
%0 = tensor.constant dense<2> : tensor<4xi1>

// -----

// expected-error @+1 {{an element does not fit i32}}
%0 = tensor.constant dense<1.5> : tensor<4xi32>

// -----

// expected-error @+1 {{tensor<2xf32> takes 8 bytes, found 0}}
%0 = tensor.constant dense<> : tensor<2xf32>

// -----

// expected-error @+1 {{tensor<2xf32> takes 8 bytes, found 6}}
%0 = tensor.constant dense<"0x000000000000"> : tensor<2xf32>

// -----

// expected-error @+1 {{expected hexadecimal digits in the bytes of a literal}}
%0 = tensor.constant dense<"0xzz"> : tensor<2xf32>

// -----

// expected-error @+1 {{result type is tensor<3xf32> but the elements are tensor<2xf32>}}
%0 = "tensor.constant"() <{value = #tensor.literal<1.0 : tensor<2xf32>>}> : () -> tensor<3xf32>

// -----

// expected-error @+1 {{tensor.recipe: the body ends in tensor.yield}}
tensor.recipe @a {
  "test.termop"() : () -> ()
}

// -----

// expected-error @+1 {{tensor.recipe: test.op is not a tensor op}}
tensor.recipe @a {
  %0 = "test.op"() : () -> tensor<2xf32>
  tensor.yield %0 : tensor<2xf32>
}

// -----

// expected-error @+1 {{tensor.recipe: recipes need one another: a -> b -> a}}
tensor.recipe @a {
  %0 = tensor.weight "b" : tensor<2xf32>
  tensor.yield %0 : tensor<2xf32>
}
tensor.recipe @b {
  %0 = tensor.weight "a" : tensor<2xf32>
  tensor.yield %0 : tensor<2xf32>
}

// -----

// expected-error @+1 {{tensor.recipe: weight 'a' has type tensor<3xf32> but its recipe gives tensor<2xf32>}}
tensor.recipe @a {
  %0 = tensor.weight "w" : tensor<2xf32>
  tensor.yield %0 : tensor<2xf32>
}
func.func @f() {
  %0 = tensor.weight "a" : tensor<3xf32>
  func.return
}
