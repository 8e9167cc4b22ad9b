package worker_test

import (
	"math"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// TestFrameThatCannotBeEncoded has a stored answer that the request's encoding
// cannot carry, or that is no terminal frame at all: the request ends with an
// error, at once, and its slot serves the next one.
func TestFrameThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	meta, err := broker.NewMeta(map[string]any{"ratio": math.NaN()}) // which JSON has no word for
	if err != nil {
		t.Fatal(err)
	}
	unfit, err := broker.AppendFrame(nil, broker.MsgPack, &broker.Frame{
		Type: broker.FrameFinal, ID: "answered1", Text: "other", Meta: meta, Final: &broker.Final{FinishReason: broker.FinishStop},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name     string
		failures int
		frame    []byte
	}{
		{"looked up, not of the encoding", 1, unfit},
		{"looked up, no frame", 1, []byte(`{"stream":"INFER","seq":1}`)},
		{"looked up, not terminal", 1, []byte(`{"type":"heartbeat","id":"answered1"}`)},
		{"at the fence, not of the encoding", 0, unfit},
		{"at the fence, no frame", 0, []byte{0xc1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server := newServer(t)
			serve := worker.Deps{Models: []*models.Model{endless(t, "endless")}}
			layOut(t, server, serve)
			nc := connect(t, server)
			out := subscribe(t, nc, "infer.out.me.*")
			publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 3}`), "Nats-Msg-Id", "answered1")
			queued(t, nc, 1)
			storeOther(t, brokerConn(t, server), 1, func(s *broker.StoredFinal) { s.Frame = tc.frame })
			fail(t, nc, "endless", tc.failures)
			publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [4], "max_tokens": 3}`), "Nats-Msg-Id", "following1")
			w := start(t, server, serve, func(c *worker.Config) { c.Slots, c.AckWait = 1, patience/3 })
			terminal := map[string]broker.Frame{}
			began := time.Now()
			for len(terminal) < 2 {
				f := lastFrame(t, out)
				terminal[f.ID] = f
			}
			if waited := time.Since(began); waited > patience/2 {
				t.Errorf("after %v", waited)
			}
			if e := terminal["answered1"].Error; e == nil || e.Code != broker.CodeInternal {
				t.Errorf("frame %+v", terminal["answered1"])
			}
			if f := terminal["following1"]; f.Type != broker.FrameFinal || len(f.Tokens) != 3 {
				t.Errorf("the next request: %+v", f)
			}
			queued(t, nc, 0)
			eventually(t, "both leave", func() bool { return w.Running() == 0 })
		})
	}
}
