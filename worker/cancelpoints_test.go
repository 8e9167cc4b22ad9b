package worker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// TestCancelAtEveryPoint cancels a request after every number of steps of its
// life, before the first and after the last included. It ends once, by the
// cancellation or by itself, with the tokens of the calm run up to there; the
// queue is empty then and the worker has nothing left of it.
func TestCancelAtEveryPoint(t *testing.T) {
	t.Parallel()
	const tokens = 5
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, nil)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	ask := func(id string) {
		publish(t, nc, "infer.req.endless.std.me", "", fmt.Appendf(nil, `{"input": [3, 4], "max_tokens": %d}`, tokens), "Nats-Msg-Id", id)
	}
	ask("calmrun01")
	calm := lastFrame(t, out)
	backend.set(true)
	defer backend.set(false)
	for point := range tokens + 6 {
		id := fmt.Sprintf("cancelat%02d", point)
		before := w.Stats().Steps
		ask(id)
		eventually(t, "it is there", func() bool { return w.Running() == 1 })
		for step := range point {
			backend.allow(1)
			eventually(t, "a step has run", func() bool { return w.Stats().Steps > before+uint64(step) || w.Running() == 0 })
		}
		state := cancel(t, nc, "me", id)
		backend.set(false)
		f := lastFrame(t, out)
		backend.set(true)
		switch {
		case f.ID != id || f.Type != broker.FrameFinal:
			t.Errorf("point %d: %s of %s, error %v", point, f.Type, f.ID, f.Error)
		case f.Final.FinishReason == broker.FinishCancelled && state != "running" && state != "admitted":
			t.Errorf("point %d: cancelled, the answer was %s", point, state)
		case fmt.Sprint(f.Tokens) != fmt.Sprint(calm.Tokens[:len(f.Tokens)]):
			t.Errorf("point %d: tokens %v, calm %v", point, f.Tokens, calm.Tokens)
		}
		eventually(t, "it leaves", func() bool { return w.Running() == 0 && w.Stats().Running == 0 })
		queued(t, nc, 0)
		if state := cancel(t, nc, "me", id); state != "finished" {
			t.Errorf("point %d: cancelled again: %s", point, state)
		}
	}
	if m, err := out.NextMsg(50 * time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("after all: %v, %v", m, err)
	}
}
