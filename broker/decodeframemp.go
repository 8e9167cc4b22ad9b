package broker

import (
	"fmt"
	"math"
)

// The MessagePack side of decoding frames.

func decodeMsgPackFrame(f *Frame, payload []byte) error {
	if err := scanMsgPack(payload); err != nil {
		return fmt.Errorf("malformed MessagePack: %w", err)
	}
	in := &mpReader{b: payload}
	return in.fields(func(key string) error {
		if p := f.field(key); p.known() {
			return in.set(key, p)
		}
		return in.part(f, key)
	})
}

// fields calls set for each key of the map that comes next; set reads or skips
// the value.
func (r *mpReader) fields(set func(key string) error) error {
	h, _ := r.next()
	if h.kind != mpMap {
		return errNotObject
	}
	for range h.children / 2 {
		if r.peek() != mpString {
			r.skip()
			r.skip()
			continue
		}
		_, key := r.next()
		if err := set(string(key)); err != nil {
			return err
		}
	}
	return nil
}

// plain reads a map of plain fields.
func (r *mpReader) plain(field func(string) frameField) error {
	return r.fields(func(key string) error {
		if p := field(key); p.known() {
			return r.set(key, p)
		}
		r.skip()
		return nil
	})
}

// set reads the next value into a field.
func (r *mpReader) set(key string, p frameField) error {
	kind := r.peek()
	switch {
	case kind == mpNil:
		return p.setScalar(key, r.scalar())
	case p.str != nil:
		_, body := r.next()
		if kind != mpString {
			return errField(key)
		}
		*p.str = string(body)
		return nil
	case p.ids != nil:
		return r.ids(key, p.ids)
	}
	return p.setScalar(key, r.scalar())
}

func (r *mpReader) ids(key string, ids *[]int32) error {
	h, body := r.next()
	*ids = nil
	switch h.kind {
	case mpBin:
		v, err := idsOfBin(body)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		*ids = v
	case mpArray:
		for range h.children {
			n, ok := r.number()
			if !ok || !n.integer || n.float > math.MaxInt32 || n.float < math.MinInt32 {
				return errField(key)
			}
			*ids = append(*ids, int32(n.bits))
		}
	default:
		return errField(key)
	}
	return nil
}

// part reads the fields that have fields themselves, and skips unknown ones.
func (r *mpReader) part(f *Frame, key string) error {
	if r.peek() == mpNil {
		r.skip()
		return nil
	}
	switch key {
	case "logprobs":
		return r.logProbs(f)
	case "scores":
		return r.scores(&f.final().Scores)
	case "layers":
		return r.layers(f.final())
	case "alternatives":
		return r.alternatives(f.final())
	case "usage":
		return r.plain(f.final().Usage.field)
	case "timing":
		return r.plain(f.final().Timing.field)
	case "input":
		in := &Input{}
		if _, err := r.input(in); err != nil {
			return err
		}
		f.final().Echo = in
	case "meta":
		var p Params
		if err := r.meta(&p); err != nil {
			return err
		}
		f.Meta = p.Meta
	default:
		r.skip()
	}
	return nil
}

func (r *mpReader) logProbs(f *Frame) error {
	h, _ := r.next()
	if h.kind != mpArray {
		return errField("logprobs")
	}
	f.LogProbs = make([][]TokenLogProb, h.children)
	for i := range f.LogProbs {
		c, _ := r.next()
		if c.kind != mpArray {
			return errField("logprobs")
		}
		for range c.children {
			pair, _ := r.next()
			if pair.kind != mpArray || pair.children != 2 {
				return errField("logprobs")
			}
			id, ok := r.number()
			if !ok || !id.integer || id.negative || id.bits > math.MaxInt32 {
				return errField("logprobs")
			}
			p := TokenLogProb{ID: int32(id.bits)}
			if err := r.set("logprobs", frameField{real: &p.LogProb}); err != nil {
				return err
			}
			f.LogProbs[i] = append(f.LogProbs[i], p)
		}
	}
	return nil
}

func (r *mpReader) scores(scores *[]Score) error {
	*scores = nil
	return r.fields(func(label string) error {
		s := Score{Label: label}
		err := r.set("scores", frameField{real: &s.Value})
		*scores = append(*scores, s)
		return err
	})
}

func (r *mpReader) layers(x *Final) error {
	h, _ := r.next()
	if h.kind != mpArray {
		return errField("layers")
	}
	x.Layers = nil
	for i := range h.children { // grows with what is really there
		var l Layer
		err := r.fields(func(key string) error {
			if key == "scores" && r.peek() != mpNil {
				return r.scores(&l.Scores)
			}
			if p := l.field(key); p.known() {
				return r.set(key, p)
			}
			r.skip()
			return nil
		})
		if err != nil {
			return fmt.Errorf("layers[%d]: %w", i, err)
		}
		x.Layers = append(x.Layers, l)
	}
	return nil
}

func (r *mpReader) alternatives(x *Final) error {
	h, _ := r.next()
	if h.kind != mpArray {
		return errField("alternatives")
	}
	x.Alternatives = nil
	for i := range h.children { // grows with what is really there
		var a Alternative
		if err := r.plain(a.field); err != nil {
			return fmt.Errorf("alternatives[%d]: %w", i, err)
		}
		x.Alternatives = append(x.Alternatives, a)
	}
	return nil
}
