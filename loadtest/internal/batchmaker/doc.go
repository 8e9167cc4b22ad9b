// Package batchmaker reproduces the comparison of BatchMaker (Gao, Yu, Wu and
// Li, EuroSys 2018): cellular batching against padded buckets and merged
// graphs.
//
//	core.csv, a line --> machines --.
//	seed --> lengths, arrivals ------+--> runs (cellrt/sim) --> page, plots, table
//	servers (policies of sim) ------'
//
// # Under the virtual clock
//
// [Virtual] runs every server on two machines. A machine is what steps cost:
// one core as it was measured, and an accelerator as the paper's is remembered.
// A contest offers one machine's servers the same requests at the same rates,
// shares of what the first of them does with a backlog, and searches for the
// highest rate that each keeps up with. Ablations vary one thing and look at
// the peak and at one rate.
//
// # By the clock on the wall
//
// [Wall] runs the real runtime and kernels on one core, by way of package
// batching, and says what share of the machine other programs used meanwhile.
//
// # Determinism
//
// Under the virtual clock equal options give equal bytes. Time is an integer, random numbers come from
// the seed, runs happen several at a time but keep their places, and figures are
// rounded to a few digits before they are written or drawn, so that the last bit
// of a quotient does not show. Nothing reads a clock or asks the machine.
//
// The committed report in docs/repro is of full scale and seed 1; a test runs
// it again and wants the same files.
package batchmaker
