package broker

import (
	"fmt"
	"math"
)

// encodeRequest returns a request's payload. What no payload can carry is an
// [*Error]: a text together with ids, or a parameter.
func encodeRequest(enc Encoding, in *Input, p *Params) ([]byte, error) {
	if in.ids() && in.Text != "" {
		return nil, badRequest("input: a text or token ids wanted, not both")
	}
	if err := p.checkFinite(); err != nil {
		return nil, err
	}
	meta, err := p.Meta.in(enc)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	w := writer{enc: enc}
	w.open(1 + count(p.MaxTokens != nil, p.Temperature != nil, p.TopP != nil, p.TopK != nil, p.Seed != nil, len(p.Stop) > 0,
		p.BeamWidth != nil, p.NBest != nil, p.LogProbs != nil, p.Ramps, p.Echo, len(meta) > 0))
	w.input(in)
	w.optInt("max_tokens", p.MaxTokens)
	w.optFloat("temperature", p.Temperature)
	w.optFloat("top_p", p.TopP)
	w.optInt("top_k", p.TopK)
	if p.Seed != nil {
		w.uint("seed", *p.Seed)
	}
	if len(p.Stop) > 0 {
		w.key("stop")
		w.array(len(p.Stop))
		for _, s := range p.Stop {
			w.element()
			w.strValue(s)
		}
		w.closeArray()
	}
	w.optInt("beam_width", p.BeamWidth)
	w.optInt("n_best", p.NBest)
	w.optInt("logprobs", p.LogProbs)
	if p.Ramps {
		w.bool("ramps", true)
	}
	if p.Echo {
		w.bool("echo", true)
	}
	w.meta(meta)
	w.close()
	return w.b, nil
}

// checkFinite refuses what would be written as null, and so read as absent.
func (p *Params) checkFinite() error {
	for _, f := range []struct {
		key   string
		value *float64
	}{{"temperature", p.Temperature}, {"top_p", p.TopP}} {
		if v := f.value; v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
			return badRequest("%s: not finite", f.key)
		}
	}
	return nil
}

func (w *writer) optInt(key string, v *int) {
	if v != nil {
		w.int(key, int64(*v))
	}
}

func (w *writer) optFloat(key string, v *float64) {
	if v != nil {
		w.float(key, *v)
	}
}
