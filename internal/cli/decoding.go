package cli

import (
	"github.com/spf13/pflag"

	"github.com/cellmq/cellmq/broker"
)

// decodingFlags are the flags of request that say how the output is chosen.
// Those that are not given are not sent: the model has its own defaults, and
// refuses what its family does not do.
type decodingFlags struct {
	maxTokens, topK       int
	temperature, topP     float64
	seed                  uint64
	stop                  []string
	beam, nBest, logProbs int
	ramps                 bool
	given                 func(name string) bool
}

// bind defines the flags.
func (f *decodingFlags) bind(set *pflag.FlagSet) {
	f.given = set.Changed
	set.IntVar(&f.maxTokens, "max-tokens", 0, "bound of the output (default the model's)")
	set.Float64Var(&f.temperature, "temperature", 0, "draw tokens at random: 1 as the model has it, less for the probable ones (default 0, the most probable)")
	set.IntVar(&f.topK, "top-k", 0, "draw from so many of the most probable tokens (default all)")
	set.Float64Var(&f.topP, "top-p", 0, "draw from the most probable tokens that together have this probability (default all)")
	set.Uint64Var(&f.seed, "seed", 0, "seed of the draws (default the request's id)")
	set.StringArrayVar(&f.stop, "stop", nil, "text that ends the output and is not part of it; repeatable")
	set.IntVar(&f.beam, "beam", 0, "search with so many hypotheses (default none)")
	set.IntVar(&f.nBest, "n-best", 0, "print so many hypotheses of a search, each after its log-probability (default the best, without)")
	set.IntVar(&f.logProbs, "logprobs", 0, "with --json: most probable tokens to report for each token (default no log-probabilities)")
	set.BoolVar(&f.ramps, "ramps", false, "print what each layer of a classifier says, a line for each")
}

// first returns the name of a flag that was given, or nothing.
func (f *decodingFlags) first() string {
	for _, name := range []string{
		"max-tokens", "temperature", "top-k", "top-p", "seed", "stop", "beam", "n-best", "logprobs", "ramps",
	} {
		if f.given(name) {
			return name
		}
	}
	return ""
}

// set fills in the parameters whose flags were given.
func (f *decodingFlags) set(p *broker.Params) {
	p.MaxTokens = chosen(f, "max-tokens", &f.maxTokens)
	p.Temperature = chosen(f, "temperature", &f.temperature)
	p.TopK = chosen(f, "top-k", &f.topK)
	p.TopP = chosen(f, "top-p", &f.topP)
	p.Seed = chosen(f, "seed", &f.seed)
	p.Stop = f.stop
	p.BeamWidth = chosen(f, "beam", &f.beam)
	p.NBest = chosen(f, "n-best", &f.nBest)
	p.LogProbs = chosen(f, "logprobs", &f.logProbs)
	p.Ramps = f.ramps
}

// chosen returns a value whose flag was given, else nil.
func chosen[T any](f *decodingFlags, name string, value *T) *T {
	if f.given(name) {
		return value
	}
	return nil
}
