package sim_test

import (
	"fmt"
	"time"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// A thousand requests of random lengths on a machine whose step of b rows takes
// 50 + 10 b microseconds: the runtime's scheduler and padded batches.
func Example() {
	machine := sim.Machine{
		Executors: 1,
		Cells:     []sim.Cell{{Name: "lstm", Fixed: 50 * time.Microsecond, Row: 10 * time.Microsecond, MaxRows: 32}},
	}
	random, lengths := sim.Random(1), sim.LogNormal(20, 0.65, 330)
	shapes := make([]sim.Shape, 1000)
	for i := range shapes {
		shapes[i] = sim.Steps(lengths(random))
	}
	trace := sim.Poisson(random, 1000, shapes)
	for _, policy := range []sim.Policy{sim.Cellular{}, sim.Padded{Width: 10}} {
		r, err := sim.Run(machine, policy, trace)
		if err != nil {
			fmt.Println(err)
			return
		}
		latency := r.Latency()
		fmt.Printf("%T: p50 %s, p90 %s, padding %.2f\n", policy,
			latency.Quantile(0.5).Round(time.Millisecond), latency.Quantile(0.9).Round(time.Millisecond), r.Padding())
	}
	// Output:
	// sim.Cellular: p50 2ms, p90 4ms, padding 1.00
	// sim.Padded: p50 9ms, p90 18ms, padding 1.18
}
