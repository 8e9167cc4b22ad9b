package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Request is one request of a trace.
type Request struct {
	// Arrival is when the request arrives, counted from the run's beginning.
	Arrival time.Duration
	Shape   Shape
	// Tenant names whose share of the compute [Cellular] charges.
	Tenant string
}

// Random returns a generator that gives the same numbers for the same seed.
func Random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// Law draws lengths.
type Law func(*rand.Rand) int

// Fixed is the law of one length.
func Fixed(length int) Law { return func(*rand.Rand) int { return length } }

// LogNormal is the law of lengths whose logarithm is normally distributed
// around that of median, rounded and clipped to 1..longest. A median of 20 with
// a sigma of 0.65 and a longest of 330 resembles the sentences of Europarl.
func LogNormal(median, sigma float64, longest int) Law {
	mu := math.Log(median)
	return func(random *rand.Rand) int {
		// The conversion keeps the product from being fused with the sum, which some
		// processors round differently.
		length := math.Round(math.Exp(mu + float64(sigma*random.NormFloat64())))
		return int(min(max(length, 1), float64(longest)))
	}
}

// Backlog returns a trace in which every request is there at the beginning. Its
// throughput is the highest that a policy reaches.
func Backlog(shapes []Shape) []Request { return Every(0, shapes) }

// Every returns a trace with one request every gap.
func Every(gap time.Duration, shapes []Shape) []Request {
	trace := make([]Request, len(shapes))
	for i, s := range shapes {
		trace[i] = Request{Arrival: time.Duration(i) * gap, Shape: s}
	}
	return trace
}

// Poisson returns a trace whose requests arrive independently of each other, at
// rate requests a second on average.
func Poisson(random *rand.Rand, rate float64, shapes []Shape) []Request {
	trace := make([]Request, len(shapes))
	at := 0.0
	for i, s := range shapes {
		at += random.ExpFloat64() / rate
		trace[i] = Request{Arrival: time.Duration(at * float64(time.Second)), Shape: s}
	}
	return trace
}

// validate checks a trace against a machine.
func validate(m Machine, trace []Request) error {
	var last time.Duration
	for i, r := range trace {
		if r.Arrival < last {
			return fmt.Errorf("request %d arrives at %s, before the request before it", i, r.Arrival)
		}
		last = r.Arrival
		if r.Shape == nil {
			return fmt.Errorf("request %d has no shape", i)
		}
		if err := r.Shape.validate(len(m.Cells)); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	return nil
}
