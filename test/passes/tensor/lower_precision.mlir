// RUN: headrace-opt %s -p lower-precision --split-input-file | filecheck %s
// RUN: headrace-opt %s -p 'lower-precision,lower-precision' --split-input-file | filecheck %s
// RUN: headrace-opt %s -p 'lower-precision{ports=all}' --split-input-file | filecheck %s --check-prefix=ALL
// RUN: headrace-opt %s -p 'lower-precision{weights=f8e4m3}' --split-input-file | filecheck %s --check-prefix=F8
// RUN: headrace-opt %s -p 'lower-precision{ports=none}' --split-input-file | filecheck %s --check-prefix=NONE

// A weight becomes a derived weight, a constant another constant; casts stand behind inputs and before outputs.
// CHECK:       tensor.recipe @"w|cast(bf16)" {
// CHECK-LABEL: @main
// CHECK-NEXT:    %[[X:.*]] = tensor.cast %x {to = "bf16"}
// CHECK-NEXT:    %[[W:.*]] = tensor.weight "w|cast(bf16)" : tensor<8x4xbf16>
// CHECK-NEXT:    %[[Y:.*]] = tensor.matmul %[[X]], %[[W]] : tensor<2x8xbf16>, tensor<8x4xbf16> -> tensor<2x4xbf16>
// CHECK-NEXT:    %[[C:.*]] = tensor.constant dense<1.000980e-01> : tensor<bf16>
// CHECK-NEXT:    %[[Z:.*]] = tensor.add %[[Y]], %[[C]] : tensor<2x4xbf16>
// CHECK-NEXT:    %[[S:.*]] = tensor.softmax %[[Z]] {axis = 1 : i64} : tensor<2x4xbf16> -> tensor<2x4xbf16>
// CHECK-NEXT:    %[[R:.*]] = tensor.cast %[[S]] {to = "f32"}
// CHECK-NEXT:    func.return %[[R]] : tensor<2x4xf32>
// ALL-LABEL:   @main(%x: tensor<2x8xbf16>) -> tensor<2x4xbf16>
// ALL:           %[[S:.*]] = tensor.softmax
// ALL-NEXT:      func.return %[[S]]
func.func @main(%x: tensor<2x8xf32>) -> tensor<2x4xf32> {
  %w = tensor.weight "w" : tensor<8x4xf32>
  %c = tensor.constant dense<0.1> : tensor<f32>
  %0 = tensor.matmul %x, %w : tensor<2x8xf32>, tensor<8x4xf32> -> tensor<2x4xf32>
  %1 = tensor.add %0, %c : tensor<2x4xf32>, tensor<f32> -> tensor<2x4xf32>
  %2 = tensor.softmax %1 {axis = 1 : i64} : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %2 : tensor<2x4xf32>
}

// -----

// Positions, and what is computed from them, stay f32 until they meet an activation.
// CHECK-LABEL: @positions
// CHECK-DAG:     %[[P:.*]] = tensor.cast %pos {to = "f32"} : tensor<4xi64> -> tensor<4xf32>
// CHECK:         %[[A:.*]] = tensor.mul %[[P]], %{{.*}} : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
// CHECK-NEXT:    %[[S:.*]] = tensor.sin %[[A]] : tensor<4xf32>
// CHECK:         %[[B:.*]] = tensor.cast %[[S]] {to = "bf16"}
// CHECK-NEXT:    tensor.mul %{{.*}}, %[[B]] : tensor<4xbf16>
func.func @positions(%x: tensor<4xf32>, %pos: tensor<4xi64>) -> tensor<4xf32> {
  %w = tensor.weight "frequencies" : tensor<4xf32>
  %0 = tensor.cast %pos {to = "f32"} : tensor<4xi64> -> tensor<4xf32>
  %1 = tensor.mul %0, %w : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  %2 = tensor.sin %1 : tensor<4xf32> -> tensor<4xf32>
  %3 = tensor.mul %x, %2 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  func.return %3 : tensor<4xf32>
}

// -----

// Rows of a table are activations, whatever chose them.
// CHECK-LABEL: @table
// CHECK-NEXT:    %[[W:.*]] = tensor.weight "words|cast(bf16)" : tensor<9x4xbf16>
// CHECK-NEXT:    %[[R:.*]] = tensor.gather %[[W]], %ids : tensor<9x4xbf16>, tensor<2xi64> -> tensor<2x4xbf16>
// CHECK-NEXT:    tensor.relu %[[R]] : tensor<2x4xbf16>
func.func @table(%ids: tensor<2xi64>) -> tensor<2x4xf32> {
  %w = tensor.weight "words" : tensor<9x4xf32>
  %0 = tensor.gather %w, %ids : tensor<9x4xf32>, tensor<2xi64> -> tensor<2x4xf32>
  %1 = tensor.relu %0 : tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %1 : tensor<2x4xf32>
}

// -----

// What an integer is made of is computed in f32, from the product on; f64 stays f64.
// CHECK-LABEL: @integers
// CHECK:         %[[M:.*]] = tensor.matmul %{{.*}} : tensor<4x4xbf16>
// CHECK-NEXT:    %[[F:.*]] = tensor.cast %[[M]] {to = "f32"}
// CHECK-NEXT:    %[[G:.*]] = tensor.floor %[[F]] : tensor<4x4xf32>
// CHECK-NEXT:    %[[I:.*]] = tensor.cast %[[G]] {to = "i64"} : tensor<4x4xf32> -> tensor<4x4xi64>
// CHECK-NEXT:    %[[D:.*]] = tensor.exp %d : tensor<4xf64>
// CHECK-NEXT:    func.return %[[I]], %[[D]]
func.func @integers(%x: tensor<4x4xf32>, %d: tensor<4xf64>) -> (tensor<4x4xi64>, tensor<4xf64>) {
  %0 = tensor.matmul %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %1 = tensor.floor %0 : tensor<4x4xf32> -> tensor<4x4xf32>
  %2 = tensor.cast %1 {to = "i64"} : tensor<4x4xf32> -> tensor<4x4xi64>
  %3 = tensor.exp %d : tensor<4xf64> -> tensor<4xf64>
  func.return %2, %3 : tensor<4x4xi64>, tensor<4xf64>
}

// -----

// The least f32 number, as masks have it, becomes the least bf16 number, not -inf; -inf stays.
// CHECK-LABEL: @masked
// CHECK-NEXT:    tensor.constant dense<-3.38953139e+38> : tensor<f32>
// CHECK:         tensor.mul %{{.*}}, %{{.*}} : tensor<4xf32>, tensor<f32>
// CHECK:         tensor.constant dense<0xFF80> : tensor<bf16>
func.func @masked(%x: tensor<4xf32>, %mask: tensor<4xi64>) -> (tensor<4xf32>, tensor<4xf32>) {
  %least = tensor.constant dense<0xFF7FFFFF> : tensor<f32>
  %never = tensor.constant dense<0xFF800000> : tensor<f32>
  %0 = tensor.cast %mask {to = "f32"} : tensor<4xi64> -> tensor<4xf32>
  %1 = tensor.mul %0, %least : tensor<4xf32>, tensor<f32> -> tensor<4xf32>
  %2 = tensor.add %x, %1 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  %3 = tensor.max %x, %never : tensor<4xf32>, tensor<f32> -> tensor<4xf32>
  func.return %2, %3 : tensor<4xf32>, tensor<4xf32>
}

// -----

// A state stays on the device: it is bf16 unless ports=none. Its rows are written in place.
// CHECK-LABEL: @states(%past: tensor<8x4xbf16>
// CHECK-SAME:    %row: tensor<1x4xf32>
// CHECK-SAME:    -> (tensor<8x4xbf16>, tensor<8xf32>)
// CHECK:         %[[N:.*]] = tensor.scatter_nd %past,
// CHECK:         %[[S:.*]] = tensor.reduce_sum %[[N]]
// CHECK-NEXT:    %[[R:.*]] = tensor.cast %[[S]] {to = "f32"} : tensor<8xbf16> -> tensor<8xf32>
// CHECK-NEXT:    func.return %[[N]], %[[R]] : tensor<8x4xbf16>, tensor<8xf32>
// NONE-LABEL:  @states(%past: tensor<8x4xf32>
// NONE-SAME:     -> (tensor<8x4xf32>, tensor<8xf32>)
// NONE:          %[[P:.*]] = tensor.cast %past {to = "bf16"}
// NONE:          %[[N:.*]] = tensor.scatter_nd %[[P]],
func.func @states(%past: tensor<8x4xf32> {tensor.name = "past"}, %at: tensor<1x1xi64> {tensor.name = "at"}, %row: tensor<1x4xf32> {tensor.name = "row"}) -> (tensor<8x4xf32>, tensor<8xf32>) attributes {tensor.result_names = ["present", "y"], tensor.states = [["past", "present"]]} {
  %0 = tensor.scatter_nd %past, %at, %row : tensor<8x4xf32>, tensor<1x1xi64>, tensor<1x4xf32> -> tensor<8x4xf32>
  %1 = tensor.reduce_sum %0 {axes = array<i64: 1>, keepdims = false} : tensor<8x4xf32> -> tensor<8xf32>
  func.return %0, %1 : tensor<8x4xf32>, tensor<8xf32>
}

// -----

// Parts of an input are cast by themselves, and the parts of an output before they are put together.
// CHECK-LABEL: @parts
// CHECK-NEXT:    %[[A:.*]], %[[B:.*]] = tensor.split %x {{.*}} : tensor<8xf32> -> tensor<4xf32>, tensor<4xf32>
// CHECK-NEXT:    %[[C:.*]] = tensor.cast %[[A]] {to = "bf16"}
// CHECK-NEXT:    %[[D:.*]] = tensor.exp %[[C]]
// CHECK-NEXT:    %[[E:.*]] = tensor.cast %[[B]] {to = "bf16"}
// CHECK-NEXT:    %[[F:.*]] = tensor.tanh %[[E]]
// CHECK-NEXT:    %[[G:.*]] = tensor.cast %[[D]] {to = "f32"}
// CHECK-NEXT:    %[[H:.*]] = tensor.cast %[[F]] {to = "f32"}
// CHECK-NEXT:    tensor.concat %[[G]], %[[H]]
func.func @parts(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0, %1 = tensor.split %x {axis = 0 : i64, sizes = array<i64: 4, 4>} : tensor<8xf32> -> tensor<4xf32>, tensor<4xf32>
  %2 = tensor.exp %0 : tensor<4xf32> -> tensor<4xf32>
  %3 = tensor.tanh %1 : tensor<4xf32> -> tensor<4xf32>
  %4 = tensor.concat %2, %3 {axis = 0 : i64} : tensor<4xf32>, tensor<4xf32> -> tensor<8xf32>
  func.return %4 : tensor<8xf32>
}

// -----

// Called functions take and give bf16, but positions and integers as they are.
// CHECK-LABEL: @layer(%x: tensor<4xbf16>, %w: tensor<4xbf16>, %angle: tensor<4xf32>) -> tensor<4xbf16>
// CHECK-NEXT:    %[[M:.*]] = tensor.mul %x, %w : tensor<4xbf16>
// CHECK-NEXT:    %[[A:.*]] = tensor.cast %angle {to = "bf16"}
// CHECK-NEXT:    tensor.add %[[M]], %[[A]]
// CHECK-LABEL: @main
// CHECK:         %[[Y:.*]] = func.call @layer(%{{.*}}, %{{.*}}, %{{.*}}) : (tensor<4xbf16>, tensor<4xbf16>, tensor<4xf32>) -> tensor<4xbf16>
// CHECK-NEXT:    %[[Z:.*]] = func.call @layer(%[[Y]]
// CHECK-NEXT:    %[[R:.*]] = tensor.cast %[[Z]] {to = "f32"}
// CHECK-NEXT:    func.return %[[R]]
func.func private @layer(%x: tensor<4xf32>, %w: tensor<4xf32>, %angle: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.mul %x, %w : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  %1 = tensor.add %0, %angle : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>, %pos: tensor<4xi64>) -> tensor<4xf32> {
  %w = tensor.weight "w" : tensor<4xf32>
  %0 = tensor.cast %pos {to = "f32"} : tensor<4xi64> -> tensor<4xf32>
  %1 = func.call @layer(%x, %w, %0) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = func.call @layer(%1, %w, %0) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %2 : tensor<4xf32>
}

// -----

// Views of weights are views of derived weights; what is computed from a weight is rounded at the end.
// CHECK-LABEL: @derived
// CHECK-DAG:     %[[W:.*]] = tensor.weight "w|cast(bf16)" : tensor<4x8xbf16>
// CHECK-DAG:     tensor.transpose %[[W]]
// CHECK-DAG:     %[[S:.*]] = tensor.sqrt %{{.*}} : tensor<8xf32>
// CHECK-DAG:     tensor.cast %[[S]] {to = "bf16"}
func.func @derived(%x: tensor<2x8xf32>) -> tensor<2x4xf32> {
  %w = tensor.weight "w" : tensor<4x8xf32>
  %v = tensor.weight "v" : tensor<8xf32>
  %0 = tensor.transpose %w {perm = array<i64: 1, 0>} : tensor<4x8xf32> -> tensor<8x4xf32>
  %1 = tensor.sqrt %v : tensor<8xf32> -> tensor<8xf32>
  %2 = tensor.mul %x, %1 : tensor<2x8xf32>, tensor<8xf32> -> tensor<2x8xf32>
  %3 = tensor.matmul %2, %0 : tensor<2x8xf32>, tensor<8x4xf32> -> tensor<2x4xf32>
  func.return %3 : tensor<2x4xf32>
}

// -----

// Attention is taken apart: its products are of bf16.
// CHECK-LABEL: @attention
// CHECK-NOT:     tensor.attention
// CHECK:         tensor.matmul %{{.*}} : tensor<1x4x8xbf16>, tensor<1x8x4xbf16> -> tensor<1x4x4xbf16>
// CHECK:         tensor.softmax %{{.*}} : tensor<1x4x4xbf16>
func.func @attention(%q: tensor<1x4x8xf32>) -> tensor<1x4x8xf32> {
  %0 = tensor.attention %q, %q, %q : tensor<1x4x8xf32>, tensor<1x4x8xf32>, tensor<1x4x8xf32> -> tensor<1x4x8xf32>
  func.return %0 : tensor<1x4x8xf32>
}

// -----

// Eight bits: the columns of a weight are over powers of two, which go into the product's result; filters are scaled
// before their product. Small weights stay bf16.
// F8:          tensor.recipe @"w|scale(f8e4m3)" {
// F8:            tensor.cast %{{.*}} {to = "bf16"} : tensor<1x64xf32> -> tensor<1x64xbf16>
// F8:          tensor.recipe @"w|f8e4m3" {
// F8:            %[[Q:.*]] = tensor.div %{{.*}}, %{{.*}} : tensor<64x64xf32>, tensor<1x64xf32>
// F8-NEXT:       tensor.cast %[[Q]] {to = "f8e4m3"} : tensor<64x64xf32> -> tensor<64x64xf8E4M3FN>
// F8-LABEL:    @eight_bits
// F8-DAG:        %[[S:.*]] = tensor.weight "w|scale(f8e4m3)" : tensor<64xbf16>
// F8-DAG:        %[[W:.*]] = tensor.weight "w|f8e4m3" : tensor<64x64xf8E4M3FN>
// F8:            %[[C:.*]] = tensor.cast %[[W]] {to = "bf16"}
// F8-NEXT:       %[[P:.*]] = tensor.matmul %{{.*}}, %[[C]] : tensor<2x64xbf16>, tensor<64x64xbf16>
// F8-NEXT:       tensor.mul %[[P]], %[[S]] : tensor<2x64xbf16>, tensor<64xbf16>
// F8:            tensor.weight "small|cast(bf16)" : tensor<64x8xbf16>
func.func @eight_bits(%x: tensor<2x64xf32>) -> tensor<2x8xf32> {
  %w = tensor.weight "w" : tensor<64x64xf32>
  %v = tensor.weight "small" : tensor<64x8xf32>
  %0 = tensor.matmul %x, %w : tensor<2x64xf32>, tensor<64x64xf32> -> tensor<2x64xf32>
  %1 = tensor.matmul %0, %v : tensor<2x64xf32>, tensor<64x8xf32> -> tensor<2x8xf32>
  func.return %1 : tensor<2x8xf32>
}

// -----

// F8-LABEL:    @filters
// F8-DAG:        %[[S:.*]] = tensor.weight "w|scale(f8e4m3)" : tensor<16x1x1x1xbf16>
// F8-DAG:        %[[W:.*]] = tensor.weight "w|f8e4m3" : tensor<16x32x3x3xf8E4M3FN>
// F8:            %[[C:.*]] = tensor.cast %[[W]] {to = "bf16"}
// F8-NEXT:       %[[M:.*]] = tensor.mul %[[C]], %[[S]]
// F8-NEXT:       tensor.conv %{{.*}}, %[[M]]
func.func @filters(%x: tensor<1x32x8x8xf32>) -> tensor<1x16x6x6xf32> {
  %w = tensor.weight "w" : tensor<16x32x3x3xf32>
  %0 = tensor.conv %x, %w : tensor<1x32x8x8xf32>, tensor<16x32x3x3xf32> -> tensor<1x16x6x6xf32>
  func.return %0 : tensor<1x16x6x6xf32>
}
