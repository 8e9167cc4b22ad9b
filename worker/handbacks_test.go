package worker_test

import (
	"strings"
	"testing"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// TestManyHandBacks has a request handed back for hundreds of times, all of them
// excused: it runs. One that nobody excused, since it killed whoever had it,
// ends when the server delivers it no more.
func TestManyHandBacks(t *testing.T) {
	t.Parallel()
	const handBacks, bound = 900, 8 + 1024
	server := newServer(t)
	serve := worker.Deps{Models: []*models.Model{endless(t, "endless")}}
	once := func(c *worker.Config) { c.MaxAttempts = 1 }
	w := start(t, server, serve, once)
	w.stop()
	w.wait(t)
	nc, conn := connect(t, server), brokerConn(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 4}`), "Nats-Msg-Id", "patient01")
	queued(t, nc, 1)
	d, err := conn.Queued(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SaveState(t.Context(), &broker.State{Client: "me", ID: "patient01", Request: d.Request.Hash, Excused: handBacks}, 0); err != nil {
		t.Fatal(err)
	}
	fail(t, nc, "endless", handBacks)
	w = start(t, server, serve, once)
	if f := lastFrame(t, out); f.Type != broker.FrameFinal || f.ID != "patient01" || f.Attempt != handBacks+1 {
		t.Errorf("%s of attempt %d: %v", f.Type, f.Attempt, f.Error)
	}
	queued(t, nc, 0)
	w.stop()
	w.wait(t)

	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3]}`), "Nats-Msg-Id", "killer001")
	queued(t, nc, 1)
	fail(t, nc, "endless", bound)
	start(t, server, serve, once)
	f := lastFrame(t, out)
	if f.Error == nil || f.ID != "killer001" || f.Error.Code != broker.CodeAttemptsExhausted || !strings.Contains(f.Error.Message, "none finished") {
		t.Errorf("%s of %s: %+v", f.Type, f.ID, f.Error)
	}
	queued(t, nc, 0)
}
