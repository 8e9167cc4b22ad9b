package worker_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/tokenizer"
	"github.com/cellmq/cellmq/worker"
)

// TestSeedOrID wants a sampled output to depend on the seed, and without one on
// the request's id, and on nothing else.
func TestSeedOrID(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{Models: []*models.Model{silent(t, "kjv-lm")}}, nil)
	nc := connect(t, server)
	sample := func(path, id, params string) string {
		t.Helper()
		payload := `{"input": "In the beginning", "max_tokens": 24, "temperature": 1, "top_k": 40, "top_p": 0.95` + params + `}`
		return finalOf(t, exchange(t, nc, path, "kjv-lm", id, payload)).Text
	}
	seeded := sample("realtime", "seeded0001", `, "seed": 7`)
	if got := sample("durable", "seeded0002", `, "seed": 7`); got != seeded {
		t.Errorf("with seed 7 %q and %q", seeded, got)
	}
	if got := sample("realtime", "seeded0003", `, "seed": 8`); got == seeded {
		t.Errorf("with seeds 7 and 8 %q", got)
	}
	one := sample("realtime", "request0001", "")
	if got := sample("durable", "request0001", ""); got != one {
		t.Errorf("one id has %q and %q", one, got)
	}
	if got := sample("durable", "request0002", ""); got == one {
		t.Errorf("two ids have %q", got)
	}
}

// TestSearchIsProvisional wants the texts of a search to be marked and
// numbered, and the output to follow them, as a plain client and as a reader
// of ours sees it.
func TestSearchIsProvisional(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{Backend: newPaced()}, func(c *worker.Config) { c.FrameInterval = 0 })
	nc := connect(t, server)
	const payload = `{"input": "onomatopoeia serendipity", "beam_width": 4}`
	frames := exchange(t, nc, "realtime", "g2p-en", "request0001", payload)
	final := finalOf(t, frames)
	provisional := 0
	for _, f := range frames {
		if f.Provisional {
			provisional++
			if f.Index != 0 || len(f.Tokens) == 0 || f.Text == "" {
				t.Errorf("provisional frame %+v", f)
			}
		}
	}
	if last := frames[len(frames)-2]; provisional == 0 || last.Provisional || last.Text != final.Text {
		t.Errorf("%d provisional frames, then %+v, final %q", provisional, last, final.Text)
	}
	client, err := broker.NewClient(nc, broker.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	stream, err := client.Request(t.Context(), "g2p-en", broker.RequestOptions{Payload: []byte(payload)})
	if err != nil {
		t.Fatal(err)
	}
	output := ""
	for f, err := range stream.Frames() {
		switch {
		case err != nil:
			t.Fatal(err)
		case f.Type == broker.FrameToken && !f.Provisional:
			output += f.Text
		}
	}
	if output != final.Text || stream.Lost() != 0 {
		t.Errorf("output %q, final %q, %d lost", output, final.Text, stream.Lost())
	}
}

// TestCancelledSearchHasNoOutput cancels a search: what was provisional stays
// it.
func TestCancelledSearchHasNoOutput(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}}, nil)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3, 4, 5], "beam_width": 3, "n_best": 2}`), "Nats-Msg-Id", "endless001")
	for f := nextFrame(t, out); !f.Provisional; f = nextFrame(t, out) {
	}
	if state := cancel(t, nc, "me", "endless001"); state != "running" {
		t.Errorf("state %s", state)
	}
	final := lastFrame(t, out)
	if final.Final == nil || final.Final.FinishReason != broker.FinishCancelled || final.Tokens != nil || final.Final.Alternatives != nil ||
		!math.IsNaN(final.Final.LogProb) || final.Final.Deterministic {
		t.Errorf("final %+v", final)
	}
	eventually(t, "it leaves", func() bool { return w.Running() == 0 && w.Stats().Running == 0 })
}

// TestCancelledSegments cancels searches of several words at different moments:
// what earlier words gave is no output either. Each search waits for its
// cancellation after a number of steps.
func TestCancelledSegments(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	backend := newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{silent(t, "g2p-en")}, Backend: backend}, func(c *worker.Config) { c.FrameInterval = 0 })
	nc := connect(t, server)
	const moments, payload = 12, `{"input": "to be or not to be that is the question", "beam_width": 4, "n_best": 1}`
	before := w.Stats().Steps
	if final := finalOf(t, exchange(t, nc, "realtime", "g2p-en", "whole00001", payload)); len(final.Tokens) == 0 {
		t.Fatalf("without a cancellation: %+v", final)
	}
	steps := int(w.Stats().Steps - before)
	defer backend.set(false)
	for i := range moments {
		id := fmt.Sprintf("request%03d", i)
		out := subscribe(t, nc, "infer.out.me."+id)
		backend.set(true)
		backend.allow(steps * (i + 1) / (moments + 2))
		publish(t, nc, "infer.rt.g2p-en", out.Subject, []byte(payload), "Nats-Msg-Id", id)
		eventually(t, "the search waits", backend.blocks)
		if state := cancel(t, nc, "me", id); state != "running" {
			t.Errorf("cancelled when %s", state)
		}
		backend.set(false)
		final := lastFrame(t, out)
		if final.Final == nil || final.Final.FinishReason != broker.FinishCancelled {
			t.Fatalf("after a cancellation: %+v", final)
		}
		if x := final.Final; final.Tokens != nil || final.Text != "" || x.Alternatives != nil || !math.IsNaN(x.LogProb) || x.Deterministic {
			t.Errorf("cancelled with %q, alternatives %+v, log-probability %v", final.Text, x.Alternatives, x.LogProb)
		}
	}
}

// TestCharactersAndStops has tokens that are bytes of characters, so that
// characters and stop texts lie across tokens and frames. What the frames add
// up to, each of them whole characters, is the final text.
func TestCharactersAndStops(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{Models: []*models.Model{speller(t, "speller", "né日 ")}}, func(c *worker.Config) { c.FrameInterval = 0 })
	nc := connect(t, server)
	cases := []struct {
		name, params string
		text         string
		tokens       int
		reason       broker.FinishReason
	}{
		{"whole", `"max_tokens": 14`, "né日 né日 ", 14, broker.FinishLength},
		{"ends within a character", `"max_tokens": 12`, "né日 né", 12, broker.FinishLength},
		{"stop across characters", `"max_tokens": 99, "stop": ["日 n"]`, "né", 3, broker.FinishStop},
		{"longest of stops that end together", `"max_tokens": 99, "stop": [" né", "né日 né"]`, "", 0, broker.FinishStop},
		{"what looked like a stop", `"max_tokens": 14, "stop": ["日 né日 x"]`, "né日 né日 ", 14, broker.FinishLength},
		{"stop at the end", `"max_tokens": 7, "stop": [" "]`, "né日", 6, broker.FinishStop},
	}
	for i, tc := range cases {
		for k, path := range []string{"realtime", "durable"} {
			t.Run(path+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				frames := exchange(t, nc, path, "speller", fmt.Sprintf("request%d%d", i, k), `{"input": " ", `+tc.params+`}`)
				final := finalOf(t, frames)
				if final.Text != tc.text || len(final.Tokens) != tc.tokens || final.Final.FinishReason != tc.reason {
					t.Errorf("final %q of %d tokens, %s", final.Text, len(final.Tokens), final.Final.FinishReason)
				}
			})
		}
	}
}

// TestLogProbs wants the candidates of every token, in both modes; those that
// cannot be are null.
func TestLogProbs(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	// The other tokens are so unlikely that the logarithm is beyond float32.
	m := randomModel(t, "m", 16, func(bias []float32) {
		for i := range bias {
			bias[i] = -3e38
		}
		bias[3] = 3e38
	})
	start(t, server, worker.Deps{Models: []*models.Model{m}}, nil)
	nc := connect(t, server)
	for i, mode := range []string{"stream", "final"} {
		for k, path := range []string{"realtime", "durable"} {
			frames := exchange(t, nc, path, "m", fmt.Sprintf("request%d%d", i, k),
				`{"input": [3, 4], "max_tokens": 9, "logprobs": 3}`, "Infer-Mode", mode)
			var all [][]broker.TokenLogProb
			for _, f := range frames {
				all = append(all, f.LogProbs...)
			}
			final := finalOf(t, frames)
			if len(all) != 9 || len(final.Tokens) != 9 {
				t.Fatalf("mode %s: candidates of %d tokens, %d tokens", mode, len(all), len(final.Tokens))
			}
			if streamed := final.LogProbs == nil; streamed != (mode == "stream") {
				t.Errorf("mode %s: final with %d candidates", mode, len(final.LogProbs))
			}
			for at, c := range all {
				if len(c) != 3 || c[0] != (broker.TokenLogProb{ID: 3}) || !math.IsNaN(c[1].LogProb) || !math.IsNaN(c[2].LogProb) {
					t.Errorf("token %d has candidates %v", at, c)
				}
			}
		}
	}
}

// TestChosenTokenHasItsLogProb wants a token that is none of the best to be
// the last of its candidates.
func TestChosenTokenHasItsLogProb(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{Models: []*models.Model{silent(t, "kjv-lm")}}, nil)
	frames := exchange(t, connect(t, server), "realtime", "kjv-lm", "request0001",
		`{"input": "In the beginning", "max_tokens": 60, "logprobs": 1, "temperature": 1.5, "seed": 3}`)
	sum, others := 0.0, 0
	for _, f := range frames {
		for i, c := range f.LogProbs {
			chosen := c[len(c)-1]
			if chosen.ID != f.Tokens[i] || len(c) > 2 || len(c) == 2 && c[0].LogProb < chosen.LogProb {
				t.Errorf("token %d has candidates %v", f.Tokens[i], c)
			}
			sum += chosen.LogProb
			others += len(c) - 1
		}
	}
	if final := finalOf(t, frames); math.Abs(sum-final.Final.LogProb) > 1e-9 || others == 0 {
		t.Errorf("the tokens' sum %v, the output's %v; %d were not the best", sum, final.Final.LogProb, others)
	}
}

// TestFairShare floods a worker with one client's requests, all of them
// running: while another client's request writes n tokens, the flood gets the
// rows that are left in n steps, and not n steps of all its requests.
func TestFairShare(t *testing.T) {
	t.Parallel()
	const flood, rows, tokens = 32, 4, uint64(200)
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, func(c *worker.Config) {
		c.Slots, c.MaxRows = flood+1, rows
	})
	backend.pace(t)
	nc := connect(t, server)
	_ = subscribe(t, nc, "infer.out.flood.*") // somebody listens
	for range flood {
		publish(t, nc, "infer.req.endless.std.flood", "", []byte(`{"input": [3, 4, 5]}`), "Infer-Mode", "final")
	}
	eventually(t, "the flood runs", func() bool { return w.Stats().Running == flood })
	before := w.Stats().Tokens
	payload := fmt.Sprintf(`{"input": [3, 4, 5], "max_tokens": %d}`, tokens)
	final := finalOf(t, exchange(t, nc, "durable", "endless", "request0001", payload))
	emitted := w.Stats().Tokens - before
	if uint64(len(final.Tokens)) != tokens || final.Final.FinishReason != broker.FinishLength {
		t.Fatalf("%d tokens, %s", len(final.Tokens), final.Final.FinishReason)
	}
	// rows x tokens when every step has a row of the one request; without a
	// share of its own it would be (flood + 1) x tokens. The rest is room for
	// the time that frames take.
	if emitted > 3*rows*tokens {
		t.Errorf("%d tokens emitted for all while %d were for one", emitted, tokens)
	}
	if s := w.Stats(); s.Tenants != 1 || s.Failed != 0 {
		t.Errorf("%d tenants, %d failed", s.Tenants, s.Failed)
	}
}

// TestStopBounds holds the bounds of stop texts on the wire to those of what
// matches them: what fits runs, and one more is refused by the decoder, whose
// message names the text.
func TestStopBounds(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{Models: []*models.Model{silent(t, "g2p-en")}}, nil)
	nc := connect(t, server)
	for i, tt := range []struct{ texts, size int }{
		{tokenizer.MaxStops, tokenizer.MaxStopBytes}, {1, tokenizer.MaxStopBytes + 1}, {tokenizer.MaxStops + 1, 1},
	} {
		payload, err := json.Marshal(map[string]any{
			"input": "hello", "stop": slices.Repeat([]string{strings.Repeat("x", tt.size)}, tt.texts),
		})
		if err != nil {
			t.Fatal(err)
		}
		last := exchange(t, nc, "realtime", "g2p-en", fmt.Sprintf("request%03d", i), string(payload))
		e, wanted := last[len(last)-1].Error, []string{"", "stop[0]: length 129", "stop: more than 16"}[i]
		if (e == nil) != (wanted == "") || e != nil && (e.Code != broker.CodeBadRequest || !strings.HasPrefix(e.Message, wanted)) {
			t.Errorf("%d texts of %d bytes: %v, want %q", tt.texts, tt.size, e, wanted)
		}
	}
}
