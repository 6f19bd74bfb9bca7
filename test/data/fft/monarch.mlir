// A step of a Fourier transform as products with matrices (Monarch): 12 sequences, each a grid of 512 columns of 138
// points. Gemm0 transforms the points of each column to 512 (the input is padded with zeros, which are not stored),
// Mul applies the twiddle factors, which all sequences share, and after Transpose Gemm1 transforms along the other dim,
// of whose 512 results 128 are wanted. Real numbers, as in the simplified example of the SN40L paper (arXiv 2405.07518,
// Table I), whose sizes are not published: these are chosen such that all three of its operational intensities come out.
func.func @main(%x: tensor<12x512x138xbf16> {tensor.name = "x"}) -> tensor<12x512x128xbf16> attributes {tensor.result_names = ["y"]} {
  %dft0 = tensor.weight "dft0" : tensor<138x512xbf16>
  %twiddle = tensor.weight "twiddle" : tensor<512x512xbf16>
  %dft1 = tensor.weight "dft1" : tensor<512x128xbf16>
  %0 = tensor.matmul %x, %dft0 : tensor<12x512x138xbf16>, tensor<138x512xbf16> -> tensor<12x512x512xbf16> loc("Gemm0")
  %1 = tensor.mul %0, %twiddle : tensor<12x512x512xbf16>, tensor<512x512xbf16> -> tensor<12x512x512xbf16> loc("Mul")
  %2 = tensor.transpose %1 {perm = array<i64: 0, 2, 1>} : tensor<12x512x512xbf16> -> tensor<12x512x512xbf16> loc("Transpose")
  %3 = tensor.matmul %2, %dft1 : tensor<12x512x512xbf16>, tensor<512x128xbf16> -> tensor<12x512x128xbf16> loc("Gemm1")
  func.return %3 : tensor<12x512x128xbf16>
}
