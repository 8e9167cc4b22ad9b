// Package onednn computes the cases with oneDNN 2 through its C++ interface:
// its matmul primitive and, for one time step each, its LSTM primitive and the
// form of its GRU primitive that is PyTorch's (linear before reset). Weights
// are packed once, in the layout that the library chooses for the number of
// rows. With bfloat16 weights the library wants bfloat16 inputs too; their
// conversion is part of the time. Dynamic quantisation is not among the
// library's primitives, so there are no 8-bit weights.
//
// With the build tag onednn the package is linked with oneDNN; without it the
// library is reported as not available.
package onednn
