package broker

import (
	"math"
	"unicode/utf8"
)

// The bounds of parameters. What a value means is the model's matter. Those of
// stop texts are the decoder's own: package models/tokenizer has the same
// numbers, and TestStopBounds of package worker holds the two together.
const (
	maxStops      = 16
	maxStopLength = 128 // bytes of one
)

// scalar is a decoded parameter value that is not a container.
type scalar struct {
	kind scalarKind
	num  number
	flag bool
}

type scalarKind uint8

const (
	scalarOther scalarKind = iota // a string or a container
	scalarNull
	scalarBool
	scalarNumber
)

// set stores a parameter. Keys it does not know are ignored; null counts as
// absent.
func (p *Params) set(key string, v scalar) (err *Error) {
	switch key {
	case "max_tokens":
		p.MaxTokens, err = v.count(key)
	case "temperature":
		p.Temperature, err = v.real(key)
	case "top_k":
		p.TopK, err = v.count(key)
	case "top_p":
		p.TopP, err = v.real(key)
	case "seed":
		p.Seed, err = v.seed(key)
	case "beam_width":
		p.BeamWidth, err = v.count(key)
	case "n_best":
		p.NBest, err = v.count(key)
	case "logprobs":
		p.LogProbs, err = v.count(key)
	case "ramps":
		p.Ramps, err = v.boolean(key)
	case "echo":
		p.Echo, err = v.boolean(key)
	}
	return err
}

func (v scalar) integer(key string) (number, *Error) {
	switch {
	case v.kind != scalarNumber || !v.num.integer:
		return number{}, badRequest("%s: not an integer", key)
	case v.num.negative:
		return number{}, badRequest("%s: %d is negative", key, int64(v.num.bits))
	}
	return v.num, nil
}

func (v scalar) count(key string) (*int, *Error) {
	if v.kind == scalarNull {
		return nil, nil
	}
	n, err := v.integer(key)
	if err != nil {
		return nil, err
	}
	if n.bits > math.MaxInt32 {
		return nil, badRequest("%s: %d is above %d", key, n.bits, math.MaxInt32)
	}
	i := int(n.bits)
	return &i, nil
}

func (v scalar) seed(key string) (*uint64, *Error) {
	if v.kind == scalarNull {
		return nil, nil
	}
	n, err := v.integer(key)
	if err != nil {
		return nil, err
	}
	return &n.bits, nil
}

func (v scalar) real(key string) (*float64, *Error) {
	switch f := v.num.float; {
	case v.kind == scalarNull:
		return nil, nil
	case v.kind != scalarNumber:
		return nil, badRequest("%s: not a number", key)
	case math.IsNaN(f) || math.IsInf(f, 0):
		return nil, badRequest("%s: not finite", key)
	case f < 0:
		return nil, badRequest("%s: %g is negative", key, f)
	default:
		return &f, nil
	}
}

func (v scalar) boolean(key string) (bool, *Error) {
	if v.kind != scalarBool && v.kind != scalarNull {
		return false, badRequest("%s: not a boolean", key)
	}
	return v.flag, nil
}

// addStop checks and stores one stop string.
func (p *Params) addStop(s string) *Error {
	switch {
	case len(p.Stop) == maxStops:
		return badRequest("stop: more than %d strings", maxStops)
	case s == "" || len(s) > maxStopLength:
		return badRequest("stop[%d]: length %d not in 1..%d bytes", len(p.Stop), len(s), maxStopLength)
	case !utf8.ValidString(s):
		return badRequest("stop[%d]: not UTF-8", len(p.Stop))
	}
	p.Stop = append(p.Stop, s)
	return nil
}

// setMeta checks and copies an encoded map.
func (p *Params) setMeta(raw []byte) *Error {
	if err := Meta(raw).check(); err != nil {
		return badRequest("meta: %v", err)
	}
	p.Meta = append(Meta(nil), raw...)
	return nil
}

func errMissingInput() *Error { return badRequest("input: missing") }
