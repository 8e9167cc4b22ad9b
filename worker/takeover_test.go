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

// TestNewLeaseTakesOver deletes the consumer under running requests, some of
// which end before there is a new one: it delivers all that are in the stream
// again, to the worker that runs them.
func TestNewLeaseTakesOver(t *testing.T) {
	t.Parallel()
	const requests = 30
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, func(c *worker.Config) { c.Slots = 3 * requests })
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	for i := range requests {
		publish(t, nc, "infer.req.endless.std.me", "", fmt.Appendf(nil, `{"input": [3], "max_tokens": %d}`, 20+40*i),
			"Nats-Msg-Id", fmt.Sprintf("request%03d", i))
	}
	seen := map[string][]broker.Frame{}
	finals := 0
	take := func(f broker.Frame) {
		last := len(seen[f.ID]) - 1
		if last >= 0 {
			before := seen[f.ID][last]
			switch newer := f.Epoch > before.Epoch || f.Epoch == before.Epoch && f.Attempt > before.Attempt; {
			case before.Type.Terminal():
				t.Errorf("%s: a %s frame after the %s", f.ID, f.Type, before.Type)
			case newer && f.Seq != 0, !newer && (f.Epoch != before.Epoch || f.Attempt != before.Attempt || f.Seq != before.Seq+1):
				t.Errorf("%s: frame %d of lease %d/%d after %d of %d/%d", f.ID, f.Seq, f.Epoch, f.Attempt, before.Seq, before.Epoch, before.Attempt)
			}
		}
		seen[f.ID] = append(seen[f.ID], f)
		if f.Type.Terminal() {
			finals++
		}
	}
	for len(seen) < requests || finals == 0 {
		take(nextFrame(t, out))
	}
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	backend.set(true)
	if err := js.DeleteConsumer("INFER", "endless_std"); err != nil {
		t.Fatal(err)
	}
	// The step loop goes slowly on until a run has lost its lease to another.
	eventually(t, "a running request is delivered again", func() bool {
		backend.allow(1)
		return metric(t, w, "cellmq_redeliveries_total")+metric(t, w, `cellmq_requests_total{model="endless",outcome="lease_lost"}`) > 0
	})
	backend.set(false)
	for finals < requests {
		take(nextFrame(t, out))
	}
	queued(t, nc, 0)
	for {
		m, err := out.NextMsg(300 * time.Millisecond)
		if errors.Is(err, nats.ErrTimeout) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		f, err := broker.DecodeFrame(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		take(f)
	}
	for id, frames := range seen {
		var i int
		if _, err := fmt.Sscanf(id, "request%d", &i); err != nil {
			t.Fatal(err)
		}
		if f := frames[len(frames)-1]; f.Type != broker.FrameFinal || len(f.Tokens) != 20+40*i {
			t.Errorf("%s: ends with a %s of %d tokens", id, f.Type, len(f.Tokens))
		}
	}
	eventually(t, "all leave", func() bool { return w.Running() == 0 })
}
