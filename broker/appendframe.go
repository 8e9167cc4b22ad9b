package broker

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// AppendFrame appends the encoding of f to dst. It allocates only to grow dst,
// and to translate a Meta of the other encoding, which is also its only error.
func AppendFrame(dst []byte, enc Encoding, f *Frame) ([]byte, error) {
	meta, err := f.Meta.in(enc)
	if err != nil {
		return dst, fmt.Errorf("append frame: %w", err)
	}
	w := writer{b: dst, enc: enc}
	n := 5
	switch f.Type {
	case FrameAccepted:
		n += 4
	case FrameToken:
		n += 3 + count(len(f.LogProbs) > 0, f.Provisional, f.Provisional)
	case FrameHeartbeat:
		n++
	case FrameFinal:
		n += finalFields(f)
	case FrameError:
		n += 3 + count(f.Error != nil && f.Error.RetryAfter > 0, len(meta) > 0)
	case FrameRetry:
	}
	w.open(n)
	w.str("type", string(f.Type))
	w.str("id", f.ID)
	w.uint("epoch", f.Epoch)
	w.uint("attempt", f.Attempt)
	w.uint("seq", f.Seq)
	switch f.Type {
	case FrameAccepted:
		w.str("worker", f.Worker)
		w.model(f)
	case FrameToken:
		w.token(f)
	case FrameHeartbeat:
		w.str("phase", f.Phase)
	case FrameFinal:
		w.final(f, meta)
	case FrameError:
		w.fail(f, meta)
	case FrameRetry:
	}
	w.close()
	return w.b, nil
}

func count(present ...bool) int {
	n := 0
	for _, p := range present {
		if p {
			n++
		}
	}
	return n
}

func finalFields(f *Frame) int {
	x := f.Final
	if x == nil {
		x = &Final{}
	}
	return 10 + count(x.Label != "", len(x.Scores) > 0, len(x.Layers) > 0, len(x.Alternatives) > 0, len(f.LogProbs) > 0, x.Echo != nil, len(f.Meta) > 0)
}

func (w *writer) model(f *Frame) {
	w.str("model", f.Model)
	w.str("version", f.Version)
	w.str("digest", f.Digest)
}

func (w *writer) token(f *Frame) {
	w.str("text", f.Text)
	w.ids("tokens", f.Tokens)
	w.int("index", int64(f.Index))
	if len(f.LogProbs) > 0 {
		w.logProbs(f.LogProbs)
	}
	if f.Provisional {
		w.bool("provisional", true)
		w.int("revision", int64(f.Revision))
	}
}

// logProbs writes, per token, an array of pairs of id and log-probability.
func (w *writer) logProbs(tokens [][]TokenLogProb) {
	w.key("logprobs")
	w.array(len(tokens))
	for _, candidates := range tokens {
		w.element()
		w.array(len(candidates))
		for _, c := range candidates {
			w.element()
			w.array(2)
			w.element()
			w.intValue(int64(c.ID))
			w.element()
			w.floatValue(c.LogProb)
			w.closeArray()
		}
		w.closeArray()
	}
	w.closeArray()
}

func (w *writer) final(f *Frame, meta Meta) {
	x := f.Final
	if x == nil {
		x = &Final{}
	}
	w.str("text", f.Text)
	w.ids("tokens", f.Tokens)
	w.str("finish_reason", string(x.FinishReason))
	w.float("logprob", x.LogProb)
	w.class(x.Label, x.Scores)
	w.layers(x.Layers)
	w.alternatives(x.Alternatives)
	if len(f.LogProbs) > 0 {
		w.logProbs(f.LogProbs)
	}
	w.key("usage")
	w.open(2)
	w.int("input_tokens", int64(x.Usage.InputTokens))
	w.int("output_tokens", int64(x.Usage.OutputTokens))
	w.close()
	w.key("timing")
	w.open(4)
	w.millis("broker_ms", x.Timing.Broker)
	w.millis("queue_ms", x.Timing.Queue)
	w.millis("first_token_ms", x.Timing.FirstToken)
	w.millis("total_ms", x.Timing.Total)
	w.close()
	w.model(f)
	w.bool("deterministic", x.Deterministic)
	if x.Echo != nil {
		w.input(x.Echo)
	}
	w.meta(meta)
}

func (w *writer) class(label string, scores []Score) {
	if label != "" {
		w.str("label", label)
	}
	if len(scores) > 0 {
		w.key("scores")
		w.open(len(scores))
		for _, s := range scores {
			w.float(s.Label, s.Value)
		}
		w.close()
	}
}

func (w *writer) layers(all []Layer) {
	if len(all) == 0 {
		return
	}
	w.key("layers")
	w.array(len(all))
	for i := range all {
		w.element()
		w.open(count(all[i].Label != "", len(all[i].Scores) > 0))
		w.class(all[i].Label, all[i].Scores)
		w.close()
	}
	w.closeArray()
}

func (w *writer) alternatives(all []Alternative) {
	if len(all) == 0 {
		return
	}
	w.key("alternatives")
	w.array(len(all))
	for i := range all {
		w.element()
		w.open(4)
		w.str("text", all[i].Text)
		w.ids("tokens", all[i].Tokens)
		w.float("logprob", all[i].LogProb)
		w.str("finish_reason", string(all[i].FinishReason))
		w.close()
	}
	w.closeArray()
}

func (w *writer) fail(f *Frame, meta Meta) {
	e := Error{Code: CodeInternal}
	if f.Error != nil {
		e = *f.Error
	}
	w.str("code", string(e.Code))
	w.str("message", e.Message)
	w.bool("retryable", e.Retryable)
	if e.RetryAfter > 0 {
		w.millis("retry_after_ms", e.RetryAfter)
	}
	w.meta(meta)
}

func (w *writer) input(in *Input) {
	if in.ids() {
		w.ids("input", in.IDs)
		return
	}
	w.str("input", in.Text)
}

func (w *writer) meta(m Meta) {
	if len(m) > 0 {
		w.key("meta")
		w.b = append(w.b, m...)
	}
}

// millis writes milliseconds with microseconds behind the point.
func (w *writer) millis(key string, d time.Duration) {
	w.float(key, float64(d.Microseconds())/1000)
}

// writer appends one value after another in one of the encodings. It is a
// value on the stack of its user; nothing of it escapes.
type writer struct {
	b     []byte
	enc   Encoding
	comma bool // JSON: a value stands before
}

// open begins a map of n fields, array an array of n elements: MessagePack
// needs the numbers.
func (w *writer) open(n int) {
	if w.enc == JSON {
		w.b, w.comma = append(w.b, '{'), false
		return
	}
	w.b = appendMPMap(w.b, n)
}

func (w *writer) close() {
	if w.enc == JSON {
		w.b, w.comma = append(w.b, '}'), true
	}
}

func (w *writer) array(n int) {
	if w.enc == JSON {
		w.b, w.comma = append(w.b, '['), false
		return
	}
	w.b = appendMPArray(w.b, n)
}

func (w *writer) closeArray() {
	if w.enc == JSON {
		w.b, w.comma = append(w.b, ']'), true
	}
}

// element goes before each element of an array, key before each value of a map.
func (w *writer) element() {
	if w.enc == JSON {
		if w.comma {
			w.b = append(w.b, ',')
		}
		w.comma = true
	}
}

func (w *writer) key(k string) {
	w.element()
	w.strValue(k)
	if w.enc == JSON {
		w.b = append(w.b, ':')
	}
}

func (w *writer) str(key, v string) {
	w.key(key)
	w.strValue(v)
}

func (w *writer) strValue(v string) {
	if w.enc == JSON {
		w.b = appendJSONString(w.b, v)
		return
	}
	w.b = appendMPString(w.b, v)
}

func (w *writer) uint(key string, v uint64) {
	w.key(key)
	if w.enc == JSON {
		w.b = strconv.AppendUint(w.b, v, 10)
		return
	}
	w.b = appendMPUint(w.b, v)
}

func (w *writer) int(key string, v int64) {
	w.key(key)
	w.intValue(v)
}

func (w *writer) intValue(v int64) {
	if w.enc == JSON {
		w.b = strconv.AppendInt(w.b, v, 10)
		return
	}
	w.b = appendMPInt(w.b, v)
}

func (w *writer) float(key string, v float64) {
	w.key(key)
	w.floatValue(v)
}

func (w *writer) floatValue(v float64) {
	switch {
	case w.enc == MsgPack:
		w.b = appendMPFloat(w.b, v)
	case math.IsNaN(v) || math.IsInf(v, 0):
		w.b = append(w.b, "null"...)
	default:
		w.b = strconv.AppendFloat(w.b, v, 'g', -1, 64)
	}
}

func (w *writer) bool(key string, v bool) {
	w.key(key)
	if w.enc == JSON {
		w.b = strconv.AppendBool(w.b, v)
		return
	}
	w.b = appendMPBool(w.b, v)
}

func (w *writer) ids(key string, ids []int32) {
	w.key(key)
	w.array(len(ids))
	for _, id := range ids {
		w.element()
		w.intValue(int64(id))
	}
	w.closeArray()
}
