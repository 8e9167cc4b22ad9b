package worker_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/worker"
)

// These tests speak to a worker as a plain NATS client in any language does.

func TestRealtimePlainText(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	w := start(t, server, worker.Deps{}, nil)
	nc := connect(t, server)
	replies := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "infer.rt.g2p-en", replies.Subject, []byte("hello"))
	frames := untilTerminal(t, replies)
	want := []broker.FrameType{broker.FrameAccepted, broker.FrameToken, broker.FrameFinal}
	if got := types(frames); !slices.Equal(got, want) {
		t.Fatalf("frames %v, want %v", got, want)
	}
	first, final := frames[0], frames[len(frames)-1]
	m := g2p(t)
	if first.Worker != w.Name() || first.Model != "g2p-en" || first.Version != m.Version() || first.Digest != m.Digest() {
		t.Errorf("accepted %+v", first)
	}
	if len(first.ID) < 8 {
		t.Errorf("id %q", first.ID)
	}
	if final.Text != "HH EH1 L OW0" || final.Final.FinishReason != broker.FinishStop {
		t.Errorf("final %q, %s", final.Text, final.Final.FinishReason)
	}
	if u := final.Final.Usage; u.InputTokens != 5 || u.OutputTokens != 4 {
		t.Errorf("usage %+v", u)
	}
	if f := final.Final; !f.Deterministic || f.LogProb >= 0 || f.Timing.Total <= 0 || f.Timing.FirstToken <= 0 {
		t.Errorf("final %+v", f)
	}
	if final.Digest != m.Digest() || final.Model != "g2p-en" || final.Version != m.Version() {
		t.Errorf("final of %s %s %s", final.Model, final.Version, final.Digest)
	}
	eventually(t, "the request leaves", func() bool { return w.Running() == 0 })
}

func TestRealtimeWholeLineOfReplies(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{}, func(c *worker.Config) { c.FrameInterval = 0 })
	nc := connect(t, server)
	replies := subscribe(t, nc, nats.NewInbox())
	var frames []broker.Frame
	// A token frame that waited for nothing carries one token; only what the
	// publisher could not send in time, on a busy machine, shares a frame.
	eventually(t, "tokens have frames of their own", func() bool {
		publish(t, nc, "infer.rt.g2p-en", replies.Subject, []byte(`{"input": "onomatopoeia", "echo": true, "meta": {"row": 7}}`))
		frames = untilTerminal(t, replies)
		return len(frames) >= 4
	})
	final := frames[len(frames)-1]
	if final.Final.Echo == nil || final.Final.Echo.Text != "onomatopoeia" {
		t.Errorf("echo %+v", final.Final.Echo)
	}
	if got := string(final.Meta); got != `{"row":7}` {
		t.Errorf("meta %s", got)
	}
}

func TestModeFinalIsOneFrame(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{}, nil)
	nc := connect(t, server)
	replies := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "infer.rt.g2p-en", replies.Subject, []byte("hello"), "Infer-Mode", "final")
	frames := untilTerminal(t, replies)
	if got := types(frames); !slices.Equal(got, []broker.FrameType{broker.FrameFinal}) {
		t.Fatalf("frames %v", got)
	}
	if final := frames[len(frames)-1]; final.Text != "HH EH1 L OW0" || len(final.Tokens) != 4 {
		t.Errorf("final %q %v", final.Text, final.Tokens)
	}
}

func TestDurableJSON(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{}, nil)
	nc := connect(t, server)
	frames := subscribe(t, nc, "infer.out.me.*")
	acks := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "infer.req.g2p-en.std.me", acks.Subject, []byte(`{"input": "hello"}`))
	m, err := acks.NextMsg(patience)
	if err != nil {
		t.Fatal(err)
	}
	var ack struct{ Seq int }
	if err := json.Unmarshal(m.Data, &ack); err != nil || ack.Seq == 0 {
		t.Fatalf("acknowledgement %s: %v", m.Data, err)
	}
	got := untilTerminal(t, frames)
	if want := fmt.Sprintf("s%010dt", ack.Seq); !strings.HasPrefix(got[0].ID, want) {
		t.Errorf("id %s, want %s and a time", got[0].ID, want)
	}
	final := got[len(got)-1]
	if final.Text != "HH EH1 L OW0" || final.Attempt != 1 || final.Epoch == 0 {
		t.Errorf("final %+v", final)
	}
}

func TestSegmentsOfOneInput(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{}, nil)
	nc := connect(t, server)
	replies := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "infer.rt.g2p-en", replies.Subject, []byte("hello hello"))
	frames := untilTerminal(t, replies)
	if final := frames[len(frames)-1]; final.Text != "HH EH1 L OW0 | HH EH1 L OW0" {
		t.Errorf("final %q", final.Text)
	}
}

func TestServiceDiscovery(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	w := start(t, server, worker.Deps{Version: "1.2.3"}, nil)
	nc := connect(t, server)

	var ping micro.Ping
	ask(t, nc, "$SRV.PING.cellmq", &ping)
	if ping.Version != "1.2.3" || ping.Metadata["worker"] != w.Name() {
		t.Errorf("ping %+v", ping)
	}
	subjects := endpoints(t, nc)
	if e, ok := subjects["infer.rt.g2p-en"]; !ok || e.Metadata["digest"] != g2p(t).Digest() {
		t.Errorf("endpoints %+v", subjects)
	}
	if _, ok := subjects["infer.cancel.*"]; !ok {
		t.Errorf("endpoints %+v", subjects)
	}
	replies := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "infer.rt.g2p-en", replies.Subject, []byte("hello"))
	untilTerminal(t, replies)
	stats := both[micro.Stats](t, nc, "$SRV.STATS.cellmq")
	for _, e := range append(stats[0].Endpoints, stats[1].Endpoints...) {
		if e.Subject != "infer.rt.g2p-en" {
			continue
		}
		var own struct{ Slots, Tokens int }
		if err := json.Unmarshal(e.Data, &own); err != nil || own.Slots != 16 || own.Tokens == 0 || e.NumRequests != 1 {
			t.Errorf("stats %+v, %s, %v", e, e.Data, err)
		}
		return
	}
	t.Errorf("no statistics of the model in %+v", stats)
}

// endpoints returns what a worker shows of its endpoints, by subject.
func endpoints(t *testing.T, nc *nats.Conn) map[string]micro.EndpointInfo {
	t.Helper()
	out := map[string]micro.EndpointInfo{}
	for _, info := range both[micro.Info](t, nc, "$SRV.INFO.cellmq") {
		for _, e := range info.Endpoints {
			out[e.Subject] = e
		}
	}
	return out
}

// both asks the two instances of the service that a worker is: one has the
// endpoints of the models.
func both[T any](t *testing.T, nc *nats.Conn, subject string) (answers [2]T) {
	t.Helper()
	replies := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, subject, replies.Subject, nil)
	for i := range answers {
		m, err := replies.NextMsg(patience)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		if err := json.Unmarshal(m.Data, &answers[i]); err != nil {
			t.Fatalf("%s: %s: %v", subject, m.Data, err)
		}
	}
	return answers
}

func ask(t *testing.T, nc *nats.Conn, subject string, answer any) {
	t.Helper()
	m, err := nc.Request(subject, nil, patience)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		t.Fatalf("%s: %s: %v", subject, m.Data, err)
	}
}

// badInput is a request that must be refused.
type badInput struct {
	name    string
	payload []byte
	header  []string
	code    broker.Code
}

func badInputs() []badInput {
	msgpack := func(b ...byte) []byte { return b }
	input := func(rest ...byte) []byte { // {"input": ...}
		return append(msgpack(0x81, 0xa5, 'i', 'n', 'p', 'u', 't'), rest...)
	}
	text := []string{"Content-Type", "text/plain"}
	js := []string{"Content-Type", "application/json"}
	mp := []string{"Content-Type", "application/msgpack"}
	return []badInput{
		{"empty text", nil, text, broker.CodeBadRequest},
		{"empty JSON text", []byte(`{"input": ""}`), js, broker.CodeBadRequest},
		{"empty MessagePack text", input(0xa0), mp, broker.CodeBadRequest},
		{"no input", []byte(`{"max_tokens": 3}`), js, broker.CodeBadRequest},
		{"1 MB text", []byte(strings.Repeat("a", 1_000_000)), text, broker.CodePayloadTooLarge},
		{"long text", []byte(strings.Repeat("a", 5_000)), text, broker.CodeInputTooLong},
		{"long JSON text", []byte(`{"input": "` + strings.Repeat("a", 5_000) + `"}`), js, broker.CodeInputTooLong},
		{"invalid UTF-8", []byte("he\xffllo"), text, broker.CodeBadRequest},
		{"invalid UTF-8 in MessagePack", input(0xa2, 0xff, 0xfe), mp, broker.CodeBadRequest},
		{"character not in the vocabulary", []byte("hello 7"), text, broker.CodeBadRequest},
		{"malformed MessagePack", msgpack(0x81, 0xa5, 'i', 'n'), mp, broker.CodeBadRequest},
		{"MessagePack that promises gigabytes", input(0xdd, 0x7f, 0xff, 0xff, 0xff), mp, broker.CodeBadRequest},
		{"nested MessagePack", append(input(), []byte(strings.Repeat("\x91", 100_000))...), mp, broker.CodeBadRequest},
		{"malformed JSON", []byte(`{"input": "hello"`), js, broker.CodeBadRequest},
		{"nested JSON", []byte(`{"input": ` + strings.Repeat("[", 100_000)), js, broker.CodeBadRequest},
		{"JSON of the wrong type", []byte(`{"input": true}`), js, broker.CodeBadRequest},
		{"max_tokens of the wrong type", []byte(`{"input": "hello", "max_tokens": "three"}`), js, broker.CodeBadRequest},
		{"negative max_tokens", []byte(`{"input": "hello", "max_tokens": -1}`), js, broker.CodeBadRequest},
		{"negative id", []byte(`{"input": [-5]}`), js, broker.CodeBadRequest},
		{"id out of range", []byte(`{"input": [100000]}`), js, broker.CodeBadRequest},
		{"max_tokens above the ceiling", []byte(`{"input": "hello", "max_tokens": 1000000}`), js, broker.CodeBadRequest},
		{"negative temperature", []byte(`{"input": "hello", "temperature": -0.7}`), js, broker.CodeBadRequest},
		{"endless temperature", []byte(`{"input": "hello", "temperature": 1e300}`), js, broker.CodeBadRequest},
		{"top_p above 1", []byte(`{"input": "hello", "temperature": 1, "top_p": 1.5}`), js, broker.CodeBadRequest},
		{"no beam", []byte(`{"input": "hello", "beam_width": 0}`), js, broker.CodeBadRequest},
		{"wide beam", []byte(`{"input": "hello", "beam_width": 1000}`), js, broker.CodeBadRequest},
		{"more hypotheses than the beam has", []byte(`{"input": "hello", "beam_width": 2, "n_best": 3}`), js, broker.CodeBadRequest},
		{"many candidates", []byte(`{"input": "hello", "logprobs": 21}`), js, broker.CodeBadRequest},
		{"empty stop text", []byte(`{"input": "hello", "stop": [""]}`), js, broker.CodeBadRequest},
		{"many stop texts", []byte(`{"input": "hello", "stop": [` + strings.Repeat(`"x",`, 16) + `"x"]}`), js, broker.CodeBadRequest},
		{"unknown version", []byte("hello"), append([]string{"Infer-Version", "99"}, text...), broker.CodeUnknownVersion},
		{"zero deadline", []byte("hello"), append([]string{"Infer-Deadline", "0"}, text...), broker.CodeBadRequest},
		{"negative deadline", []byte("hello"), append([]string{"Infer-Deadline", "-5"}, text...), broker.CodeBadRequest},
		{"deadline in the past", []byte("hello"), append([]string{"Infer-Deadline", "1000"}, text...), broker.CodeDeadlineExceeded},
		{"unknown mode", []byte("hello"), append([]string{"Infer-Mode", "loud"}, text...), broker.CodeBadRequest},
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	w := start(t, server, worker.Deps{}, nil)
	nc := connect(t, server)
	for _, path := range []string{"realtime", "durable"} {
		for i, tc := range badInputs() {
			t.Run(path+"/"+tc.name, func(t *testing.T) {
				subject, client := "infer.rt.g2p-en", fmt.Sprintf("c%d", i)
				frames := subscribe(t, nc, nats.NewInbox())
				reply := frames.Subject
				if path == "durable" {
					frames = subscribe(t, nc, "infer.out."+client+".*")
					subject, reply = "infer.req.g2p-en.std."+client, ""
				}
				publish(t, nc, subject, reply, tc.payload, tc.header...)
				got := untilTerminal(t, frames)
				if len(got) != 1 || got[0].Error == nil || got[0].Error.Code != tc.code {
					t.Fatalf("frames %+v, error %+v, want %s", got, got[0].Error, tc.code)
				}
				if e := got[0].Error; e.Message == "" || e.Retryable {
					t.Errorf("error %+v", e)
				}
			})
		}
	}
	replies := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "infer.rt.g2p-en", replies.Subject, []byte("hello"))
	frames := untilTerminal(t, replies)
	if final := frames[len(frames)-1]; final.Text != "HH EH1 L OW0" {
		t.Errorf("after bad input: %+v", final)
	}
	eventually(t, "nothing is running", func() bool { return w.Running() == 0 })
	if stats := w.Stats(); stats.Running != 0 {
		t.Errorf("the step loop runs %d", stats.Running)
	}
	queued(t, nc, 0)
	if _, body := get(t, w, "/metrics"); strings.Contains(body, `cellmq_requests_total{model="unknown"`) {
		t.Error("requests for a model that is served are counted as those of none")
	}
}

// queued wants the number of messages in the request stream.
func queued(t *testing.T, nc *nats.Conn, want int) {
	t.Helper()
	got := -1
	eventually(t, fmt.Sprintf("%d messages in the stream (%d)", want, got), func() bool {
		var answer struct{ State struct{ Messages int } }
		ask(t, nc, "$JS.API.STREAM.INFO.INFER", &answer)
		got = answer.State.Messages
		return got == want
	})
}

func TestUnknownModel(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{}, nil)
	nc := connect(t, server)
	for _, subject := range []string{"infer.rt.none", "infer.req.none.std.me"} {
		if _, err := nc.Request(subject, []byte("hello"), patience); err == nil || err.Error() != nats.ErrNoResponders.Error() {
			t.Errorf("%s: %v, want no responders", subject, err)
		}
	}
}
