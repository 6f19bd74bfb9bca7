// A program that fits no memory is refused with its largest tensors, weights by their keys.
// RUN: not headrace-opt %s -p allocate-memory 2>&1 | filecheck %s

#full = #machine.device<"full", {base = "sn40l", hbm = {bytes = 128}, ddr = {bytes = 128}}>

// CHECK:      error: allocate-memory: 320 bytes do not fit 256 bytes of 'full' [out-of-memory]
// CHECK-NEXT:   why: largest tensors: encoder.w tensor<32xf32> 128 bytes, x tensor<16xf32> 64 bytes, t tensor<16xf32> 64 bytes, y tensor<16xf32> 64 bytes
// CHECK-NEXT:   fix: choose a device with more memory, or a smaller model or batch
builtin.module attributes {machine.device = #full} {
rdu.program @main {
  rdu.region @x input tensor<16xf32>
  rdu.region @w weight tensor<32xf32> key "encoder.w"
  rdu.region @t temp tensor<16xf32>
  rdu.region @y output tensor<16xf32>
}
}
