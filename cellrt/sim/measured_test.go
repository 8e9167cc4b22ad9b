package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// table is a machine whose steps of 1, 4 and 8 rows cost 10, 16 and 40 row
// times.
func table() sim.Machine {
	return sim.Machine{Executors: 1, Cells: []sim.Cell{{Name: "step", MaxRows: 8, Measured: []sim.Cost{
		{Rows: 1, Time: 10 * rowTime}, {Rows: 4, Time: 16 * rowTime}, {Rows: 8, Time: 40 * rowTime},
	}}}}
}

func TestMeasuredCosts(t *testing.T) {
	t.Parallel()
	m := table()
	for rows, want := range map[int]time.Duration{1: 10, 2: 12, 3: 14, 4: 16, 5: 22, 7: 34, 8: 40} {
		if got := m.Cost(0, rows); got != want*rowTime {
			t.Errorf("%d rows cost %s, want %s", rows, got, want*rowTime)
		}
	}
	// Two requests of two steps, and one of them goes on alone.
	r := run(t, m, sim.Cellular{}, sim.Backlog([]sim.Shape{sim.Steps(2), sim.Steps(3)}))
	if want := (12 + 12 + 10) * rowTime; r.Makespan != want {
		t.Errorf("took %s, want %s", r.Makespan, want)
	}
}

func TestMeasuredCostsRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, want string
		costs      []sim.Cost
	}{
		{"empty", "from 1 to at least 8", []sim.Cost{}},
		{"beginning", "from 1 to at least 8", []sim.Cost{{2, 1}, {8, 2}}},
		{"end", "from 1 to at least 8", []sim.Cost{{1, 1}, {7, 2}}},
		{"order", "4 rows after 4", []sim.Cost{{1, 1}, {4, 2}, {4, 3}, {8, 4}}},
		{"nothing", "4 rows cost 0s", []sim.Cost{{1, 1}, {4, 0}, {8, 4}}},
		{"much", "8 rows cost 2h0m0s", []sim.Cost{{1, 1}, {8, 2 * time.Hour}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := table()
			m.Cells[0].Measured = tc.costs
			if _, err := sim.Run(m, sim.Cellular{}, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want something about %q", err, tc.want)
			}
		})
	}
}

// Building the merged graph is paid for each node, before anybody's first step
// ends.
func TestMergedBuild(t *testing.T) {
	t.Parallel()
	shapes := []sim.Shape{sim.Steps(2), sim.Steps(3)}
	free := run(t, table(), sim.Merged{}, sim.Backlog(shapes))
	paid := run(t, table(), sim.Merged{Build: 7 * rowTime}, sim.Backlog(shapes))
	if want := free.Makespan + 5*7*rowTime; paid.Makespan != want {
		t.Errorf("took %s, want %s", paid.Makespan, want)
	}
	if _, err := sim.Run(table(), sim.Merged{Build: -1}, nil); err == nil {
		t.Error("a negative Build was taken")
	}
}
