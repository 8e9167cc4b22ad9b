// Package kernel holds the leaf routines of the CPU backend: matrix products
// on packed weights, activations, recurrent gates, attention and arg-max.
//
// # One result
//
// A row's result is the same, bit for bit, whatever batch it is in and on
// whatever machine it is computed:
//
//   - An element of a product is one chain over k in increasing order that
//     starts from the value already in the accumulator: acc = round(x[k]*w[k])
//   - acc. Rows, columns and panels can be tiled at will; k is never split.
//     Because the accumulator survives a store and a load unchanged, a chain
//     can be interrupted between two inputs.
//   - Every product that is added to something is written float32(x*y), which
//     by the language's rules keeps a compiler from fusing the two operations.
//   - Exponentials and logarithms are polynomials of this package, since those
//     of package math differ between architectures in the last bit.
//
// # Layout of weights
//
//	weight: N outputs x K inputs      packed: panels of 32 outputs
//
//	      k ->                              panel 0            panel 1
//	  n  w00 w01 w02 ..                k  |w[0..31][0]   |   |w[32..63][0]  |
//	  |  w10 w11 w12 ..     ==>        |  |w[0..31][1]   |   |w[32..63][1]  |
//	  v  ..                            v  |..            |   |..            |
//
// A panel's columns beyond N are zero, so that a kernel always works on whole
// panels. Blocks of row vectors that receive a product need room for that: see
// [Padded].
package kernel
