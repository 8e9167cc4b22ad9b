package cellrt_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

// compute returns what each tenant used, in the unit of the costs.
func compute(rows []map[string]int, costs []int) map[string]int {
	used := map[string]int{}
	for cell, tenants := range rows {
		for tenant, n := range tenants {
			used[tenant] += n * costs[cell]
		}
	}
	return used
}

// repeated returns n equal costs.
func repeated(n, cost int) []int { return slices.Repeat([]int{cost}, n) }

// TestTurnsShareComputeAcrossCells has two tenants flood different cells, or
// the same ones, and compares what they used.
func TestTurnsShareComputeAcrossCells(t *testing.T) {
	t.Parallel()
	const maxRows = 8
	for _, tc := range []struct {
		name    string
		costs   []int
		a, b    []int // cells that they flood
		count   int   // sequences in each of them
		batches int
	}{
		{"one cell each", []int{1, 1}, []int{0}, []int{1}, 40, 400},
		{"rows a hundred times as expensive", []int{100, 1}, []int{0}, []int{1}, 40, 5050},
		{"and no more of them than a batch takes", []int{100, 1}, []int{0}, []int{1}, maxRows, 5050},
		{"nine cells against one", repeated(10, 1), []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, []int{9}, 40, 2000},
		{"nine cells and the other's too", repeated(10, 1), []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, []int{9}, 40, 2000},
		{"nine cells of all prices", []int{1, 2, 3, 5, 8, 13, 21, 34, 55, 7}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, []int{9}, 40, 4000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMarket(t, maxRows, tc.costs...)
			for _, cell := range tc.a {
				m.join("a", cell, tc.count)
			}
			for _, cell := range tc.b {
				m.join("b", cell, tc.count)
			}
			used := compute(m.shares(tc.batches), tc.costs)
			share := float64(used["a"]) / float64(used["a"]+used["b"])
			t.Logf("share of a: %.3f", share)
			if share < 0.45 || share > 0.55 {
				t.Errorf("a used %.3f of the compute, want a half", share)
			}
		})
	}
}

// TestTurnsServeSingleRequestBesideFlood counts the batches that 50 steps of a
// single request take, in a cell of its own, beside floods of other cells.
func TestTurnsServeSingleRequestBesideFlood(t *testing.T) {
	t.Parallel()
	const steps = 50
	count := func(t *testing.T, floods []string, costs []int) int {
		t.Helper()
		m := newMarket(t, 8, append(costs, 1)...)
		for _, flood := range floods {
			for cell := range costs {
				m.join(flood, cell, 20)
			}
		}
		m.shares(40)
		m.join("one", len(costs), 1)
		batches := 0
		for done := 0; done < steps; batches++ {
			_, rows := m.step()
			done += rows["one"]
		}
		return batches
	}
	one := count(t, []string{"flood"}, repeated(1, 1))
	for _, tc := range []struct {
		name   string
		floods []string
		costs  []int
		most   int
	}{
		{"16 cells", []string{"flood"}, repeated(16, 1), 2 * one},
		{"16 cells, one expensive", []string{"flood"}, append(repeated(15, 1), 100), 2 * one},
		{"three floods of 16 cells", []string{"flood", "deluge", "tide"}, repeated(16, 1), 4 * one},
	} {
		got := count(t, tc.floods, tc.costs)
		t.Logf("%s: %d batches, beside one cell %d", tc.name, got, one)
		if got > tc.most {
			t.Errorf("%s: %d steps took %d batches, want at most %d", tc.name, steps, got, tc.most)
		}
	}
	if one > 2*steps {
		t.Errorf("beside a flood of one cell %d steps took %d batches", steps, one)
	}
}

// A tenant's single request in a cell that nobody else uses is not forgotten
// because the tenant uses its share as a guest in others' batches.
func TestTurnsOfGuests(t *testing.T) {
	t.Parallel()
	m := newMarket(t, 8, 1, 20)
	m.join("guest", 1, 1)
	for i := range 5 {
		m.join("guest", 0, 40)
		m.join(strconv.Itoa(i), 0, 40)
	}
	last := 0
	for turn := range 2000 {
		if cell, _ := m.step(); cell == 1 {
			last = turn
		}
		if turn-last > 100 {
			t.Fatalf("the guest's own cell waits for %d batches", turn-last)
		}
	}
}

// TestTurnsOnSeveralExecutors floods 16 cells and has a single request and a
// second tenant beside the flood, with batches in flight on all executors.
func TestTurnsOnSeveralExecutors(t *testing.T) {
	t.Parallel()
	for _, executors := range []int{2, 4} {
		costs := append(repeated(16, 1), 1, 1)
		m := newMarket(t, 8, costs...)
		m.sched.SetExecutors(executors)
		for cell := range 16 {
			m.join("flood", cell, 20)
		}
		m.join("other", 16, 40)
		m.join("one", 17, 1)
		flying := make([]cellrt.Batch, executors)
		used := map[string]int{}
		const rounds = 1000
		for range rounds {
			for i := range flying {
				if b := &flying[i]; b.Cell != nil {
					m.sched.Complete(b, len(b.Rows))
				}
				if !m.sched.Next(i, &flying[i]) {
					t.Fatal("nothing is ready")
				}
			}
			for _, r := range m.sched.Results() {
				used[r.Sequence.Owner().(string)] += len(r.Tokens)
			}
			m.sched.Clear()
		}
		t.Logf("%d executors: rows %v in %d rounds", executors, used, rounds)
		if used["one"] < rounds/2 {
			t.Errorf("%d executors: the single request made %d steps in %d rounds, want at least every second", executors, used["one"], rounds)
		}
		if f, o := used["flood"], used["other"]; 10*f < 9*o || 10*o < 9*f {
			t.Errorf("%d executors: rows %v, want the floods to have the same", executors, used)
		}
	}
}
