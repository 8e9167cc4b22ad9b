// Command kernelgen writes the assembly of package kernel: for each unit below
// a file of assembly and a file of Go declarations.
//
//	go run ../kernelgen        in the kernel package's folder; go generate does it
//
// Registers are assigned by hand, because all of them hold accumulators in the
// routines that matter. So the generator is no assembler and knows no
// instruction: it writes text, keeps the offsets of parameters, and is a place
// for loops over rows, panels and vectors.
//
// Operands stand in the order of Go's assembler, the destination last, which
// is the reverse of the processor manuals' order. Instructions on vectors that it
// lacks for arm64 are written as words, each with the manual's text beside it.
package main
