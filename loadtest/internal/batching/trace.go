package batching

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// The law of lengths.
const (
	medianLength   = 20
	lengthSigma    = 0.65
	longestLength  = 330
	medianLeaves   = 17 // of a tree
	leavesSigma    = 0.5
	mostLeaves     = 56
	targetSigma    = 0.25 // of the logarithm of target over source
	profiledShapes = 2000 // requests that the mean request is taken from
)

// What the second half of a seed tells apart.
const (
	streamWeights = iota
	streamProfile
	streamRounds // and the numbers after it
)

// request is what a client asks for.
type request struct {
	arrival time.Duration // since the beginning of the trial
	source  []int32
	target  int // tokens that are decoded; 0 in a network that only reads
	// children are the two children of each inner node of a tree, whose leaves
	// are the source: leaves have the first numbers, and children come before
	// parents. It is nil in a chain.
	children [][2]int32
}

// nodes returns how many cells a request runs.
func (r *request) nodes() int { return len(r.source) + r.target + len(r.children) }

// drawRequests returns n requests for a network that arrive at once, with
// sources of the given length if it is not 0.
func drawRequests(n *network, random *rand.Rand, count, length int) []request {
	law := sim.LogNormal(medianLength, lengthSigma, longestLength)
	switch {
	case n.leaf != nil:
		law = sim.LogNormal(medianLeaves, leavesSigma, mostLeaves)
	case length > 0:
		law = sim.Fixed(length)
	}
	trace := make([]request, count)
	for i := range trace {
		r := &trace[i]
		r.source = make([]int32, law(random))
		for j := range r.source {
			r.source[j] = random.Int32N(int32(n.tokens))
		}
		if n.leaf != nil {
			r.children = drawTree(len(r.source), random)
		}
		if n.decoder != nil {
			factor := math.Exp(targetSigma * random.NormFloat64())
			r.target = int(max(1, math.Round(factor*float64(len(r.source)))))
		}
	}
	return trace
}

// drawTree joins neighbours two at a time, in a random order.
func drawTree(leaves int, random *rand.Rand) [][2]int32 {
	row := make([]int32, leaves)
	for i := range row {
		row[i] = int32(i)
	}
	children := make([][2]int32, 0, leaves-1)
	for len(row) > 1 {
		i := random.IntN(len(row) - 1)
		children = append(children, [2]int32{row[i], row[i+1]})
		row[i] = int32(leaves + len(children) - 1)
		row = append(row[:i+1], row[i+2:]...)
	}
	return children
}

// arrive has requests arrive independently of each other, at rate a second on
// average.
func arrive(trace []request, random *rand.Rand, rate float64) {
	at := 0.0
	for i := range trace {
		at += random.ExpFloat64() / rate
		trace[i].arrival = time.Duration(at * float64(time.Second))
	}
}

// traces draws the traces of one comparison, one for each experiment and round.
type traces struct {
	network *network
	seed    uint64
	length  int // of all sources, 0 for drawn ones
}

func (t traces) draw(random *rand.Rand, count int) []request {
	return drawRequests(t.network, random, count, t.length)
}

// backlog returns the trace of a round of the first experiment.
func (t traces) backlog(round, requests int) []request {
	return t.draw(t.random(0, round), requests)
}

// open returns the trace of a round of the experiment with the given load.
func (t traces) open(load, round, requests int, rate float64) []request {
	random := t.random(load+1, round)
	trace := t.draw(random, requests)
	arrive(trace, random, rate)
	return trace
}

func (t traces) random(experiment, round int) *rand.Rand {
	return rand.New(rand.NewPCG(t.seed, uint64(streamRounds+experiment*mostRounds+round)))
}
