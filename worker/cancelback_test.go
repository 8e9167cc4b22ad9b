package worker_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// TestCancelWhileHandingBack cancels requests one after the other while their
// worker hands them back. Each of which the client hears is cancelled, though
// another worker may have it by then.
func TestCancelWhileHandingBack(t *testing.T) {
	t.Parallel()
	const requests = 16
	server := newServer(t)
	serve := worker.Deps{Models: []*models.Model{endless(t, "endless")}}
	w := start(t, server, serve, nil)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	replies := subscribe(t, nc, nats.NewInbox())
	for i := range requests {
		publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input":[3],"max_tokens":16384}`), "Nats-Msg-Id", fmt.Sprintf("request%03d", i), "Infer-Mode", "final")
	}
	eventually(t, "all run", func() bool { return w.Stats().Running == requests })
	w.HandBack()
	w.stop()
	for i := range requests {
		publish(t, nc, "infer.cancel.me", replies.Subject, fmt.Appendf(nil, `{"id":"request%03d"}`, i))
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	w.wait(t)
	told := map[string]broker.CancelState{}
	for {
		m, err := replies.NextMsg(300 * time.Millisecond)
		if err != nil {
			break
		}
		var a struct {
			ID    string
			State broker.CancelState
		}
		if err := json.Unmarshal(m.Data, &a); err != nil {
			t.Fatal(err)
		}
		told[a.ID] = a.State
	}
	start(t, server, serve, nil)
	for len(told) > 0 {
		f := lastFrame(t, out)
		if f.Final == nil || f.Final.FinishReason != broker.FinishCancelled {
			t.Errorf("%s, told %q: %+v", f.ID, told[f.ID], f)
		}
		delete(told, f.ID)
	}
}
