package worker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/zoo"
	"github.com/cellmq/cellmq/worker"
)

// TestBurst publishes far more requests than there are slots: the broker holds
// the rest, and each has one final.
func TestBurst(t *testing.T) {
	t.Parallel()
	requests := 2000
	if testing.Short() || raced {
		requests = 200
	}
	server := newServer(t)
	w := start(t, server, worker.Deps{}, func(c *worker.Config) { c.Slots = 16 })
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	words := []string{"a", "the", "queue", "to", "be", "or", "not", "hello"}
	for i := range requests {
		publish(t, nc, "infer.req.g2p-en.std.me", "", []byte(words[i%len(words)]), "Nats-Msg-Id", fmt.Sprintf("request%05d", i))
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	frames := map[string][]broker.Frame{}
	texts := map[string]string{}
	most, waiting := 0, 0
	for finals := 0; finals < requests; {
		f := nextFrame(t, out)
		frames[f.ID] = append(frames[f.ID], f)
		if f.Type != broker.FrameFinal {
			continue
		}
		finals++
		i, err := strconv.Atoi(strings.TrimPrefix(f.ID, "request"))
		if err != nil {
			t.Fatal(err)
		}
		word := words[i%len(words)]
		if before, ok := texts[word]; ok && before != f.Text {
			t.Errorf("%s: %q here, %q before", word, f.Text, before)
		}
		texts[word] = f.Text
		most = max(most, w.Running())
		if finals == requests/4 {
			var answer struct{ State struct{ Messages int } }
			ask(t, nc, "$JS.API.STREAM.INFO.INFER", &answer)
			waiting = answer.State.Messages
		}
	}
	if len(frames) != requests {
		t.Errorf("frames of %d requests", len(frames))
	}
	for id, fs := range frames {
		checkFrames(t, fs)
		if last := fs[len(fs)-1]; last.Attempt != 1 {
			t.Errorf("%s took %d attempts", id, last.Attempt)
		}
	}
	if most > 16 {
		t.Errorf("%d requests ran at once in 16 slots", most)
	}
	if waiting < requests/4 {
		t.Errorf("the broker held %d requests after a quarter of the finals", waiting)
	}
	eventually(t, "all requests leave", func() bool { return w.Running() == 0 })
	queued(t, nc, 0)
	if n := metric(t, w, "cellmq_redeliveries_total"); n != 0 {
		t.Errorf("%v redeliveries", n)
	}
	if n := metric(t, w, `cellmq_requests_total{model="g2p-en",outcome="stop"}`); int(n) != requests {
		t.Errorf("%v requests counted", n)
	}
	if stats := w.Stats(); stats.PaddedRows != 0 || stats.MaxRows < 2 {
		t.Errorf("padded %d, largest step %d", stats.PaddedRows, stats.MaxRows)
	}
}

// metric reads one sample from /metrics.
func metric(t *testing.T, w *started, sample string) float64 {
	t.Helper()
	status, body := get(t, w, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics answers %d", status)
	}
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, sample+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

func get(t *testing.T, w *started, path string) (status int, body string) {
	t.Helper()
	resp, err := http.Get("http://" + w.AdminAddress() + path) //nolint:noctx // the server is in this process
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	b, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// slow starts a worker with an endless model and publishes a durable request to
// it; it returns once the request emits tokens.
func slow(t *testing.T, change func(*worker.Config)) (*started, *nats.Conn, *nats.Subscription) {
	t.Helper()
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, change)
	backend.pace(t)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3, 4, 5]}`), "Nats-Msg-Id", "endless001")
	for nextFrame(t, out).Type != broker.FrameToken {
	}
	return w, nc, out
}

// lastFrame reads on to the terminal frame.
func lastFrame(t *testing.T, sub *nats.Subscription) broker.Frame {
	t.Helper()
	for {
		if f := nextFrame(t, sub); f.Type.Terminal() {
			return f
		}
	}
}

// cancel asks for a request's cancellation.
func cancel(t *testing.T, nc *nats.Conn, client, id string) (state string) {
	t.Helper()
	m, err := nc.Request("infer.cancel."+client, fmt.Appendf(nil, `{"id": %q}`, id), time.Second)
	if err != nil {
		return err.Error()
	}
	var answer struct{ ID, State string }
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.ID != id {
		t.Fatalf("answer %s: %v", m.Data, err)
	}
	return answer.State
}

func TestCancelRunning(t *testing.T) {
	t.Parallel()
	w, nc, out := slow(t, nil)
	if state := cancel(t, nc, "me", "endless001"); state != "running" {
		t.Errorf("state %s", state)
	}
	final := lastFrame(t, out)
	if final.Type != broker.FrameFinal || final.Final.FinishReason != broker.FinishCancelled || len(final.Tokens) == 0 {
		t.Fatalf("terminal frame %+v", final)
	}
	eventually(t, "it leaves", func() bool { return w.Running() == 0 && w.Stats().Running == 0 })
	queued(t, nc, 0)
	if state := cancel(t, nc, "me", "endless001"); state != "finished" {
		t.Errorf("state afterwards %s", state)
	}
	if n := metric(t, w, `cellmq_requests_total{model="endless",outcome="cancelled"}`); n != 1 {
		t.Errorf("%v cancelled", n)
	}
}

func TestCancelBeforeItComes(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{}, nil)
	nc := connect(t, server)
	if state := cancel(t, nc, "me", "request0001"); state != nats.ErrTimeout.Error() {
		t.Errorf("a worker answers for a request it does not know: %s", state)
	}
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.g2p-en.std.me", "", []byte("hello"), "Nats-Msg-Id", "request0001")
	got := untilTerminal(t, out)
	if final := got[0]; len(got) != 1 || final.Final == nil || final.Final.FinishReason != broker.FinishCancelled || final.Final.Deterministic {
		t.Fatalf("frames %+v", got)
	}
	queued(t, nc, 0)
}

func TestDeadlineWhileRunning(t *testing.T) {
	t.Parallel()
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, nil)
	backend.pace(t)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	deadline := time.Now().Add(700 * time.Millisecond)
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3, 4, 5]}`),
		"Infer-Deadline", strconv.FormatInt(deadline.UnixMilli(), 10))
	final := lastFrame(t, out)
	if final.Type != broker.FrameFinal || final.Final.FinishReason != broker.FinishDeadline || len(final.Tokens) == 0 {
		t.Fatalf("terminal frame %+v", final)
	}
	if final.Final.Deterministic || !(final.Final.LogProb < 0) {
		t.Errorf("deterministic %v, log-probability %v", final.Final.Deterministic, final.Final.LogProb)
	}
	if early := time.Until(deadline); early > 10*time.Millisecond {
		t.Errorf("ended %v before the deadline", early)
	}
	eventually(t, "it leaves", func() bool { return w.Running() == 0 })
	queued(t, nc, 0)
}

func TestClientGone(t *testing.T) {
	t.Parallel()
	w, nc, out := slow(t, nil)
	if err := out.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the abandoned request leaves", func() bool { return w.Running() == 0 })
	if n := metric(t, w, `cellmq_requests_total{model="endless",outcome="client_gone"}`); n != 1 {
		t.Errorf("%v of absent clients", n)
	}
	queued(t, nc, 0)
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	server, backend := newServer(t), newGate()
	start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, func(c *worker.Config) {
		c.Heartbeat = 40 * time.Millisecond
	})
	nc := connect(t, server)
	backend.set(true)
	replies := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "infer.rt.endless", replies.Subject, []byte(`{"input": [3], "max_tokens": 3}`))
	for i, want := range []broker.FrameType{broker.FrameAccepted, broker.FrameHeartbeat, broker.FrameHeartbeat} {
		if f := nextFrame(t, replies); f.Type != want {
			t.Fatalf("frame %d is %s, want %s", i, f.Type, want)
		}
	}
	backend.set(false)
	if f := lastFrame(t, replies); f.Type != broker.FrameFinal || len(f.Tokens) != 3 {
		t.Errorf("%s with %d tokens", f.Type, len(f.Tokens))
	}
}

func TestBusyIsTheRealtimePathsOwn(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}}, func(c *worker.Config) {
		c.Slots, c.RealtimeSlots = 1, 1
	})
	nc := connect(t, server)
	first := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "infer.rt.endless", first.Subject, []byte(`{"input": [3]}`))
	nextFrame(t, first) // accepted
	second := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "infer.rt.endless", second.Subject, []byte(`{"input": [3]}`))
	if e := lastFrame(t, second).Error; e == nil || e.Code != broker.CodeBusy || !e.Retryable || e.RetryAfter <= 0 {
		t.Errorf("error %+v", e)
	}
	// The durable path has slots of its own.
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 2}`))
	if f := lastFrame(t, out); f.Type != broker.FrameFinal {
		t.Errorf("terminal frame %+v", f)
	}
}

func TestNumericalError(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	spoiled := randomModel(t, "spoiled", 4, func(bias []float32) { bias[5] = 1e38; bias[6] = 1e38 })
	for i := range spoiled.Program().Cells {
		spoil(spoiled.Program().Cells[i])
	}
	w := start(t, server, worker.Deps{Models: []*models.Model{spoiled, g2p(t)}}, nil)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.spoiled.std.me", "", []byte(`{"input": [3]}`))
	if e := lastFrame(t, out).Error; e == nil || e.Code != broker.CodeNumericalError || e.Retryable {
		t.Errorf("error %+v", e)
	}
	publish(t, nc, "infer.req.g2p-en.std.me", "", []byte(`hello`))
	if f := lastFrame(t, out); f.Type != broker.FrameFinal {
		t.Errorf("terminal frame %+v", f)
	}
	eventually(t, "all leave", func() bool { return w.Running() == 0 })
	queued(t, nc, 0)
}

// spoil makes a cell's projection give infinities.
func spoil(c *cellrt.Cell) {
	for _, op := range c.Ops() {
		if l, ok := op.(cellrt.Linear); ok && l.Act == cellrt.None {
			for i := range l.Weight.Data {
				l.Weight.Data[i] = 3e38
			}
		}
	}
}

func TestAdminPages(t *testing.T) {
	t.Parallel()
	w, _, _ := slow(t, nil)
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, body := get(t, w, path); status != http.StatusOK || body != "ok\n" {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if n := metric(t, w, "cellmq_running_requests"); n != 1 {
		t.Errorf("%v running", n)
	}
	if n := metric(t, w, `cellmq_slots{path="durable"}`); n != 16 {
		t.Errorf("%v slots", n)
	}
	// What polls hold is free: only the endless request takes a slot.
	for path, want := range map[string]float64{"durable": 15, "realtime": 16} {
		if n := metric(t, w, `cellmq_free_slots{path="`+path+`"}`); n != want {
			t.Errorf("%v slots of the %s path are free, want %v", n, path, want)
		}
	}
	w.stop() // drains: the endless request goes on
	eventually(t, "not ready any more", func() bool {
		status, body := get(t, w, "/readyz")
		return status == http.StatusServiceUnavailable && body == "draining\n"
	})
	if status, _ := get(t, w, "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz while draining: %d", status)
	}
}

func TestGoldenOutputsAreChecked(t *testing.T) {
	t.Parallel()
	m, err := zoo.Load("g2p-en")
	if err != nil {
		t.Fatal(err)
	}
	// Another decoder gives other phonemes.
	for _, c := range m.Program().Cells {
		for _, op := range c.Ops() {
			if l, ok := op.(cellrt.Linear); ok && l.Act == cellrt.None && l.Bias != nil {
				l.Bias[5] += 100
			}
		}
	}
	cfg := worker.DefaultConfig()
	cfg.AdminAddress, cfg.Profile = "", 0
	w, err := worker.New(cfg, worker.Deps{Server: newServer(t), Models: []*models.Model{m}, Backend: cpu.New(cpu.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); !errors.Is(err, worker.ErrModel) || !strings.Contains(err.Error(), "g2p-en") {
		t.Errorf("got %v", err)
	}
}
