package worker_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// newClient returns a Go client of the name me.
func newClient(tb testing.TB, server *broker.Server) *broker.Client {
	tb.Helper()
	c, err := broker.NewClient(connect(tb, server), broker.ClientConfig{Name: "me", CancelTimeout: patience})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// TestGoneBeforeTheFirstToken has two clients leave before their requests begin:
// one is the worker's and waits for a step, one is queued. The first never
// begins. The second begins, since the queue does not know who listens, and ends
// as soon as that is known.
func TestGoneBeforeTheFirstToken(t *testing.T) {
	t.Parallel()
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, func(c *worker.Config) { c.Slots = 2 })
	backend.set(true)
	defer backend.set(false)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	ask := func(client, id string, tokens int) {
		publish(t, nc, "infer.req.endless.std."+client, "", fmt.Appendf(nil, `{"input": [3], "max_tokens": %d}`, tokens), "Nats-Msg-Id", id)
	}
	ask("me", "listened1", 3)
	eventually(t, "a step waits", backend.blocks)
	ask("gone1", "admitted1", 16384)
	eventually(t, "both are the worker's", func() bool { return w.Running() == 2 })
	ask("gone2", "queued001", 16384)
	queued(t, nc, 3)
	<-time.After(5 * time.Second) // some heartbeats that nobody hears
	backend.pace(t)
	if f := lastFrame(t, out); f.Final == nil || f.Final.FinishReason != broker.FinishLength {
		t.Errorf("beside them: %+v", f)
	}
	eventually(t, "they leave", func() bool { return w.Running() == 0 })
	queued(t, nc, 0)
	for client, id := range map[string]string{"gone1": "admitted1", "gone2": "queued001"} {
		stored, err := brokerConn(t, server).Final(t.Context(), client, id)
		if err != nil {
			t.Fatal(err)
		}
		f, err := broker.DecodeFrame(stored.Frame)
		if err != nil || f.Final == nil || f.Final.FinishReason != broker.FinishClientGone || id == "admitted1" && len(f.Tokens) > 0 {
			t.Errorf("%s: %+v, %v", id, f, err)
		}
	}
}

// TestCancelFindsEveryModel cancels requests by nothing but their ids, whatever
// model, priority and path they have.
func TestCancelFindsEveryModel(t *testing.T) {
	t.Parallel()
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless"), endless(t, "other")}, Backend: backend}, nil)
	backend.pace(t)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	ids := map[string]string{}
	for _, model := range []string{"endless", "other"} {
		for _, path := range []string{"req.%s.high.me", "req.%s.std.me", "req.%s.low.me", "rt.%s.me", "rt.%s"} {
			id := fmt.Sprintf("request%03d", len(ids))
			ids[id] = model
			publish(t, nc, "infer."+fmt.Sprintf(path, model), "infer.out.me."+id, []byte(`{"input": [3]}`), "Nats-Msg-Id", id)
		}
	}
	eventually(t, "all are the worker's", func() bool { return w.Running() == len(ids) })
	if state := cancel(t, nc, "you", "request000"); state != nats.ErrTimeout.Error() {
		t.Errorf("another client's: %s", state)
	}
	for id := range ids {
		if state := cancel(t, nc, "me", id); state != "running" && state != "admitted" {
			t.Errorf("%s: %s", id, state)
		}
	}
	for range len(ids) {
		f := lastFrame(t, out)
		if f.Final == nil || f.Final.FinishReason != broker.FinishCancelled || f.Model != ids[f.ID] {
			t.Errorf("%s of model %s, %+v", f.ID, f.Model, f.Final)
		}
	}
	eventually(t, "all leave", func() bool { return w.Running() == 0 })
	queued(t, nc, 0)
}

// TestCancelWhileReading cancels while another goroutine reads the frames: by
// the id the stream has all there is and the cancelled final, by the stream it
// ends at once.
func TestCancelWhileReading(t *testing.T) {
	t.Parallel()
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, nil)
	backend.pace(t)
	c := newClient(t, server)
	for _, byID := range []bool{true, false} {
		s, err := c.Request(t.Context(), "endless", broker.RequestOptions{Input: broker.Input{IDs: []int32{3}, IsIDs: true}})
		if err != nil {
			t.Fatal(err)
		}
		reads, ended := make(chan struct{}), make(chan error, 1)
		began := sync.OnceFunc(func() { close(reads) })
		var text strings.Builder
		var final broker.Frame
		go func() {
			var last error
			for f, err := range s.Frames() {
				if final, last = f, err; f.Type != broker.FrameToken {
					continue
				}
				text.WriteString(f.Text)
				began()
			}
			ended <- last
		}()
		select {
		case <-reads:
		case err := <-ended:
			t.Fatalf("ended before the first token: %v", err)
		}
		if byID {
			if r, err := c.Cancel(t.Context(), s.ID()); err != nil || r.State != broker.CancelRunning {
				t.Errorf("%+v, %v", r, err)
			}
		} else {
			s.Cancel()
		}
		switch err := <-ended; {
		case byID && (err != nil || final.Final == nil || final.Final.FinishReason != broker.FinishCancelled || final.Text != text.String()):
			t.Errorf("read %q, final %+v, %v", text.String(), final, err)
		case !byID && !errors.Is(err, broker.ErrCancelled):
			t.Errorf("ended with %v", err)
		}
		eventually(t, "it leaves", func() bool { return w.Running() == 0 })
	}
	queued(t, connect(t, server), 0)
}

// TestCancelAndDeadlineInBothOrders has a cancellation and the deadline come
// between two steps. The request ends once, by what came first.
func TestCancelAndDeadlineInBothOrders(t *testing.T) {
	t.Parallel()
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, nil)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	for i, first := range []broker.FinishReason{broker.FinishCancelled, broker.FinishDeadline} {
		backend.set(true)
		id := fmt.Sprintf("request%03d", i)
		deadline := time.Now().Add(time.Second)
		publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3]}`), "Nats-Msg-Id", id, "Infer-Timeout", "1000")
		eventually(t, "a step waits", backend.blocks)
		late := time.After(time.Until(deadline) + 500*time.Millisecond)
		if first == broker.FinishDeadline {
			<-late
		}
		if state := cancel(t, nc, "me", id); state != "running" && state != "admitted" {
			t.Errorf("%s first: cancel says %s", first, state)
		}
		if first == broker.FinishCancelled {
			<-late
		}
		backend.set(false)
		if f := lastFrame(t, out); f.ID != id || f.Final == nil || f.Final.FinishReason != first {
			t.Errorf("%s first: %s, %+v, %v", first, f.ID, f.Final, f.Error)
		}
		eventually(t, "it leaves", func() bool { return w.Running() == 0 })
	}
	queued(t, nc, 0)
	if m, err := out.NextMsg(50 * time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("after all: %v, %v", m, err)
	}
}
