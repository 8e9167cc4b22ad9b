package batching

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// StepCost is what a step of a cell takes.
type StepCost struct {
	// Network and Cell name the cell.
	Network, Cell string
	// Rows is the size of the batch.
	Rows int
	// Time is the shortest of several runs: everything else that a machine does
	// only adds to a time.
	Time time.Duration
}

const (
	// costRuns is how often a batch is run at least.
	costRuns = 10
	// costTime is how long it is run, if that is more often.
	costTime = 100 * time.Millisecond
	// mostCostRows bounds the batches.
	mostCostRows = 4096
)

// Costs measures, on one thread, steps of all cells of the networks with random
// weights, in batches of the given numbers of rows. It takes about a tenth of a
// second for each.
func Costs(ctx context.Context, models []string, hidden int, rows []int) ([]StepCost, error) {
	most := 0
	for _, n := range rows {
		if n < 1 || n > mostCostRows {
			return nil, fmt.Errorf("rows %d: want 1 to %d", n, mostCostRows)
		}
		most = max(most, n)
	}
	if hidden < 1 || hidden > largestHidden {
		return nil, fmt.Errorf("hidden %d: want 1 to %d", hidden, largestHidden)
	}
	var costs []StepCost
	for _, model := range models {
		n, err := newNetwork(model, hidden, 1)
		if err != nil {
			return nil, err
		}
		loaded, err := cpu.New(cpu.Config{FoldBytes: -1}).Load(n.program, most)
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", model, err)
		}
		runner := loaded.NewRunner()
		for _, cell := range n.program.Cells {
			for _, count := range rows {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				costs = append(costs, StepCost{Network: model, Cell: cell.Name, Rows: count, Time: n.fastest(runner, cell, count)})
			}
		}
	}
	return costs, nil
}

// fastest returns the shortest time of a step.
func (n *network) fastest(runner cellrt.Runner, cell *cellrt.Cell, count int) time.Duration {
	rows, out := make([]cellrt.Row, count), make([]cellrt.Output, count)
	for i := range rows {
		rows[i].Slot = int32(i)
		rows[i].Args[argToken] = int32(i % n.tokens)
		if cell == n.inner {
			rows[i].Args[argRight] = 1
		}
	}
	shortest := time.Duration(math.MaxInt64)
	for run, began := 0, time.Now(); run < costRuns || time.Since(began) < costTime; run++ {
		start := time.Now()
		runner.Run(cell, rows, out)
		if took := time.Since(start); run > 0 { // the first one grows the runner's memory
			shortest = min(shortest, max(1, took))
		}
	}
	return shortest
}
