package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// TestStoppedWhileLookedUp stops a request that the worker has and has not
// begun, since its past is being looked up: it never begins, and asking again
// changes nothing.
func TestStoppedWhileLookedUp(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		cause   error
		outcome string
	}{
		{"cancelled", errCancelled, "cancelled"},
		{"deadline", errDeadline, string(broker.CodeDeadlineExceeded)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w, err := New(DefaultConfig(), Deps{})
			if err != nil {
				t.Fatal(err)
			}
			d := newDesk(t, 0, broker.ModeStream)
			r := d.run
			r.seq, r.unfolded, r.queued = nil, nil, false
			w.outbox = newOutbox(true)
			d.publisher.outbox = w.outbox
			if !w.table.add(r, time.Now()) {
				t.Fatal("not wanted")
			}
			if errors.Is(tc.cause, errCancelled) {
				for range 2 {
					if state := w.cancel(r.req.Client, r.req.ID, 0); state != broker.CancelAdmitted {
						t.Errorf("state %s", state)
					}
				}
			} else {
				w.stop(r, tc.cause)
			}
			w.begin(r)
			if r.seq != nil || r.unfolded != nil {
				t.Error("it has begun")
			}
			if state := w.cancel(r.req.Client, r.req.ID, 0); state != broker.CancelFinished {
				t.Errorf("afterwards %s", state)
			}
			d.publisher.turn(time.Now())
			if len(d.outcomes) != 1 || d.outcomes[0] != tc.outcome {
				t.Errorf("outcomes %v", d.outcomes)
			}
			if frames := d.frames(t); len(frames) != 1 || !frames[0].Type.Terminal() {
				t.Errorf("frames %v", describe(frames))
			}
		})
	}
}
