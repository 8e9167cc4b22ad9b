package worker_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/zoo"
	"github.com/cellmq/cellmq/worker"
)

// everyFamily returns the bundled models: one of each family.
func everyFamily(t *testing.T) (ms []*models.Model) {
	t.Helper()
	for _, name := range zoo.Names() {
		ms = append(ms, silent(t, name))
	}
	return ms
}

// exchange sends one request on a path and returns its frames.
func exchange(t *testing.T, nc *nats.Conn, path, model, id, payload string, header ...string) []broker.Frame {
	t.Helper()
	client := "c" + id
	replies := subscribe(t, nc, "infer.out."+client+"."+id)
	defer func() { _ = replies.Unsubscribe() }()
	subject, reply := "infer.rt."+model, replies.Subject
	if path == "durable" {
		subject, reply = "infer.req."+model+".std."+client, ""
	}
	publish(t, nc, subject, reply, []byte(payload), append(header, "Nats-Msg-Id", id)...)
	return untilTerminal(t, replies)
}

// finalOf returns the final frame of a request.
func finalOf(t *testing.T, frames []broker.Frame) broker.Frame {
	t.Helper()
	last := frames[len(frames)-1]
	if last.Type != broker.FrameFinal {
		t.Fatalf("ended with %v", last.Error)
	}
	if !last.Final.Deterministic {
		t.Error("the output is not deterministic")
	}
	return last
}

const (
	listopsTree = "( ( ( [MAX 2 ) 9 ) ] )"
	frenchText  = "Tous les êtres humains naissent libres et égaux en dignité et en droits."
)

// familyRequest is a request with what its output must look like.
type familyRequest struct {
	name, model, payload string
	want                 func(t *testing.T, f broker.Frame)
}

func familyRequests() []familyRequest {
	text := func(want string, reason broker.FinishReason) func(t *testing.T, f broker.Frame) {
		return func(t *testing.T, f broker.Frame) {
			t.Helper()
			if f.Text != want || f.Final.FinishReason != reason || f.Final.LogProb >= 0 || f.Final.Label != "" || f.Final.Scores != nil {
				t.Errorf("final %q %+v", f.Text, f.Final)
			}
		}
	}
	label := func(want string, classes int) func(t *testing.T, f broker.Frame) {
		return func(t *testing.T, f broker.Frame) {
			t.Helper()
			x := f.Final
			if x.Label != want || f.Text != "" || f.Tokens != nil || x.FinishReason != broker.FinishStop || !math.IsNaN(x.LogProb) {
				t.Errorf("final %q %v %+v", f.Text, f.Tokens, x)
			}
			sum, best := 0.0, broker.Score{}
			for _, s := range x.Scores {
				sum += s.Value
				if s.Value > best.Value {
					best = s
				}
			}
			if len(x.Scores) != classes || math.Abs(sum-1) > 1e-5 || best.Label != want {
				t.Errorf("%d scores with sum %v, best %v", len(x.Scores), sum, best)
			}
			if x.Usage.OutputTokens != 0 || x.Usage.InputTokens == 0 {
				t.Errorf("usage %+v", x.Usage)
			}
		}
	}
	return []familyRequest{
		{"g2p", "g2p-en", `{"input": "hello"}`, text("HH EH1 L OW0", broker.FinishStop)},
		{"stop inside a token", "g2p-en", `{"input": "hello", "stop": ["H1 L"]}`, text("HH E", broker.FinishStop)},
		{"language model", "kjv-lm", `{"input": "esti", "max_tokens": 16}`, text("m the son of Amm", broker.FinishLength)},
		{"stop of many tokens", "kjv-lm", `{"input": "esti", "max_tokens": 16, "stop": ["nowhere", "son "]}`, text("m the ", broker.FinishStop)},
		{"classifier", "langid", fmt.Sprintf(`{"input": %q}`, frenchText), label("fr", 21)},
		{"tree", "listops", fmt.Sprintf(`{"input": %q}`, listopsTree), label("9", 10)},
		{"search", "g2p-en", `{"input": "hello", "beam_width": 4, "n_best": 3}`, func(t *testing.T, f broker.Frame) {
			t.Helper()
			all := f.Final.Alternatives
			if len(all) != 3 || all[0].Text != f.Text || !slices.Equal(all[0].Tokens, f.Tokens) || all[0].LogProb != f.Final.LogProb {
				t.Fatalf("final %q %v %v, alternatives %+v", f.Text, f.Tokens, f.Final.LogProb, all)
			}
			for i, a := range all {
				if a.FinishReason != broker.FinishStop || a.Text == "" || i > 0 && a.LogProb > all[i-1].LogProb {
					t.Errorf("alternative %d: %+v", i, a)
				}
			}
		}},
		{"search without alternatives", "kjv-lm", `{"input": "esti", "max_tokens": 8, "beam_width": 3}`, func(t *testing.T, f broker.Frame) {
			t.Helper()
			if len(f.Tokens) != 8 || f.Final.FinishReason != broker.FinishLength || f.Final.Alternatives != nil {
				t.Errorf("final %v %+v", f.Tokens, f.Final)
			}
		}},
	}
}

// TestFamiliesOnBothPaths asks one worker for the work of every family.
func TestFamiliesOnBothPaths(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{Models: everyFamily(t)}, nil)
	nc := connect(t, server)
	for i, path := range []string{"realtime", "durable"} {
		for k, r := range familyRequests() {
			t.Run(path+"/"+r.name, func(t *testing.T) {
				t.Parallel()
				id := fmt.Sprintf("request%d%03d", i, k)
				final := finalOf(t, exchange(t, nc, path, r.model, id, r.payload))
				r.want(t, final)
				alone := exchange(t, nc, path, r.model, id+"final", r.payload, "Infer-Mode", "final")
				if len(alone) != 1 || alone[0].Text != final.Text || alone[0].Final.LogProb != final.Final.LogProb && final.Final.Label == "" {
					t.Errorf("in mode final: %+v, in mode stream %+v", alone, final)
				}
			})
		}
	}
}

// TestEveryBundledModelIsServed starts a worker that was told nothing.
func TestEveryBundledModelIsServed(t *testing.T) {
	t.Parallel()
	if testing.Short() || raced {
		t.Skip("checks the golden outputs of all models")
	}
	server := newServer(t)
	w := start(t, server, worker.Deps{}, func(c *worker.Config) {
		c.Models, c.Profile, c.Executors, c.Threads = nil, worker.DefaultConfig().Profile, 2, 2
	})
	subjects := endpoints(t, connect(t, server))
	for _, name := range zoo.Names() {
		if _, ok := subjects["infer.rt."+name]; !ok {
			t.Errorf("%s is not among %v", name, subjects)
		}
	}
	stats := w.Stats()
	if stats.Shape.Executors != 2 || stats.Shape.Threads != 2 {
		t.Errorf("shape %+v", stats.Shape)
	}
}

// TestUnsupportedParameters gives every family each parameter that it cannot
// take, on both paths.
func TestUnsupportedParameters(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{Models: everyFamily(t)}, nil)
	nc := connect(t, server)
	inputs := map[string]string{"g2p-en": "hello you", "kjv-lm": "In", "langid": frenchText, "listops": listopsTree}
	var refused []familyRequest
	add := func(model, field, params string) {
		refused = append(refused, familyRequest{
			name: model + "/" + field, model: model, payload: fmt.Sprintf(`{"input": %q, %s}`, inputs[model], params),
			want: func(t *testing.T, f broker.Frame) {
				t.Helper()
				if f.Error == nil || f.Error.Code != broker.CodeUnsupportedParameter || !strings.HasPrefix(f.Error.Message, field+":") || f.Error.Retryable {
					t.Errorf("%+v, error %+v", f, f.Error)
				}
			},
		})
	}
	for _, model := range []string{"langid", "listops"} {
		for field, value := range map[string]string{
			"max_tokens": "3", "temperature": "0", "top_k": "2", "top_p": "0.5", "seed": "1", "stop": `["x"]`,
			"beam_width": "1", "n_best": "1", "logprobs": "0",
		} {
			add(model, field, fmt.Sprintf("%q: %s", field, value))
		}
	}
	for _, model := range []string{"g2p-en", "kjv-lm", "listops"} {
		add(model, "ramps", `"ramps": true`)
	}
	for _, model := range []string{"g2p-en", "kjv-lm"} {
		for field, value := range map[string]string{
			"temperature": "0.5", "top_k": "2", "top_p": "0.5", "seed": "1", "stop": `["x"]`, "logprobs": "2",
		} {
			add(model, field, fmt.Sprintf(`"beam_width": 2, %q: %s`, field, value))
		}
	}
	add("g2p-en", "n_best", `"beam_width": 2, "n_best": 2`) // of an input of two segments
	for i, path := range []string{"realtime", "durable"} {
		for k, r := range refused {
			t.Run(path+"/"+r.name, func(t *testing.T) {
				t.Parallel()
				frames := exchange(t, nc, path, r.model, fmt.Sprintf("request%d%03d", i, k), r.payload)
				if len(frames) != 1 {
					t.Fatalf("frames %v", types(frames))
				}
				r.want(t, frames[0])
			})
		}
	}
	t.Run("trees are text", func(t *testing.T) {
		t.Parallel()
		frames := exchange(t, nc, "realtime", "listops", "request9999", `{"input": [1, 2]}`)
		if e := frames[0].Error; e == nil || e.Code != broker.CodeBadRequest {
			t.Errorf("%+v", frames)
		}
	})
}

// TestRamps asks a classifier what each of its layers says, on both paths, in
// both encodings and modes.
func TestRamps(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{Models: []*models.Model{silent(t, "langid")}}, nil)
	nc := connect(t, server)
	packed, err := msgpack.Marshal(map[string]any{"input": frenchText, "ramps": true})
	if err != nil {
		t.Fatal(err)
	}
	payloads := map[string]string{"json": fmt.Sprintf(`{"input": %q, "ramps": true}`, frenchText), "msgpack": string(packed)}
	for i, path := range []string{"realtime", "durable"} {
		for encoding, payload := range payloads {
			for _, mode := range []string{"stream", "final"} {
				t.Run(path+"/"+encoding+"/"+mode, func(t *testing.T) {
					t.Parallel()
					x := finalOf(t, exchange(t, nc, path, "langid", fmt.Sprintf("ramps%d%s%s", i, encoding, mode), payload, "Infer-Mode", mode)).Final
					if len(x.Layers) != 6 {
						t.Fatalf("%d layers", len(x.Layers))
					}
					for l, layer := range x.Layers {
						checkLayer(t, l, layer)
					}
					if last := x.Layers[5]; x.Label != "fr" || last.Label != x.Label || !slices.Equal(last.Scores, x.Scores) {
						t.Errorf("the last layer says %+v, the final %s %v", last, x.Label, x.Scores)
					}
					if slices.Equal(x.Layers[0].Scores, x.Scores) {
						t.Error("the first layer says what the last one does")
					}
				})
			}
		}
	}
	t.Run("without", func(t *testing.T) {
		t.Parallel()
		asked := finalOf(t, exchange(t, nc, "realtime", "langid", "ramps0000", payloads["json"])).Final
		for i, params := range []string{"", `, "ramps": false`} {
			x := finalOf(t, exchange(t, nc, "realtime", "langid", fmt.Sprintf("noramps%d", i), fmt.Sprintf(`{"input": %q%s}`, frenchText, params))).Final
			if x.Label != asked.Label || !slices.Equal(x.Scores, asked.Scores) || x.Layers != nil {
				t.Errorf("without ramps %+v, with them %+v", x, asked)
			}
		}
	})
}

// checkLayer wants a layer to name the most probable of 21 classes.
func checkLayer(t *testing.T, number int, layer broker.Layer) {
	t.Helper()
	sum, best := 0.0, broker.Score{}
	for _, s := range layer.Scores {
		if sum += s.Value; s.Value > best.Value {
			best = s
		}
	}
	if len(layer.Scores) != 21 || layer.Label != best.Label || math.Abs(sum-1) > 1e-5 {
		t.Errorf("layer %d says %s of %d scores with sum %v", number, layer.Label, len(layer.Scores), sum)
	}
}

// TestFamiliesSideBySide sends requests of all families at once on both paths:
// each has one terminal frame, with what it gives alone.
func TestFamiliesSideBySide(t *testing.T) {
	t.Parallel()
	rounds := 12
	if testing.Short() || raced {
		rounds = 2
	}
	server := newServer(t)
	w := start(t, server, worker.Deps{Models: everyFamily(t)}, func(c *worker.Config) { c.Executors, c.RealtimeSlots = 2, 512 })
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	requests := familyRequests()
	sent := map[string]familyRequest{}
	for round := range rounds {
		for k, r := range requests {
			id := fmt.Sprintf("request%d%03d", k, round)
			sent[id] = r
			if round%2 == 0 {
				publish(t, nc, "infer.rt."+r.model, "infer.out.me."+id, []byte(r.payload), "Nats-Msg-Id", id)
			} else {
				publish(t, nc, "infer.req."+r.model+".std.me", "", []byte(r.payload), "Nats-Msg-Id", id)
			}
		}
	}
	frames := map[string][]broker.Frame{}
	for ended := 0; ended < len(sent); {
		f := nextFrame(t, out)
		frames[f.ID] = append(frames[f.ID], f)
		if f.Type.Terminal() {
			ended++
		}
	}
	eventually(t, "all requests leave", func() bool { return w.Running() == 0 })
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := out.Pending(); err != nil || n != 0 {
		t.Errorf("%d frames after the last terminal one, %v", n, err)
	}
	for _, id := range slices.Sorted(maps.Keys(sent)) {
		checkFrames(t, frames[id])
		if len(frames[id]) == 0 {
			t.Errorf("%s has no frames", id)
			continue
		}
		sent[id].want(t, finalOf(t, frames[id]))
	}
	if s := w.Stats(); s.PaddedRows != 0 || s.Failed != 0 {
		t.Errorf("%d rows padded, %d sequences failed", s.PaddedRows, s.Failed)
	}
}
