// Package kernel holds the leaf routines of the CPU backend: matrix products
// on packed weights, activations, recurrent gates, attention and arg-max.
//
// # Tables
//
// A [Table] is the routines of one instruction tier, and the width of its
// panels:
//
//	purego       32   everywhere; the oracle that the others are tested against
//	avx2         16   amd64 with AVX2 and FMA
//	avx512       32   amd64 with AVX-512 F, BW, DQ and VL
//	avx512vnni   32   the same with VNNI, for 8-bit products
//	neon         16   arm64, with portable 8-bit products
//	neondot      16   the same with dot products of bytes, for 8-bit products
//
// The assembly is written by the command kernelgen beside this package; the
// build tag purego leaves it out.
//
// # One result
//
// A row's result is the same, bit for bit, whatever batch it is in, in every
// table, on whatever machine:
//
//   - An element of a product is one chain over k in increasing order that
//     starts from the value already in the accumulator, each step a fused
//     multiply-add: acc = round(x[k]*w[k] + acc). Rows, columns and panels can
//     be tiled at will; k is never split. Because the accumulator survives a
//     store and a load unchanged, a chain can be interrupted between two
//     inputs.
//   - Where the processor has no fused multiply-add for float32 that Go would
//     use, fma computes it exactly in float64.
//   - Activations are polynomials with the same operations in every table,
//     fused exactly where the Go code calls fma.
//   - A sum over a vector runs in 16 lanes that are added in halves, in blocks
//     of a fixed length, whatever the width of the registers.
//   - Products of 8-bit codes are exact in integers, and the operations around
//     them stand in a fixed order.
//
// A result that is not a number is one in every table, but its sign and
// payload may differ. Denormal numbers are kept.
//
// # Layout of weights
//
//	weight: N outputs x K inputs      packed: panels, here of 32 outputs
//
//	      k ->                              panel 0            panel 1
//	  n  w00 w01 w02 ..                k  |w[0..31][0]   |   |w[32..63][0]  |
//	  |  w10 w11 w12 ..     ==>        |  |w[0..31][1]   |   |w[32..63][1]  |
//	  v  ..                            v  |..            |   |..            |
//
// A panel's columns beyond N are zero, so that a kernel always works on whole
// panels. Blocks of row vectors that receive a product need room for that: see
// [Padded]. Which outputs a panel holds is free ([Panel]), so that the gates
// of a unit can lie side by side ([Table.Interleaved]).
//
// # Tiles
//
// A kernel keeps a tile of up to 14 rows and 1 to 4 panels in registers, from
// the initial accumulators to the result: the more rows, the more often a
// loaded weight is used; with few rows, several panels give the processor
// enough chains to work on. The rows of a batch are cut into tiles of about
// equal height. On amd64 the first tiles of a panel fetch weights ahead. Calls are cut
// over k so that each takes well below 100 microseconds, because a goroutine
// in assembly cannot be stopped for the collector.
package kernel
