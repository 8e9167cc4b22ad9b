package kernel

import (
	"maps"
	"testing"
)

// calls are the elements that the calls of each routine of a table worked on.
type calls struct {
	largest map[string]int // in one call
	total   map[string]int
}

func (c *calls) count(name string, elements int) {
	c.largest[name] = max(c.largest[name], elements)
	c.total[name] += elements
}

// countingTable returns a portable table that counts, for one goroutine.
func countingTable() (*Table, *calls) {
	c := &calls{largest: map[string]int{}, total: map[string]int{}}
	t := portable()
	plain := t.elementwise
	t.tanh = func(v []float32) { c.count("tanh", len(v)); plain.tanh(v) }
	t.dots = func(query, memory, scores []float32) { c.count("dots", len(memory)); plain.dots(query, memory, scores) }
	t.weigh = func(out, memory, weights []float32) { c.count("weigh", len(memory)); plain.weigh(out, memory, weights) }
	t.exps = func(v []float32, largest float32) float32 { c.count("exps", len(v)); return plain.exps(v, largest) }
	t.divide = func(v []float32, by float32) { c.count("divide", len(v)); plain.divide(v, by) }
	t.addVector = func(out, x, y []float32) { c.count("add", len(out)); plain.addVector(out, x, y) }
	t.largest = func(v []float32) (float32, bool) { c.count("largest", len(v)); return plain.largest(v) }
	t.find = func(v []float32, x float32) int { c.count("find", len(v)); return plain.find(v, x) }
	t.sumExp = func(v []float32, largest float32) float64 { c.count("sumExp", len(v)); return plain.sumExp(v, largest) }
	return t, c
}

// A call of a routine works on no more than block elements, or a single entry
// of a memory, and the calls on all there are.
func TestRoutineCallsAreShort(t *testing.T) {
	t.Parallel()
	const n = 5*block/2 + 3
	attend := func(width, entries int) func(*Table) {
		return func(t *Table) {
			t.Attend(make([]float32, width), make([]float32, width*entries), make([]float32, entries), make([]float32, width))
		}
	}
	for _, tc := range []struct {
		name  string
		run   func(t *Table)
		total map[string]int
		most  int // elements in a call, if not block
	}{
		{"tanh", func(t *Table) { t.Tanh(make([]float32, n)) }, map[string]int{"tanh": n}, 0},
		{"add", func(t *Table) { t.Add(make([]float32, n), make([]float32, n), make([]float32, n)) }, map[string]int{"add": n}, 0},
		{"divide", func(t *Table) { t.Divide(make([]float32, n), 2) }, map[string]int{"divide": n}, 0},
		{"greedy", func(t *Table) { t.Greedy(make([]float32, n)) }, map[string]int{"largest": n, "find": block, "sumExp": n - 1}, 0},
		{"attention", attend(300, 400), attended(300, 400), 0},
		{"attention to many", attend(3, n), attended(3, n), 0},
		{"attention to large ones", attend(block-1, 3), attended(block-1, 3), 0},
		{"attention to very large ones", attend(block+1, 2), attended(block+1, 2), block + 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			table, c := countingTable()
			tc.run(table)
			for name, elements := range c.largest {
				if elements > max(block, tc.most) {
					t.Errorf("%s of %d elements in a call", name, elements)
				}
			}
			if !maps.Equal(c.total, tc.total) {
				t.Errorf("%v elements in all, want %v", c.total, tc.total)
			}
		})
	}
}

// attended is what attention works on.
func attended(width, entries int) map[string]int {
	return map[string]int{"dots": width * entries, "weigh": width * entries, "largest": entries, "exps": entries, "divide": entries}
}
