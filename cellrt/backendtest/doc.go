// Package backendtest is the conformance suite of [cellrt.Backend]
// implementations.
//
// [Run] holds a backend to its contract in three ways: every operation against
// a float64 reference within a tolerance, with the weights rounded as their
// type says; a row's results bit for bit against those of the same row alone;
// and the order of gathers and scatters, in cells written to tell an early
// store from one in its place and in random ones. Sizes are odd on purpose:
// nothing may assume multiples of a vector's width. [RunAllocations] stands
// apart because it counts what the whole process allocates.
package backendtest
