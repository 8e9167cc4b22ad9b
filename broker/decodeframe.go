package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// DecodeFrame decodes a frame of either encoding. Payload may be hostile: it
// is checked as requests are. Unknown keys are ignored; a frame of an unknown
// type decodes. Nothing of payload is kept.
func DecodeFrame(payload []byte) (Frame, error) {
	var f Frame
	var err error
	switch {
	case len(payload) == 0:
		err = errEmpty
	case payload[0] == '{':
		err = decodeJSONFrame(&f, payload)
	default:
		err = decodeMsgPackFrame(&f, payload)
	}
	if err != nil {
		return Frame{}, fmt.Errorf("decode frame: %w", err)
	}
	if f.Type == "" {
		return Frame{}, errors.New("decode frame: type: missing")
	}
	if f.Type == FrameError && f.Error == nil {
		f.Error = NewError(CodeInternal, "error frame without a code")
	}
	if f.Type == FrameFinal && f.Final == nil {
		f.Final = &Final{LogProb: math.NaN()}
	}
	return f, nil
}

// frameField is a field of a frame, and where a decoder puts its value. Both
// encodings share the list through [Frame.field].
type frameField struct {
	str   *string
	uint  *uint64
	int   *int
	ids   *[]int32
	flag  *bool
	real  *float64
	milli *time.Duration
}

// field returns where the value of a plain key goes; the zero value for other
// keys. It adds the final or error part that the key belongs to.
func (f *Frame) field(key string) frameField {
	switch key {
	case "type":
		return frameField{str: (*string)(&f.Type)}
	case "id":
		return frameField{str: &f.ID}
	case "epoch":
		return frameField{uint: &f.Epoch}
	case "attempt":
		return frameField{uint: &f.Attempt}
	case "seq":
		return frameField{uint: &f.Seq}
	case "worker":
		return frameField{str: &f.Worker}
	case "model":
		return frameField{str: &f.Model}
	case "version":
		return frameField{str: &f.Version}
	case "digest":
		return frameField{str: &f.Digest}
	case "text":
		return frameField{str: &f.Text}
	case "tokens":
		return frameField{ids: &f.Tokens}
	case "index":
		return frameField{int: &f.Index}
	case "provisional":
		return frameField{flag: &f.Provisional}
	case "revision":
		return frameField{int: &f.Revision}
	case "phase":
		return frameField{str: &f.Phase}
	}
	return f.endField(key)
}

func (f *Frame) endField(key string) frameField {
	switch key {
	case "finish_reason":
		return frameField{str: (*string)(&f.final().FinishReason)}
	case "logprob":
		return frameField{real: &f.final().LogProb}
	case "label":
		return frameField{str: &f.final().Label}
	case "deterministic":
		return frameField{flag: &f.final().Deterministic}
	case "code":
		return frameField{str: (*string)(&f.fail().Code)}
	case "message":
		return frameField{str: &f.fail().Message}
	case "retryable":
		return frameField{flag: &f.fail().Retryable}
	case "retry_after_ms":
		return frameField{milli: &f.fail().RetryAfter}
	}
	return frameField{}
}

func (f *Frame) final() *Final {
	if f.Final == nil {
		f.Final = &Final{LogProb: math.NaN()}
	}
	return f.Final
}

func (f *Frame) fail() *Error {
	if f.Error == nil {
		f.Error = &Error{}
	}
	return f.Error
}

func (u *Usage) field(key string) frameField {
	switch key {
	case "input_tokens":
		return frameField{int: &u.InputTokens}
	case "output_tokens":
		return frameField{int: &u.OutputTokens}
	}
	return frameField{}
}

func (t *Timing) field(key string) frameField {
	switch key {
	case "broker_ms":
		return frameField{milli: &t.Broker}
	case "queue_ms":
		return frameField{milli: &t.Queue}
	case "first_token_ms":
		return frameField{milli: &t.FirstToken}
	case "total_ms":
		return frameField{milli: &t.Total}
	}
	return frameField{}
}

func (a *Alternative) field(key string) frameField {
	switch key {
	case "text":
		return frameField{str: &a.Text}
	case "tokens":
		return frameField{ids: &a.Tokens}
	case "logprob":
		return frameField{real: &a.LogProb}
	case "finish_reason":
		return frameField{str: (*string)(&a.FinishReason)}
	}
	return frameField{}
}

func (l *Layer) field(key string) frameField {
	if key == "label" {
		return frameField{str: &l.Label}
	}
	return frameField{}
}

// known reports whether the field has a place.
func (p frameField) known() bool { return p != frameField{} }

func errField(key string) error { return fmt.Errorf("%s: wrong type", key) }

// setScalar stores a number, boolean or null.
func (p frameField) setScalar(key string, v scalar) error {
	switch {
	case p.real != nil && v.kind == scalarNull:
		*p.real = math.NaN()
	case v.kind == scalarNull: // absent
	case p.flag != nil && v.kind == scalarBool:
		*p.flag = v.flag
	case v.kind != scalarNumber:
		return errField(key)
	case p.real != nil:
		*p.real = v.num.float
	case p.milli != nil:
		const longest = float64(math.MaxInt64 / int64(time.Millisecond))
		if !(math.Abs(v.num.float) < longest) { // NaN too
			return errField(key)
		}
		*p.milli = time.Duration(math.Round(v.num.float*1000)) * time.Microsecond
	case p.uint != nil && v.num.integer && !v.num.negative:
		*p.uint = v.num.bits
	case p.int != nil && v.num.integer && v.num.float <= math.MaxInt32 && v.num.float >= math.MinInt32:
		*p.int = int(v.num.bits)
	default:
		return errField(key)
	}
	return nil
}

// The JSON side.

func decodeJSONFrame(f *Frame, payload []byte) error {
	return eachJSONField(payload, func(key string, raw []byte) error {
		if p := f.field(key); p.known() {
			return p.setJSON(key, raw)
		}
		return f.setJSONPart(key, raw)
	})
}

func (p frameField) setJSON(key string, raw []byte) error {
	switch {
	case isNull(raw):
		return p.setScalar(key, scalar{kind: scalarNull})
	case p.str != nil:
		if json.Unmarshal(raw, p.str) != nil {
			return errField(key)
		}
		return nil
	case p.ids != nil:
		if raw[0] != '[' {
			return errField(key)
		}
		ids, _, err := jsonIDs(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if *p.ids = ids; len(ids) == 0 {
			*p.ids = nil
		}
		return nil
	}
	return p.setScalar(key, jsonScalar(raw))
}

// setJSONPart stores the fields that have fields themselves.
func (f *Frame) setJSONPart(key string, raw []byte) error {
	if isNull(raw) {
		return nil
	}
	switch key {
	case "logprobs":
		return f.setJSONLogProbs(raw)
	case "scores":
		return setJSONScores(&f.final().Scores, raw)
	case "layers":
		return f.setJSONLayers(raw)
	case "alternatives":
		return f.setJSONAlternatives(raw)
	case "usage":
		return eachJSONPlain(raw, f.final().Usage.field)
	case "timing":
		return eachJSONPlain(raw, f.final().Timing.field)
	case "input":
		in := &Input{}
		if _, err := jsonInput(in, raw); err != nil {
			return err
		}
		f.final().Echo = in
	case "meta":
		var p Params
		if err := jsonMeta(&p, raw); err != nil {
			return err
		}
		f.Meta = p.Meta
	}
	return nil
}

func eachJSONPlain(raw []byte, field func(string) frameField) error {
	return eachJSONField(raw, func(key string, raw []byte) error {
		if p := field(key); p.known() {
			return p.setJSON(key, raw)
		}
		return nil
	})
}

func (f *Frame) setJSONLogProbs(raw []byte) error {
	var tokens [][][]*float64
	if json.Unmarshal(raw, &tokens) != nil {
		return errField("logprobs")
	}
	f.LogProbs = make([][]TokenLogProb, len(tokens))
	for i, candidates := range tokens {
		for _, pair := range candidates {
			if len(pair) != 2 || pair[0] == nil || !(*pair[0] >= 0 && *pair[0] <= math.MaxInt32) {
				return errField("logprobs")
			}
			c := TokenLogProb{ID: int32(*pair[0]), LogProb: math.NaN()}
			if pair[1] != nil {
				c.LogProb = *pair[1]
			}
			f.LogProbs[i] = append(f.LogProbs[i], c)
		}
	}
	return nil
}

func setJSONScores(scores *[]Score, raw []byte) error {
	*scores = nil
	return eachJSONField(raw, func(label string, raw []byte) error {
		s := Score{Label: label}
		err := (frameField{real: &s.Value}).setJSON("scores", raw)
		*scores = append(*scores, s)
		return err
	})
}

func (f *Frame) setJSONLayers(raw []byte) error {
	var all []json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return errField("layers")
	}
	x := f.final()
	x.Layers = make([]Layer, len(all))
	for i := range all {
		l := &x.Layers[i]
		err := eachJSONField(all[i], func(key string, raw []byte) error {
			if key == "scores" && !isNull(raw) {
				return setJSONScores(&l.Scores, raw)
			}
			if p := l.field(key); p.known() {
				return p.setJSON(key, raw)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("layers[%d]: %w", i, err)
		}
	}
	return nil
}

func (f *Frame) setJSONAlternatives(raw []byte) error {
	var all []json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return errField("alternatives")
	}
	x := f.final()
	x.Alternatives = nil
	for i := range all {
		var a Alternative
		if err := eachJSONPlain(all[i], a.field); err != nil {
			return fmt.Errorf("alternatives[%d]: %w", i, err)
		}
		x.Alternatives = append(x.Alternatives, a)
	}
	return nil
}
