package decode_test

import (
	"math"
	"math/rand/v2"

	"github.com/cellmq/cellmq/cellrt"
)

// world is a language with made-up probabilities: the logits after a prefix
// are a function of the prefix.
type world struct {
	seed  uint64
	vocab int
	// grain makes ties: logits are multiples of it.
	grain float64
}

// output is what a node reports after a prefix.
func (w world) output(prefix []int32) cellrt.Output {
	state := w.seed
	for _, t := range prefix {
		state = state*6364136223846793005 + uint64(t) + 1442695040888963407
	}
	rng := rand.New(rand.NewPCG(state, 1))
	out := cellrt.Output{Values: make([]float32, w.vocab)}
	sum := 0.0
	for i := range out.Values {
		out.Values[i] = float32(math.Round(2*rng.NormFloat64()/w.grain) * w.grain)
		if out.Values[i] > out.Values[out.Token] {
			out.Token = int32(i)
		}
		sum += math.Exp(float64(out.Values[i]))
	}
	out.LogProb = out.Values[out.Token] - float32(math.Log(sum))
	return out
}

func ids(tokens []cellrt.Token) []int32 {
	out := []int32{}
	for _, t := range tokens {
		out = append(out, t.ID)
	}
	return out
}
