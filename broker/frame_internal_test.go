package broker

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vmihailenco/msgpack/v5"
)

func frames() map[string]Frame {
	return map[string]Frame{
		"accepted":  {Type: FrameAccepted, ID: "abcdefgh", Epoch: math.MaxUint64, Attempt: 2, Worker: "w", Model: "m", Version: "1", Digest: "d"},
		"token":     {Type: FrameToken, ID: "abcdefgh", Epoch: 300, Attempt: 1, Seq: 70000, Text: "é\"\\\n\x01", Tokens: []int32{1, 200, 70000, -5}, Index: 3},
		"heartbeat": {Type: FrameHeartbeat, ID: "abcdefgh", Phase: "decode"},
		"retry":     {Type: FrameRetry, ID: "abcdefgh", Seq: 9},
		"search": {
			Type: FrameToken, ID: "abcdefgh", Text: "x", Tokens: []int32{1}, Provisional: true, Revision: 4,
			LogProbs: [][]TokenLogProb{{{ID: 1, LogProb: -0.25}, {ID: 7, LogProb: math.NaN()}}},
		},
		"error": {
			Type: FrameError, ID: "abcdefgh", Meta: Meta("\x81\xa1k\x01"),
			Error: &Error{Code: CodeBusy, Message: "no slot", Retryable: true, RetryAfter: 1500 * time.Microsecond},
		},
		"final": {
			Type: FrameFinal, ID: "abcdefgh", Seq: 3, Text: "out", Tokens: []int32{5}, Model: "m", Version: "1", Digest: "d", Meta: Meta("\x80"),
			Final: &Final{
				FinishReason: FinishLength, LogProb: -12.5, Label: "pos", Scores: []Score{{"pos", 0.75}, {"neg", 0.25}},
				Alternatives:  []Alternative{{Text: "a", Tokens: []int32{1}, LogProb: -1, FinishReason: FinishStop}, {LogProb: math.NaN()}},
				Usage:         Usage{InputTokens: 3, OutputTokens: 1},
				Timing:        Timing{Broker: time.Millisecond, Queue: 7 * time.Microsecond, FirstToken: time.Second, Total: time.Hour},
				Deterministic: true, Echo: &Input{Text: "in"},
			},
		},
		"final alone": {
			Type: FrameFinal, ID: "abcdefgh", Text: "ab", Tokens: []int32{1, 2}, Final: &Final{LogProb: -1},
			LogProbs: [][]TokenLogProb{{{ID: 1, LogProb: -0.25}, {ID: 3, LogProb: math.NaN()}}, {{ID: 2, LogProb: -0.5}}},
		},
		"layers": {
			Type: FrameFinal, ID: "abcdefgh", Final: &Final{
				FinishReason: FinishStop, LogProb: math.NaN(), Label: "b", Scores: []Score{{"a", 0.25}, {"b", 0.75}},
				Layers: []Layer{{Label: "a", Scores: []Score{{"a", 1}, {"b", 0}}}, {}, {Label: "b", Scores: []Score{{"a", 0.25}, {"b", 0.75}}}},
			},
		},
		"plain final": {Type: FrameFinal, ID: "abcdefgh", Final: &Final{LogProb: math.NaN(), Echo: &Input{IDs: []int32{1}, IsIDs: true}}},
	}
}

func TestFrameRoundTrip(t *testing.T) {
	t.Parallel()
	for name, f := range frames() {
		for _, enc := range []Encoding{MsgPack, JSON} {
			b, err := AppendFrame(nil, enc, &f)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeFrame(b)
			if err != nil {
				t.Fatalf("%s: %v: %q", name, err, b)
			}
			want := f
			if want.Meta, err = f.Meta.in(enc); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("%s in %d: %s", name, enc, diff)
			}
			// A reader that is not ours finds the same number of fields.
			var m map[string]any
			if enc == JSON {
				err = json.Unmarshal(b, &m)
			} else {
				err = msgpack.Unmarshal(b, &m)
			}
			if err != nil || m["type"] != string(f.Type) {
				t.Errorf("%s in %d: %v: %v", name, enc, err, m)
			}
		}
	}
}

func TestFrameText(t *testing.T) {
	t.Parallel()
	f := frames()["token"]
	b, err := AppendFrame([]byte("before "), JSON, &f)
	want := `before {"type":"token","id":"abcdefgh","epoch":300,"attempt":1,"seq":70000,"text":"é\"\\\n\u0001","tokens":[1,200,70000,-5],"index":3}`
	if err != nil || string(b) != want {
		t.Errorf("%v\n got %s\nwant %s", err, b, want)
	}
	f = Frame{Type: FrameToken, Text: "a\xffb"}
	if b, _ = AppendFrame(nil, JSON, &f); !json.Valid(b) {
		t.Errorf("invalid JSON for invalid UTF-8: %q", b)
	}
}

func TestAppendTokenFrameAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 512)
	for name, f := range frames() {
		if name == "error" || name == "final" || name == "layers" || name == "plain final" {
			continue
		}
		for _, enc := range []Encoding{MsgPack, JSON} {
			allocs := testing.AllocsPerRun(100, func() {
				b, err := AppendFrame(buf[:0], enc, &f)
				if err != nil || len(b) == 0 {
					t.Fatal(err)
				}
			})
			if allocs != 0 {
				t.Errorf("%s in %d: %v allocations", name, enc, allocs)
			}
		}
	}
}

func TestDecodeFrameRefuses(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		"", "{}", "x", `{"type":1}`, `{"type":"token","tokens":[1.5]}`, `{"type":"token","tokens":"x"}`, `{"type":"token","seq":-1}`,
		`{"type":"token","index":3000000000}`, `{"type":"final","usage":[]}`, `{"type":"final","alternatives":[1]}`,
		`{"type":"final","layers":{}}`, `{"type":"final","layers":[1]}`, `{"type":"final","layers":[{"label":1}]}`, `{"type":"final","layers":[{"scores":[]}]}`,
		"\x82\xa4type\xa5final\xa6layers\x80", "\x82\xa4type\xa5final\xa6layers\x91\x01",
		`{"type":"error","retry_after_ms":1e300}`, `{"type":"token","logprobs":[[[1]]]}`, "\x81\xa4type\x01", "\x80", "\x91\x01",
		"\x82\xa4type\xa5token\xa3seq\xd0\xff",
	} {
		if f, err := DecodeFrame([]byte(payload)); err == nil {
			t.Errorf("%q: accepted as %+v", payload, f)
		}
	}
}

func FuzzDecodeFrame(f *testing.F) {
	for _, fr := range frames() {
		for _, enc := range []Encoding{MsgPack, JSON} {
			b, err := AppendFrame(nil, enc, &fr)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var fr Frame
		var err error
		boundedBy(t, payloadFactor, len(b), func() { fr, err = DecodeFrame(b) })
		if err != nil {
			return
		}
		for _, enc := range []Encoding{MsgPack, JSON} {
			again, err := AppendFrame(nil, enc, &fr)
			if err != nil {
				continue // a meta that the other encoding cannot carry
			}
			if _, err := DecodeFrame(again); err != nil && len(fr.Meta) == 0 {
				t.Fatalf("own encoding refused: %v\n%q", err, again)
			}
		}
	})
}

func TestTracker(t *testing.T) {
	t.Parallel()
	tok := func(attempt, seq uint64, index int, text string, ids ...int32) Frame {
		return Frame{Type: FrameToken, Epoch: 1, Attempt: attempt, Seq: seq, Index: index, Text: text, Tokens: ids}
	}
	tests := []struct {
		name   string
		frames []Frame
		text   string
		ids    []int32
		holes  int
	}{
		{"in order", []Frame{tok(1, 0, 0, "a", 1), tok(1, 1, 1, "b", 2)}, "ab", []int32{1, 2}, 0},
		{"twice", []Frame{tok(1, 0, 0, "a", 1), tok(1, 0, 0, "a", 1), tok(1, 1, 1, "b", 2)}, "ab", []int32{1, 2}, 0},
		{"text without tokens is left to the final", []Frame{tok(1, 0, 0, "a", 1), tok(1, 1, 1, "b")}, "a", []int32{1}, 0},
		{"repeated out of turn", []Frame{tok(1, 0, 0, "a", 1), tok(1, 2, 1, "b", 2), tok(1, 1, 0, "a", 1), tok(1, 3, 2, "c", 3)}, "abc", []int32{1, 2, 3}, 1},
		{"replay", []Frame{tok(1, 0, 0, "a", 1), tok(1, 1, 1, "b", 2), tok(2, 0, 0, "a", 1), tok(2, 1, 1, "b", 2), tok(2, 2, 2, "c", 3)}, "abc", []int32{1, 2, 3}, 0},
		{"replay in larger frames", []Frame{tok(1, 0, 0, "a", 1), tok(1, 1, 1, "b", 2), tok(2, 0, 0, "abc", 1, 2, 3), tok(2, 1, 3, "d", 4)}, "abcd", []int32{1, 2, 3, 4}, 0},
		{"stale attempt", []Frame{tok(2, 0, 0, "a", 1), tok(1, 5, 0, "xyz", 7, 8), tok(2, 1, 1, "b", 2)}, "ab", []int32{1, 2}, 0},
		{"hole", []Frame{tok(1, 0, 0, "a", 1), tok(1, 2, 2, "c", 3)}, "a", []int32{1}, 1},
		{"replay after a hole", []Frame{tok(1, 0, 0, "a", 1), tok(1, 2, 2, "c", 3), tok(2, 0, 0, "abc", 1, 2, 3), tok(2, 1, 3, "d", 4)}, "abcd", []int32{1, 2, 3, 4}, 1},
		{"text without tokens after a hole", []Frame{tok(1, 0, 0, "a", 1), tok(1, 2, 2, "c", 3), tok(1, 3, 3, "d")}, "a", []int32{1}, 1},
		{"replayed text without tokens after a hole", []Frame{tok(1, 0, 0, "a", 1), tok(1, 2, 2, "c", 3), tok(1, 3, 3, "d"), tok(2, 0, 0, "abc", 1, 2, 3), tok(2, 1, 3, "d")}, "abc", []int32{1, 2, 3}, 1},
		{"new epoch", []Frame{tok(3, 0, 0, "a", 1), {Type: FrameToken, Epoch: 2, Attempt: 1, Text: "ab", Tokens: []int32{1, 2}}}, "ab", []int32{1, 2}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var tr tracker
			var text string
			var ids []int32
			for _, f := range tt.frames {
				if tr.accept(&f, false) {
					text += f.Text
					ids = append(ids, f.Tokens...)
				}
			}
			if text != tt.text || !cmp.Equal(ids, tt.ids) || tr.holes != tt.holes {
				t.Errorf("text %q, ids %v, %d holes", text, ids, tr.holes)
			}
		})
	}
}

// TestTrackerKeepsProvisionalApart wants the provisional texts of a search in
// the order of their revisions, none after output, and none in the output.
func TestTrackerKeepsProvisionalApart(t *testing.T) {
	t.Parallel()
	draft := func(attempt, seq uint64, revision int, text string) Frame {
		return Frame{
			Type: FrameToken, Epoch: 1, Attempt: attempt, Seq: seq, Provisional: true, Revision: revision,
			Text: text, Tokens: make([]int32, len(text)),
		}
	}
	var tr tracker
	var shown []string
	output := ""
	for _, f := range []Frame{
		draft(1, 0, 1, "a"), draft(1, 1, 3, "ba"),
		draft(2, 0, 1, "a"), draft(2, 1, 2, "b"), draft(2, 2, 3, "ba"), draft(2, 3, 4, "bcd"),
		{Type: FrameToken, Epoch: 1, Attempt: 2, Seq: 4, Text: "xyz", Tokens: []int32{7, 8, 9}},
		draft(3, 0, 1, "a"), draft(3, 1, 5, "bcde"),
		{Type: FrameToken, Epoch: 1, Attempt: 3, Seq: 2, Text: "xyz", Tokens: []int32{7, 8, 9}},
	} {
		switch news := tr.accept(&f, false); {
		case news && f.Provisional:
			shown = append(shown, f.Text)
		case news:
			output += f.Text
		}
	}
	if diff := cmp.Diff([]string{"a", "ba", "bcd"}, shown); diff != "" || output != "xyz" {
		t.Errorf("output %q, shown %v", output, shown)
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	var sent []string
	start := time.Now()
	lease := func(wait time.Duration) *Lease {
		sent = nil
		return newLease(9, 2, "ack", wait, start, func(_ string, p []byte) error { sent = append(sent, string(p)); return nil })
	}
	check := func(what string, err, want error, messages ...string) {
		t.Helper()
		if !errors.Is(err, want) || !cmp.Equal(sent, messages) {
			t.Errorf("%s: %v, sent %q", what, err, sent)
		}
		sent = nil
	}
	l := lease(time.Minute)
	check("extend", l.Extend(start.Add(30*time.Second)), nil, "+WPI")
	if got := l.Deadline().Sub(start); got != 90*time.Second {
		t.Errorf("deadline after %v", got)
	}
	if !l.Valid(start.Add(89*time.Second)) || l.Valid(start.Add(90*time.Second)) {
		t.Error("validity does not end at the deadline")
	}
	check("extend too late", l.Extend(start.Add(90*time.Second)), ErrLeaseLost)
	check("settle", l.Settle(), nil, "+ACK")
	check("settle again", l.Settle(), ErrSettled)
	check("extend settled", l.Extend(start), ErrSettled)
	check("reject settled", l.Reject("x"), ErrSettled)
	if l.Valid(start) {
		t.Error("settled but valid")
	}
	l = lease(time.Minute)
	check("release", l.Release(20*time.Millisecond), nil, `-NAK {"delay":20000000}`)
	l = lease(time.Minute)
	check("reject", l.Reject("bad"), nil, "+TERM bad")
	l = lease(-time.Second) // over
	check("settle late", l.Settle(), ErrLeaseLost)
	check("release late", l.Release(0), ErrLeaseLost)
	check("reject late", l.Reject("x"), ErrLeaseLost)

	broken := newLease(1, 1, "ack", time.Minute, start, func(string, []byte) error { return ErrClosed })
	if err := broken.Settle(); !errors.Is(err, ErrClosed) || !broken.Valid(start) {
		t.Errorf("settle that was not sent: %v, valid %v", err, broken.Valid(start))
	}

	core := newCoreLease(start)
	if !core.Core() || core.Extend(start.Add(time.Hour)) != nil || !core.Valid(start.Add(time.Hour)) || !core.Deadline().IsZero() {
		t.Error("core lease expires")
	}
	if err := core.Release(0); !errors.Is(err, ErrNotRedelivered) {
		t.Errorf("release of a core lease: %v", err)
	}
	if err := core.Settle(); err != nil || core.Valid(start) {
		t.Errorf("settle of a core lease: %v", err)
	}
}

func TestReceipt(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]struct {
		code Code
		ok   bool
	}{
		`{"stream":"INFER","seq":1}`:                                                                    {"", true},
		`{"stream":"INFER","seq":1,"duplicate":true}`:                                                   {"", true},
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"}}`:             {CodeBusy, true},
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages per subject exceeded"}}`: {CodeQuotaExceeded, true},
		`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`:                {CodeBusy, true},
		`{"error":{"code":429,"err_code":10167,"description":"too many requests"}}`:                     {CodeBusy, true},
		`{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}`:  {CodePayloadTooLarge, true},
		`{"error":{"code":500,"err_code":1,"description":"x"}}`:                                         {CodeInternal, true},
		`{"type":"accepted","id":"abcdefgh"}`:                                                           {"", false},
		`{"type":"error","error":{"code":1}}`:                                                           {"", false},
		`{`:                                                                                             {"", false},
	} {
		e, _, ok := receipt([]byte(payload))
		var code Code
		if e != nil {
			code = e.Code
		}
		if ok != want.ok || code != want.code {
			t.Errorf("%s: %v, %v", payload, e, ok)
		}
	}
}

func BenchmarkAppendTokenFrame(b *testing.B) {
	f := Frame{Type: FrameToken, ID: "abcdefghijklmnopqrstuv", Epoch: 1_700_000_000_000, Attempt: 1, Seq: 12, Text: " hello", Tokens: []int32{4711}, Index: 12}
	for _, enc := range []Encoding{MsgPack, JSON} {
		b.Run([]string{"msgpack", "json"}[enc], func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, 256)
			for b.Loop() {
				buf, _ = AppendFrame(buf[:0], enc, &f)
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}
