package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// One tenant's flood does not slow another tenant's requests down beyond full
// batches: each of their nodes is in the batch after it became ready.
func TestTenantsAreNotDelayedByAFlood(t *testing.T) {
	t.Parallel()
	m := costModel{5, 32}.machine()
	flood := sim.Backlog(chains(requests(20_000), sentences()))
	for i := range flood {
		flood[i].Tenant = "flood"
	}
	full := m.Cost(0, 32) + m.StepOverhead + m.RoundOverhead
	visitors := sim.Poisson(sim.Random(arrivalSeed), 1/(50*full).Seconds(), chains(requests(2000)/10, sentences()))
	for i := range visitors {
		visitors[i].Tenant = "visitor"
	}
	trace := slices.Concat(flood, visitors)
	r := run(t, m, sim.Cellular{}, trace)

	var busiest time.Duration
	for _, q := range r.Requests[:len(flood)] {
		busiest = max(busiest, q.End)
	}
	if last := visitors[len(visitors)-1].Arrival; busiest < last {
		t.Fatalf("the flood is over at %s, before the last visitor at %s", busiest, last)
	}
	for i, q := range r.Requests[len(flood):] {
		steps := time.Duration(visitors[i].Shape.Nodes())
		if joined, latency := q.Joined-q.Arrival, q.End-q.Arrival; joined > full || latency > (steps+1)*full {
			t.Errorf("request of %d steps: joined after %s and ended after %s, want %s and %s", steps, joined, latency, full, (steps+1)*full)
		}
	}
}
