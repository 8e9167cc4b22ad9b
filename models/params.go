package models

import "math"

// refuseParams refuses every parameter that asks for more than greedy decoding,
// and every value that makes no sense for any family.
func refuseParams(p Params) error {
	if t := p.Temperature; t != nil {
		if math.IsNaN(*t) || *t < 0 {
			return inputErrorf(BadRequest, "temperature", "%v, 0 or more wanted", *t)
		}
		if *t > 0 {
			return inputErrorf(UnsupportedParameter, "temperature", "%v, this model supports only 0, greedy decoding", *t)
		}
	}
	switch {
	case p.Ramps:
		return unsupported(fieldRamps, "ramps")
	case p.TopK != nil:
		return unsupported("top_k", "sampling")
	case p.TopP != nil:
		return unsupported("top_p", "sampling")
	case p.Seed != nil:
		return unsupported("seed", "sampling")
	case len(p.Stop) > 0:
		return unsupported("stop", "a stop text")
	}
	if err := checkCount("beam_width", p.BeamWidth, 1); err != nil {
		return err
	}
	if err := checkCount("n_best", p.NBest, 1); err != nil {
		return err
	}
	return checkCount("logprobs", p.LogProbs, 0)
}

// checkCount accepts a count that is absent or only, the one value that
// greedy decoding can give. Less is malformed.
func checkCount(field string, got *int, only int) error {
	switch {
	case got == nil || *got == only:
		return nil
	case *got < only:
		return inputErrorf(BadRequest, field, "%d, %d or more wanted", *got, only)
	default:
		return inputErrorf(UnsupportedParameter, field, "%d, this model supports only %d", *got, only)
	}
}

func unsupported(field, what string) error {
	return inputErrorf(UnsupportedParameter, field, "this model does not support %s", what)
}
