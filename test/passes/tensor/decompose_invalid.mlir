// RUN: not headrace-opt %s -p 'decompose{keep=softmux,gelu}' 2>&1 | filecheck %s

// CHECK: error: decompose: no composite is called 'softmux' [bad-option]
func.func @main(%x : tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
