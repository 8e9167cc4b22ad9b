package models

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/cellmq/cellmq/models/decode"
	"github.com/cellmq/cellmq/models/tokenizer"
)

// maxTemperature bounds the temperature; far beyond it all tokens are equally
// probable.
const maxTemperature = 100

// decoding are a family's bounds of what decodes its output.
type decoding struct {
	maxTokens     int // ceiling of max_tokens
	defaultTokens int // max_tokens of a request without
	maxBeam       int
	target        tokenizer.Tokenizer
}

// options checks the parameters of a family that writes tokens and returns what
// they ask for.
func (d decoding) options(p Params) (decode.Options, error) {
	o := decode.Options{MaxTokens: d.defaultTokens, BeamWidth: 1, Tokenizer: d.target}
	if p.Ramps {
		return o, unsupported(fieldRamps, "ramps")
	}
	if err := within(fieldMaxTokens, p.MaxTokens, 1, d.maxTokens, &o.MaxTokens); err != nil {
		return o, err
	}
	if err := within("logprobs", p.LogProbs, 0, decode.MaxLogProbs, &o.LogProbs); err != nil {
		return o, err
	}
	if err := within("beam_width", p.BeamWidth, 1, d.maxBeam, &o.BeamWidth); err != nil {
		return o, err
	}
	nBest := 0
	if err := within("n_best", p.NBest, 1, o.BeamWidth, &nBest); err != nil {
		return o, err
	}
	var err error
	if o.Sampling, err = sampling(p); err != nil {
		return o, err
	}
	if o.Stops, err = tokenizer.NewStops(p.Stop); err != nil {
		return o, inputErrorf(BadRequest, "stop", "%s", err)
	}
	if o.BeamWidth > 1 {
		o.NBest = nBest
		return o, refuseWithSearch(p)
	}
	return o, nil
}

// within checks a count against its bounds and sets it when it was given.
func within(field string, got *int, least, most int, set *int) error {
	if got == nil {
		return nil
	}
	if *got < least || *got > most {
		return inputErrorf(BadRequest, field, "%d, %d to %d wanted", *got, least, most)
	}
	*set = *got
	return nil
}

// sampling checks the parameters of sampling. Without a temperature nothing is
// drawn and the others make no difference.
func sampling(p Params) (decode.Sampling, error) {
	var s decode.Sampling
	if t := p.Temperature; t != nil {
		if math.IsNaN(*t) || *t < 0 || *t > maxTemperature {
			return s, inputErrorf(BadRequest, "temperature", "%v, 0 to %d wanted", *t, maxTemperature)
		}
		s.Temperature = *t
	}
	if err := within("top_k", p.TopK, 1, math.MaxInt32, &s.TopK); err != nil {
		return s, err
	}
	if t := p.TopP; t != nil {
		if math.IsNaN(*t) || *t <= 0 || *t > 1 {
			return s, inputErrorf(BadRequest, "top_p", "%v, more than 0 and at most 1 wanted", *t)
		}
		s.TopP = *t
	}
	if p.Seed != nil {
		s.Seed = *p.Seed
	} else {
		sum := sha256.Sum256([]byte(p.RequestID))
		s.Seed = binary.BigEndian.Uint64(sum[:])
	}
	return s, nil
}

// refuseWithSearch refuses what a search cannot do.
func refuseWithSearch(p Params) error {
	refuse := func(field string) error {
		return inputErrorf(UnsupportedParameter, field, "not together with a beam_width of more than 1")
	}
	switch {
	case p.Temperature != nil && *p.Temperature > 0:
		return refuse("temperature")
	case p.TopK != nil:
		return refuse("top_k")
	case p.TopP != nil:
		return refuse("top_p")
	case p.Seed != nil:
		return refuse("seed")
	case len(p.Stop) > 0:
		return refuse("stop")
	case p.LogProbs != nil && *p.LogProbs > 0:
		return refuse("logprobs")
	}
	return nil
}

// alternatives returns the hypotheses of a search.
func alternatives(all []decode.Hypothesis) []Alternative {
	var out []Alternative
	for _, h := range all {
		out = append(out, Alternative{Tokens: h.Tokens, LogProb: h.LogProb, Reason: h.Reason})
	}
	return out
}
