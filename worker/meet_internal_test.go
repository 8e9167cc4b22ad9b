package worker

import (
	"testing"
	"time"

	"github.com/cellmq/cellmq/registry"
)

// TestMeet wants a worker to decide nothing for the life of a report after a
// reconnect, and when it starts amid a deployment; not when one begins later.
func TestMeet(t *testing.T) {
	t.Parallel()
	now := time.Now()
	under := map[string]*registry.Deployment{"m": {Model: "m", Phase: registry.Loading}}
	later, amid := &follower{}, &follower{deployments: under}
	later.meet(0, now)
	later.deployments = under
	later.meet(0, now.Add(time.Second))
	if !later.quiet.IsZero() {
		t.Error("waits for a deployment that began later")
	}
	later.meet(1, now)
	amid.meet(0, now)
	amid.meet(0, now.Add(time.Second))
	for _, f := range []*follower{later, amid} {
		if want := now.Add(registry.ReportLife); !f.quiet.Equal(want) {
			t.Errorf("quiet until %v, want %v", f.quiet, want)
		}
	}
}
