package cellrt

import (
	"slices"
	"testing"
)

// choiceQueue is a queue as a choice sees it.
type choiceQueue struct {
	name                            string
	length, maxRows, passed, flying int
	age                             uint64
}

func (c choiceQueue) queue() *readyQueue {
	q := &readyQueue{length: c.length, maxRows: c.maxRows, passed: c.passed, running: c.flying, order: nodeList{links: inOrder}}
	if c.length > 0 {
		q.order.push(&readyNode{seq: &Sequence{stamp: c.age}})
	}
	return q
}

func TestCellChoice(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		executors int
		queues    []choiceQueue
		want      string // empty for none
		tier      string // empty for any of them
	}{
		{"nothing ready", 1, []choiceQueue{{name: "a", maxRows: 8}}, "", ""},
		{"the only one", 1, []choiceQueue{{name: "a", maxRows: 8}, {name: "b", length: 1, maxRows: 8}}, "b", ""},
		{"overdue before full", 2, []choiceQueue{
			{name: "full", length: 8, maxRows: 8}, {name: "overdue", length: 1, maxRows: 8, passed: 2, age: 9},
		}, "overdue", "overdue"},
		{"not overdue yet", 2, []choiceQueue{
			{name: "full", length: 8, maxRows: 8, age: 9}, {name: "passed", length: 1, maxRows: 8, passed: 1},
		}, "full", ""},
		{"longest overdue", 1, []choiceQueue{
			{name: "older", length: 1, maxRows: 8, passed: 1},
			{name: "longer", length: 1, maxRows: 8, passed: 3, age: 9},
			{name: "longest but empty", maxRows: 8, passed: 7},
		}, "longer", ""},
		{"equally overdue: oldest request", 1, []choiceQueue{
			{name: "younger", length: 1, maxRows: 8, passed: 2, age: 5}, {name: "older", length: 1, maxRows: 8, passed: 2, age: 4},
		}, "older", ""},
		{"full before idle", 2, []choiceQueue{
			{name: "idle", length: 1, maxRows: 8}, {name: "full", length: 8, maxRows: 8, flying: 1, age: 9},
		}, "full", "full"},
		{"full by its own limit", 2, []choiceQueue{
			{name: "more", length: 7, maxRows: 8}, {name: "full", length: 2, maxRows: 2, flying: 1, age: 9},
		}, "full", "full"},
		{"idle before any", 2, []choiceQueue{
			{name: "flying", length: 1, maxRows: 8, flying: 1}, {name: "idle", length: 1, maxRows: 8, age: 9},
		}, "idle", "idle"},
		{"enough work for all: oldest", 2, []choiceQueue{
			{name: "flying", length: 7, maxRows: 8, flying: 1},
			{name: "idle", length: 7, maxRows: 8, age: 9},
			{name: "idle too", length: 2, maxRows: 8, age: 10},
		}, "flying", ""},
		{"one executor: oldest", 1, []choiceQueue{
			{name: "younger", length: 5, maxRows: 8, age: 3}, {name: "older", length: 1, maxRows: 8, age: 2},
		}, "older", "any"},
		{"one request: later cell", 1, []choiceQueue{
			{name: "earlier", length: 1, maxRows: 8, age: 3}, {name: "later", length: 1, maxRows: 8, age: 3},
		}, "later", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var queues []*readyQueue
			for _, q := range tc.queues {
				queues = append(queues, q.queue())
			}
			c := cellChoice{executors: tc.executors}
			got := ""
			if i := slices.Index(queues, c.choose(queues, queues)); i >= 0 {
				got = tc.queues[i].name
				if tier := queues[i].tier.String(); tc.tier != "" && tier != tc.tier {
					t.Errorf("tier %s, want %s", tier, tc.tier)
				}
			}
			if got != tc.want {
				t.Errorf("chose %q, want %q", got, tc.want)
			}
			for i, q := range queues {
				want := tc.queues[i].passed
				switch {
				case tc.queues[i].name == tc.want:
					want = 0
				case tc.want != "":
					want++
				}
				if q.passed != want {
					t.Errorf("%s passed over %d times, want %d", tc.queues[i].name, q.passed, want)
				}
			}
		})
	}
}

// TestCellChoiceBound keeps all cells busy, some with full batches and old
// requests, and counts how often each is passed over.
func TestCellChoiceBound(t *testing.T) {
	t.Parallel()
	for executors := 1; executors <= 6; executors++ {
		for cells := 2; cells <= 7; cells++ {
			var queues []*readyQueue
			for i := range cells {
				queues = append(queues, choiceQueue{length: 1 + 7*(i%2), maxRows: 8, age: uint64(i * 5 % 7)}.queue())
			}
			c := cellChoice{executors: executors}
			last, most := make([]int, cells), 0
			for turn := 1; turn <= 1000; turn++ {
				i := slices.Index(queues, c.choose(queues, queues))
				most = max(most, turn-last[i]-1)
				last[i] = turn
			}
			for _, turn := range last {
				most = max(most, 1000-turn)
			}
			if bound := executors + cells - 2; most > bound {
				t.Errorf("%d executors and %d cells: one passed over %d times, want at most %d", executors, cells, most, bound)
			}
		}
	}
}

// TestNodePoolIsBounded runs waves of nodes and counts those that were made.
func TestNodePoolIsBounded(t *testing.T) {
	t.Parallel()
	var pool nodePool
	for range 100 {
		var wave []*readyNode
		for range 10 {
			wave = append(wave, pool.get())
		}
		for _, n := range wave {
			pool.put(n)
		}
	}
	made := 0
	for n := pool.free; n != nil; n = n.links[inOrder].next {
		made++
	}
	if made != 10 {
		t.Errorf("%d nodes for 10 at a time", made)
	}
}
