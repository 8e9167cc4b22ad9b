package ask

import (
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/cellmq/cellmq/broker"
)

func encode(tb testing.TB, v map[string]any) []byte {
	tb.Helper()
	b, err := msgpack.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// frames are frames as workers send them.
func frames(tb testing.TB) [][]byte {
	tb.Helper()
	return [][]byte{
		encode(tb, map[string]any{"type": "accepted", "id": "load00000001", "epoch": uint64(1_700_000_000_000), "attempt": 1, "seq": 0, "worker": "w", "model": "m", "version": "1", "digest": "d"}),
		encode(tb, map[string]any{"type": "token", "seq": 300, "attempt": 2, "index": 70_000, "tokens": []int32{1, 500, 70_000, -1}, "text": "ab", "logprobs": []any{[]any{[]any{1, -0.5}, []any{2, nil}}}}),
		encode(tb, map[string]any{"type": "token", "seq": 1, "attempt": 1, "index": 0, "tokens": make([]byte, 400), "provisional": true}),
		encode(tb, map[string]any{
			"type": "final", "seq": 9, "attempt": 1, "finish_reason": "length", "logprob": nil, "scores": map[string]float64{"a": 0.5}, "deterministic": true,
			"usage": map[string]int{"input_tokens": 3, "output_tokens": 200}, "timing": map[string]float64{"broker_ms": 1.5}, "meta": map[string]any{"x": []any{1, "y"}},
		}),
		encode(tb, map[string]any{"type": "error", "seq": 1, "attempt": 1, "code": "busy", "message": "m", "retryable": true, "retry_after_ms": 100}),
	}
}

// agree compares what is read of a payload with what package broker reads.
func agree(t *testing.T, payload []byte) {
	t.Helper()
	want, err := broker.DecodeFrame(payload)
	if err != nil || len(payload) > 0 && payload[0] == '{' {
		return // what is malformed may be read or not
	}
	var got frame
	if err := readFrame(payload, &got); err != nil {
		t.Fatalf("%v for %+v", err, want)
	}
	if got.kind != string(want.Type) || got.seq != want.Seq || got.attempt != want.Attempt || got.index != want.Index ||
		got.tokens != len(want.Tokens) || got.provisional != want.Provisional {
		t.Errorf("%+v, want %+v", got, want)
	}
	if f := want.Final; f != nil && want.Type == broker.FrameFinal && (got.reason != string(f.FinishReason) || got.input != f.Usage.InputTokens || got.output != f.Usage.OutputTokens) {
		t.Errorf("%+v, want %+v", got, *f)
	}
	if want.Type == broker.FrameError && want.Error.Code != broker.CodeInternal && got.code != string(want.Error.Code) {
		t.Errorf("%+v, want %+v", got, *want.Error)
	}
}

func TestReadFrame(t *testing.T) {
	t.Parallel()
	for _, b := range frames(t) {
		agree(t, b)
		for n := range b {
			_ = readFrame(b[:n], &frame{}) // does not panic
		}
	}
	for _, b := range [][]byte{nil, {0xc0}, {0x81, 0xa1}, {0xdf, 0xff, 0xff, 0xff, 0xff}, {0x80}, {0x81, 0xa4, 't', 'y', 'p', 'e', 0x01}} {
		if err := readFrame(b, &frame{}); err == nil {
			t.Errorf("%x was read", b)
		}
	}
}

// FuzzReadFrame reads anything without a panic, and reads what package broker
// reads as a frame of numbers that a worker would send in the same way.
func FuzzReadFrame(f *testing.F) {
	for _, b := range frames(f) {
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		var x frame
		_ = readFrame(b, &x) // an error is as good as a frame
	})
}

func TestFramesAllocateNothing(t *testing.T) {
	all := frames(t)
	var x frame
	n := testing.AllocsPerRun(100, func() {
		for _, b := range all[:4] { // an error frame's code is a text of its own
			if err := readFrame(b, &x); err != nil {
				t.Fatal(err)
			}
		}
	})
	if n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	c := &Client{tag: "loadABCDEFGH"}
	for _, n := range []uint64{0, 7, 1_234_567_890} {
		id := string(appendID(nil, c.tag, n))
		if got, ok := c.numberOf("infer.out.x." + id); !ok || got != n || !broker.ValidID(id) {
			t.Errorf("%s: %d, %v", id, got, ok)
		}
	}
	for _, subject := range []string{"", "infer.out.x.loadABCDEFGH", "infer.out.x.loadABCDEFGH00000000x1", "infer.out.x.loadOTHERTAG0000000001", "a.b.c.loadABCDEFGH00000000011"} {
		if _, ok := c.numberOf(subject); ok {
			t.Errorf("%q has a number", subject)
		}
	}
}
