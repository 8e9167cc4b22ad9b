package worker_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// TestDrainsLoseNothing stops one worker after another while requests run.
func TestDrainsLoseNothing(t *testing.T) {
	t.Parallel()
	const requests, drains = 3, 5
	server := newServer(t)
	serve := worker.Deps{Models: []*models.Model{endless(t, "endless")}}
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	w := start(t, server, serve, nil)
	for i := range requests {
		publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 1200}`), "Nats-Msg-Id", fmt.Sprintf("request%d", i))
	}
	for range drains {
		eventually(t, "all run", func() bool { return w.Running() == requests })
		w.stop()
		w.HandBack()
		w.wait(t)
		queued(t, nc, requests)
		w = start(t, server, serve, nil)
	}
	var ended []string
	for range requests {
		f := lastFrame(t, out)
		if f.Type != broker.FrameFinal || len(f.Tokens) != 1200 || f.Attempt <= drains {
			t.Errorf("%s: %s of attempt %d with %d tokens: %v", f.ID, f.Type, f.Attempt, len(f.Tokens), f.Error)
		}
		ended = append(ended, f.ID)
	}
	slices.Sort(ended)
	if len(slices.Compact(ended)) != requests {
		t.Errorf("ended %v", ended)
	}
	queued(t, nc, 0)
}

// TestAttemptsAreBounded hands a request back as often as is allowed: then its
// client is told, and the request leaves the queue.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	serve := worker.Deps{Models: []*models.Model{endless(t, "endless")}}
	bound := func(c *worker.Config) { c.MaxAttempts = 2 }
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	publishLater := func() {
		publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "meta": {"k": "v"}}`))
	}
	for attempt := range 2 {
		w := start(t, server, serve, bound)
		if attempt == 0 {
			publishLater()
		}
		eventually(t, "it runs", func() bool { return w.Running() == 1 })
		w.stop()
		w.HandBack()
		w.wait(t)
		queued(t, nc, 1)
	}
	w := start(t, server, serve, bound)
	f := lastFrame(t, out)
	if f.Error == nil || f.Error.Code != broker.CodeAttemptsExhausted || f.Error.Retryable || f.Attempt != 3 || len(f.Meta) == 0 {
		t.Errorf("%s of attempt %d, meta %s, error %+v", f.Type, f.Attempt, f.Meta, f.Error)
	}
	queued(t, nc, 0)
	if n := metric(t, w, `cellmq_refusals_total{code="attempts_exhausted"}`); n != 1 {
		t.Errorf("%v refusals", n)
	}
}
