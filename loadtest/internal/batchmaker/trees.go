package batchmaker

import (
	"context"
	"fmt"
	"time"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// builds are costs of building and merging a node, in rows of a full batch of
// inner nodes.
func builds() []float64 { return []float64{0, 0.25, 0.5, 1, 2, 4} }

// rowOf returns what a row of a full batch of the cell takes.
func rowOf(m sim.Machine, cell int) time.Duration {
	rows := m.Cells[cell].MaxRows
	return m.Cost(cell, rows) / time.Duration(rows)
}

// mergedBuilding returns merged graphs whose nodes cost so many rows to build.
func mergedBuilding(m sim.Machine, rows float64) server {
	if rows == 0 {
		return server{nameMerged, sim.Merged{}}
	}
	build := time.Duration(rows * float64(rowOf(m, sim.Inner)))
	return server{fmt.Sprintf("merged graphs, building costs %g of a row", rows), sim.Merged{Build: build}}
}

// treeServers returns what serves trees.
func treeServers(m sim.Machine) []server {
	return []server{
		{nameCellular, sim.Cellular{}},
		{nameAlgorithm, sim.Algorithm1{Priority: []int{sim.Leaf: 0, sim.Inner: 1}, LookAhead: lookAhead}},
		mergedBuilding(m, 0),
		mergedBuilding(m, 1),
	}
}

// building varies what building a node costs, with a backlog.
func (l *lab) building(ctx context.Context, h *hardware) ([]outcome, error) {
	m, shapes := h.machine(tree, 1), l.draw(tree, l.few(h))
	outcomes, err := each(ctx, len(builds()), func(i int) (outcome, error) {
		return run(m, mergedBuilding(m, builds()[i]), sim.Backlog(shapes))
	})
	for i, o := range outcomes {
		l.keep("building", h, mergedBuilding(m, builds()[i]), "backlog", o)
	}
	return outcomes, err
}

// identical is what servers do with a backlog of one tree over and over.
type identical struct {
	// requests is how many trees the ideal runs at once.
	requests               int
	cellular, paper, ideal outcome
}

// identicalTrees compares with the ideal that a graph which is known in advance
// allows: the best number of trees merged at no cost.
func (l *lab) identicalTrees(ctx context.Context, h *hardware) (identical, error) {
	m := h.machine(tree, 1)
	servers := treeServers(m)[:2]
	for n := 1; n <= 4*m.Cells[sim.Inner].MaxRows; n *= 2 {
		servers = append(servers, server{fmt.Sprintf("%d trees merged, free", n), sim.Merged{Requests: n}})
	}
	shapes := same(sim.NewTree(fixedLeaves, sim.Random(l.lengths())), l.few(h))
	outcomes, err := each(ctx, len(servers), func(i int) (outcome, error) { return run(m, servers[i], sim.Backlog(shapes)) })
	if err != nil {
		return identical{}, fmt.Errorf("identical trees: %w", err)
	}
	r := identical{cellular: outcomes[0], paper: outcomes[1]}
	for i, o := range outcomes {
		l.keep("identical trees", h, servers[i], "backlog", o)
		if i >= 2 && o.throughput > r.ideal.throughput {
			r.ideal, r.requests = o, 1<<(i-2)
		}
	}
	return r, nil
}
