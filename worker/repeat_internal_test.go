package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
)

// TestRepetitionsAreShared has readers ask for a run's output far more often than
// it is repeated, and a connection come back.
func TestRepetitionsAreShared(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 20*time.Millisecond, broker.ModeStream)
	session := uint64(1)
	d.publisher.session = func() uint64 { return session }
	now := time.Now()
	d.publisher.turn(now)
	d.emit(cellrt.Result{Tokens: token(3)})
	d.publisher.turn(now)
	for range 300 { // 3 ms apart
		d.publisher.outbox.askRepeat(d.run)
		now = now.Add(3 * time.Millisecond)
		d.publisher.turn(now)
	}
	want := []string{"accepted", "0+1", "0+1", "0+1", "0+1", "0+1"} // after 3, 255, 507 and 759 ms
	if got := describe(d.frames(t)); !slices.Equal(got, want) {
		t.Errorf("frames %v, want %v", got, want)
	}
	// The question that came last is answered, if later.
	now = now.Add(repeatEvery)
	d.publisher.turn(now)
	if got := describe(d.frames(t)); !slices.Equal(got, []string{"0+1"}) {
		t.Errorf("afterwards %v", got)
	}
	session++
	d.publisher.turn(now.Add(time.Millisecond))
	if got := describe(d.frames(t)); !slices.Equal(got, []string{"0+1"}) {
		t.Errorf("on a new connection %v", got)
	}
}
