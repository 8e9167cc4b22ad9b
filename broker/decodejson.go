package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decodeJSON reads a request's payload. Of repeated keys the last counts.
func decodeJSON(r *Request, payload []byte) *Error {
	hasInput := false
	err := eachJSONField(payload, func(key string, raw []byte) error {
		var err *Error
		switch key {
		case "input":
			hasInput, err = jsonInput(&r.Input, raw)
		case "stop":
			err = jsonStops(&r.Params, raw)
		case "meta":
			err = jsonMeta(&r.Params, raw)
		default:
			err = r.Params.set(key, jsonScalar(raw))
		}
		if err != nil {
			return err // a typed nil must not become an error
		}
		return nil
	})
	var bad *Error
	switch {
	case errors.As(err, &bad):
		return bad
	case err != nil:
		return badRequest("payload: malformed JSON: %v", err)
	case !hasInput:
		return errMissingInput()
	}
	return nil
}

var errNotObject = errors.New("not an object")

// eachJSONField checks that b is one object within the bounds and calls f for
// each of its fields in order. The raw value is only valid during the call.
func eachJSONField(b []byte, f func(key string, raw []byte) error) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return errEmpty
	}
	if !utf8.Valid(b) {
		return errors.New("not UTF-8")
	}
	if err := scanJSON(b); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil {
		return plainJSONError(err)
	} else if t != json.Delim('{') {
		return errNotObject
	}
	var raw json.RawMessage
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return plainJSONError(err)
		}
		if err := d.Decode(&raw); err != nil {
			return plainJSONError(err)
		}
		name, _ := key.(string)
		if err := f(name, raw); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return plainJSONError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errTrailing
	}
	return nil
}

// plainJSONError says "truncated" instead of "EOF".
func plainJSONError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTruncated
	}
	return err
}

func isNull(raw []byte) bool { return string(raw) == "null" }

func jsonInput(in *Input, raw []byte) (present bool, err *Error) {
	*in = Input{}
	switch raw[0] {
	case 'n':
		return false, nil
	case '"':
		if err := json.Unmarshal(raw, &in.Text); err != nil {
			return true, badRequest("input: %v", err)
		}
		return true, nil
	case '[':
		ids, bad, err := jsonIDs(raw)
		if err != nil {
			return true, badTokenID(bad)
		}
		*in = Input{IDs: ids, IsIDs: true}
		return true, checkIDs(ids)
	}
	return true, badRequest("input: not a string or array of token ids")
}

// jsonIDs reads an array of integers; bad is the index of an element that is
// none.
func jsonIDs(raw []byte) (ids []int32, bad int, err error) {
	inner := bytes.TrimSpace(raw[1 : len(raw)-1])
	ids = make([]int32, 0, bytes.Count(inner, []byte{','})+1)
	if len(inner) == 0 {
		return ids, 0, nil
	}
	for part := range bytes.SplitSeq(inner, []byte{','}) {
		v, err := strconv.ParseInt(string(bytes.TrimSpace(part)), 10, 32)
		if err != nil {
			return nil, len(ids), fmt.Errorf("element %d: %w", len(ids), err)
		}
		ids = append(ids, int32(v))
	}
	return ids, 0, nil
}

func jsonStops(p *Params, raw []byte) *Error {
	p.Stop = nil
	if isNull(raw) {
		return nil
	}
	var stops []*string
	if err := json.Unmarshal(raw, &stops); err != nil {
		return badRequest("stop: not an array of strings")
	}
	for i, s := range stops {
		if s == nil {
			return badRequest("stop[%d]: not a string", i)
		}
		if err := p.addStop(*s); err != nil {
			return err
		}
	}
	return nil
}

func jsonMeta(p *Params, raw []byte) *Error {
	p.Meta = nil
	if isNull(raw) {
		return nil
	}
	if raw[0] != '{' {
		return badRequest("meta: not a map")
	}
	var line bytes.Buffer // a frame stays on one line
	if err := json.Compact(&line, raw); err != nil {
		return badRequest("meta: %v", err)
	}
	return p.setMeta(line.Bytes())
}

// jsonScalar reads a value that the decoder has accepted.
func jsonScalar(raw []byte) scalar {
	switch c := raw[0]; {
	case c == 'n':
		return scalar{kind: scalarNull}
	case c == 't' || c == 'f':
		return scalar{kind: scalarBool, flag: c == 't'}
	case c == '-' || '0' <= c && c <= '9':
		return scalar{kind: scalarNumber, num: jsonNumber(string(raw))}
	}
	return scalar{}
}

// jsonNumber reads an integer that has no fraction, exponent or excess size
// exactly, and everything else as a float.
func jsonNumber(s string) number {
	if !strings.ContainsAny(s, ".eE") {
		if v, err := strconv.ParseUint(s, 10, 64); err == nil {
			return unsigned(v)
		}
		if v, err := strconv.ParseInt(s, 10, 64); err == nil {
			return signed(v)
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		f = math.Inf(1) // out of range
	}
	return number{float: f}
}
