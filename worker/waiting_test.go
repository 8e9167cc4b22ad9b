package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// TestNothingWaitsInTheWorker has many requests wait behind few slots that are
// taken for longer than an ack wait: none of them is delivered twice.
func TestNothingWaitsInTheWorker(t *testing.T) {
	t.Parallel()
	const requests = 60
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, func(c *worker.Config) {
		c.Slots, c.AckWait = 4, 1500*time.Millisecond
	})
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	backend.pace(t)
	for i := range requests {
		publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 60}`), "Nats-Msg-Id", fmt.Sprintf("request%03d", i))
	}
	for range requests {
		if f := lastFrame(t, out); f.Attempt != 1 || f.Final == nil || f.Final.FinishReason != broker.FinishLength {
			t.Errorf("%s of attempt %d: %v", f.ID, f.Attempt, f.Error)
		}
	}
	if n := metric(t, w, "cellmq_redeliveries_total"); n != 0 {
		t.Errorf("%v redeliveries", n)
	}
	queued(t, nc, 0)
}
