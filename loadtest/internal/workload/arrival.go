package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// The laws of arrivals.
const (
	// Poisson is independent arrivals: exponential gaps.
	Poisson = "poisson"
	// Gamma is bursts: gaps of a gamma law whose shape is the burstiness. Below 1
	// arrivals cluster, 1 is Poisson, above they even out.
	Gamma = "gamma"
	// Constant is equal gaps.
	Constant = "constant"
	// Closed has no times: a request is sent as soon as fewer than the allowed
	// number are under way.
	Closed = "closed"
)

// MostRate bounds the arrivals a second.
const MostRate = 1e6

// mostInFlight bounds the requests under way, and longestGap, which no load outlasts, the
// seconds between two of them. With a shape below leastShape a load might be one burst
// without an end.
const (
	mostInFlight = 1_000_000
	longestGap   = latest + 1
	leastShape   = 0.001
)

// Arrivals is a law of arrivals.
type Arrivals struct {
	// Law is Poisson, Gamma, Constant or Closed.
	Law string `json:"law"`
	// Rate is requests a second, on average.
	Rate float64 `json:"rate,omitempty"`
	// Burstiness is the shape of Gamma.
	Burstiness float64 `json:"burstiness,omitempty"`
	// InFlight bounds the requests under way. Closed keeps so many; with another
	// law requests beyond it wait for their turn, and the wait counts. 0: no bound.
	InFlight int `json:"max_concurrency,omitempty"`
}

func (a *Arrivals) validate() error {
	switch a.Law {
	case Closed:
		if a.InFlight < 1 || a.InFlight > mostInFlight {
			return fmt.Errorf("max concurrency %d: must be between 1 and %d in a closed loop", a.InFlight, mostInFlight)
		}
		return nil
	case Poisson, Gamma, Constant:
	default:
		return fmt.Errorf("arrivals %q: must be %s, %s, %s or %s", a.Law, Poisson, Gamma, Constant, Closed)
	}
	switch {
	case !(a.Rate > 0 && a.Rate <= MostRate):
		return fmt.Errorf("rate %g: must be above 0 and at most %g", a.Rate, float64(MostRate))
	case a.Law == Gamma && !(a.Burstiness >= leastShape && a.Burstiness <= 1000):
		return fmt.Errorf("burstiness %g: must be between %g and 1000", a.Burstiness, leastShape)
	case a.InFlight < 0 || a.InFlight > mostInFlight:
		return fmt.Errorf("max concurrency %d: must be between 0 and %d", a.InFlight, mostInFlight)
	}
	return nil
}

// gap draws the time until the next request.
func (a *Arrivals) gap(random *rand.Rand) time.Duration {
	gap := 0.0 // in mean gaps
	switch a.Law {
	case Closed:
		return 0
	case Constant:
		gap = 1
	case Poisson:
		gap = random.ExpFloat64()
	case Gamma:
		gap = gamma(random, a.Burstiness) / a.Burstiness
	}
	return time.Duration(min(gap/a.Rate, longestGap) * float64(time.Second))
}

// gamma draws from the gamma law of the given shape and scale 1, by Marsaglia's
// and Tsang's method of squeezing ("A simple method for generating gamma
// variables", 2000).
func gamma(random *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(random, shape+1) * math.Pow(1-random.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := random.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-random.Float64()) < 0.5*x*x+d*(1-v+math.Log(v)) {
			return d * v
		}
	}
}
