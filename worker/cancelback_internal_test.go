package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
)

// TestCancelOfAHandBack cancels a run that is being handed back, before and after
// it has gone: what the client of the cancellation is told is what happens.
func TestCancelOfAHandBack(t *testing.T) {
	t.Parallel()
	for _, end := range []error{errHandBack, cellrt.ErrStopped, cellrt.ErrCheckpoint, cellrt.ErrNoSlot} {
		for _, tc := range []struct {
			name    string
			cancel  func(step int) bool
			state   broker.CancelState
			outcome string
		}{
			{"before it ended", func(step int) bool { return step == 0 }, broker.CancelRunning, "cancelled"},
			{"while it waits", func(step int) bool { return step == 1 }, broker.CancelRunning, "cancelled"},
			{"gone", func(step int) bool { return step == 2 }, broker.CancelUnknown, outcomeHandedBack},
		} {
			t.Run(end.Error()+" "+tc.name, func(t *testing.T) {
				t.Parallel()
				d := durableDesk(t, &ledger{})
				out := d.publisher.outbox
				if err := out.markSubmitted(d.run); err != nil {
					t.Fatal(err)
				}
				out.askStop(d.run, errHandBack)
				var state broker.CancelState
				cancel := func(step int) {
					if tc.cancel(step) {
						state, _ = out.askCancel(d.run)
					}
				}
				cancel(0)
				d.emit(cellrt.Result{Done: true, Err: end})
				if tc.name != "before it ended" {
					d.publisher.turn(time.Now()) // writes the excuse
				}
				cancel(1)
				for range 3 {
					d.publisher.turn(time.Now())
				}
				cancel(2)
				if state != tc.state || !slices.Equal(d.outcomes, []string{tc.outcome}) {
					t.Errorf("told %q, outcomes %v", state, d.outcomes)
				}
			})
		}
	}
}
