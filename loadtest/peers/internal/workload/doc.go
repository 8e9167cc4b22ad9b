// Package workload says what is computed in a comparison: the products and
// recurrent steps, their numbers, and what the results have to be.
//
// The numbers are a hash of their position, so that every process makes the
// same ones without anybody sending them, whatever language it is written in:
//
//	z = (position + seed * 2^40) * 0x9E3779B97F4A7C15   (mod 2^64)
//	z = (z xor z >> 30) * 0xBF58476D1CE4E5B9
//	z = (z xor z >> 27) * 0x94D049BB133111EB
//	z =  z xor z >> 31
//	value = amplitude * ((z >> 40) / 2^23 - 1)
//
// The last steps are those of Steele, Lea and Flood's SplitMix64. Results are
// compared with sums in float64, at all places of a small result and at some
// thousand places of a large one.
package workload
