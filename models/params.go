package models

// refuseTokenParams refuses every parameter about output tokens, for families
// that emit none.
func refuseTokenParams(p Params) error {
	for _, param := range []struct {
		field string
		given bool
	}{
		{fieldMaxTokens, p.MaxTokens != nil},
		{"temperature", p.Temperature != nil},
		{"top_k", p.TopK != nil},
		{"top_p", p.TopP != nil},
		{"seed", p.Seed != nil},
		{"stop", len(p.Stop) > 0},
		{"beam_width", p.BeamWidth != nil},
		{"n_best", p.NBest != nil},
		{"logprobs", p.LogProbs != nil},
	} {
		if param.given {
			return inputErrorf(UnsupportedParameter, param.field, "this model answers with a label, not with tokens")
		}
	}
	return nil
}

func unsupported(field, what string) error {
	return inputErrorf(UnsupportedParameter, field, "this model does not support %s", what)
}
