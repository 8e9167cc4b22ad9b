package worker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// TestCheckpointIsHandedOver interrupts a run, in order and by a hang: the next
// worker goes on from what was stored, and its client gets the tokens and the
// log-probability of a calm run. Without checkpoints it begins anew.
func TestCheckpointIsHandedOver(t *testing.T) {
	t.Parallel()
	const tokens, every, cut = 90, 20, 50
	for _, tc := range []struct {
		name  string
		every int
		hang  bool
		rows  uint64 // that the second worker computes at most
	}{
		{"drained", every, false, tokens - cut + 5},
		{"hung", every, true, tokens - cut + every + 5},
		{"drained, no checkpoints", 0, false, tokens + 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server, backend, other := newServer(t), newGate(), newGate()
			quick := func(c *worker.Config) {
				c.CheckpointSteps = tc.every
				c.Slots = 1
				if tc.hang {
					c.AckWait = 1200 * time.Millisecond
				}
			}
			serve := func(g *gate) worker.Deps {
				return worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: g}
			}
			nc := connect(t, server)
			out := subscribe(t, nc, "infer.out.me.*")
			w := start(t, server, serve(backend), quick)
			payload := fmt.Appendf(nil, `{"input": [3, 4], "max_tokens": %d, "temperature": 1, "seed": 5}`, tokens)
			publish(t, nc, "infer.req.endless.std.me", "", payload, "Nats-Msg-Id", "calmrun01")
			calm := lastFrame(t, out)
			before := w.Stats().Tokens
			backend.set(true)
			defer backend.set(false)
			publish(t, nc, "infer.req.endless.std.me", "", payload, "Nats-Msg-Id", "request01")
			eventually(t, "it has come so far", func() bool {
				if w.Stats().Tokens-before < cut {
					backend.allow(1)
				}
				return w.Stats().Tokens-before >= cut
			})
			if tc.every > 0 {
				conn := brokerConn(t, server)
				eventually(t, "a checkpoint is stored", func() bool {
					s, err := conn.State(t.Context(), "me", "request01")
					return err == nil && len(s.Checkpoint) > 0 && s.Excused == 0
				})
			}
			if !tc.hang {
				w.stop()
				w.HandBack()
				eventually(t, "it is handed back", func() bool { backend.allow(1); return w.Running() == 0 })
				w.wait(t)
			}
			second := start(t, server, serve(other), quick)
			var f broker.Frame
			index := 0
			for !f.Type.Terminal() {
				f = nextFrame(t, out)
				if f.Type == broker.FrameToken && f.Attempt > 1 {
					if f.Index != index {
						t.Errorf("attempt %d goes on at %d after %d", f.Attempt, f.Index, index)
					}
					index = f.Index + len(f.Tokens)
				}
			}
			if f.Final == nil || f.Attempt != 2 || !slices.Equal(f.Tokens, calm.Tokens) || f.Text != calm.Text || f.Final.LogProb != calm.Final.LogProb {
				t.Errorf("%s of attempt %d: %d tokens, calm %d", f.Type, f.Attempt, len(f.Tokens), len(calm.Tokens))
			}
			backend.set(false)
			restored := 0.0
			if tc.every > 0 {
				restored = 1
			}
			if n := metric(t, second, "cellmq_restored_total"); n != restored {
				t.Errorf("%v restored", n)
			}
			rows := uint64(0)
			for _, cell := range second.Stats().Cells {
				rows += cell.Rows
			}
			if rows > tc.rows {
				t.Errorf("%d rows computed", rows)
			}
			queued(t, nc, 0)
		})
	}
}
