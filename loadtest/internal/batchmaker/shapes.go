package batchmaker

import (
	"math"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// The laws of lengths: sentences like those of Europarl (mean 25, p90 47,
// p99 93), targets about as long as their sources, and trees of the size of a
// treebank's sentences.
const (
	medianLength  = 20
	lengthSigma   = 0.65
	longestLength = 330
	targetSigma   = 0.25 // of the logarithm of target over source
	medianLeaves  = 17
	leavesSigma   = 0.5
	mostLeaves    = 56
	fixedLength   = 24
	fixedLeaves   = 16
)

// seeds are streams of random numbers that do not depend on each other.
type seeds struct{ seed uint64 }

func (s seeds) lengths() uint64  { return 2 * s.seed }
func (s seeds) arrivals() uint64 { return 2*s.seed + 1 }

// draw returns the shapes of n requests to a network.
func (s seeds) draw(network string, n int) []sim.Shape {
	random, law := sim.Random(s.lengths()), sim.LogNormal(medianLength, lengthSigma, longestLength)
	leaves := sim.LogNormal(medianLeaves, leavesSigma, mostLeaves)
	shapes := make([]sim.Shape, n)
	for i := range shapes {
		switch network {
		case lstm:
			shapes[i] = sim.Steps(law(random))
		case seq2seq:
			source := law(random)
			factor := math.Exp(targetSigma * random.NormFloat64())
			shapes[i] = sim.Seq2Seq(source, int(max(1, math.Round(factor*float64(source)))))
		default:
			shapes[i] = sim.NewTree(leaves(random), random)
		}
	}
	return shapes
}

// same returns n requests of one shape.
func same(shape sim.Shape, n int) []sim.Shape {
	shapes := make([]sim.Shape, n)
	for i := range shapes {
		shapes[i] = shape
	}
	return shapes
}

// open returns the shapes as a trace with arrivals.
func (s seeds) open(rate float64, shapes []sim.Shape) []sim.Request {
	return sim.Poisson(sim.Random(s.arrivals()), rate, shapes)
}
