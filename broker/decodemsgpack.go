package broker

import (
	"math"
	"unicode/utf8"
)

// decodeMsgPack reads a request's payload. Of repeated keys the last counts.
func decodeMsgPack(r *Request, payload []byte) *Error {
	if h, err := readHead(payload); err != nil {
		return badRequest("payload: malformed MessagePack: %v", err)
	} else if h.kind != mpMap {
		return badRequest("payload: not a map")
	}
	if err := scanMsgPack(payload); err != nil {
		return badRequest("payload: malformed MessagePack: %v", err)
	}
	in := &mpReader{b: payload}
	top, _ := in.next()
	hasInput := false
	for range top.children / 2 {
		if in.peek() != mpString {
			in.skip() // a key that no parameter has
			in.skip()
			continue
		}
		_, key := in.next()
		var err *Error
		switch string(key) {
		case "input":
			hasInput, err = in.input(&r.Input)
		case "stop":
			err = in.stops(&r.Params)
		case "meta":
			err = in.meta(&r.Params)
		default:
			err = in.param(&r.Params, string(key))
		}
		if err != nil {
			return err
		}
	}
	if !hasInput {
		return errMissingInput()
	}
	return nil
}

// input reads the model's input; present is false for nil.
func (r *mpReader) input(in *Input) (present bool, err *Error) {
	*in = Input{}
	h, body := r.next()
	switch h.kind {
	case mpNil:
		return false, nil
	case mpString:
		if !utf8.Valid(body) {
			return true, badRequest("input: not UTF-8")
		}
		in.Text = string(body)
	case mpBin:
		ids, err := idsOfBin(body)
		if err != nil {
			return true, badRequest("input: %v", err)
		}
		*in = Input{IDs: ids, IsIDs: true}
		return true, checkIDs(ids)
	case mpArray:
		in.IsIDs, in.IDs = true, make([]int32, h.children)
		for i := range in.IDs {
			n, ok := r.number()
			if !ok || !n.integer || n.negative || n.bits > math.MaxInt32 {
				return true, badTokenID(i)
			}
			in.IDs[i] = int32(n.bits)
		}
	default:
		return true, badRequest("input: not a string, array of token ids, or bin")
	}
	return true, nil
}

func badTokenID(i int) *Error {
	return badRequest("input[%d]: not a token id in 0..%d", i, math.MaxInt32)
}

func checkIDs(ids []int32) *Error {
	for i, id := range ids {
		if id < 0 {
			return badTokenID(i)
		}
	}
	return nil
}

func (r *mpReader) stops(p *Params) *Error {
	p.Stop = nil
	h, _ := r.next()
	if h.kind == mpNil {
		return nil
	}
	if h.kind != mpArray {
		return badRequest("stop: not an array of strings")
	}
	for i := range h.children {
		e, body := r.next()
		if e.kind != mpString {
			return badRequest("stop[%d]: not a string", i)
		}
		if err := p.addStop(string(body)); err != nil {
			return err
		}
	}
	return nil
}

func (r *mpReader) meta(p *Params) *Error {
	p.Meta = nil
	raw := r.skip()
	if len(raw) == 1 && raw[0] == 0xc0 {
		return nil
	}
	return p.setMeta(raw)
}

func (r *mpReader) param(p *Params, key string) *Error {
	return p.set(key, r.scalar())
}

// scalar reads any value; containers and strings are skipped.
func (r *mpReader) scalar() scalar {
	switch r.peek() {
	case mpNil:
		r.next()
		return scalar{kind: scalarNull}
	case mpBool:
		c := r.b[0]
		r.next()
		return scalar{kind: scalarBool, flag: c == 0xc3}
	case mpInt, mpUint, mpFloat:
		n, _ := r.number()
		return scalar{kind: scalarNumber, num: n}
	}
	r.skip()
	return scalar{}
}
