package tree_test

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/internal/oracle"
	"github.com/cellmq/cellmq/models/safetensors"
	"github.com/cellmq/cellmq/models/tree"
)

// TestMatchesReference runs random trees through their cells, ready nodes in
// random order, and compares with the equations.
func TestMatchesReference(t *testing.T) {
	t.Parallel()
	c := small()
	m, ts := setup(t, c)
	rng := rand.New(rand.NewPCG(1, 1))
	o := oracle.New(m.Program())
	o.Order = rng.IntN
	for i := range 60 {
		ids := randomTree(nil, rng, c, 1+rng.IntN(100), float64(i%3)/2)
		g := m.Graph(ids)
		got, err := o.Run(g)
		if err != nil || got.Reason != cellrt.Stopped || len(got.Tokens) > 0 {
			t.Fatalf("got %+v, %v", got, err)
		}
		leaves := (len(ids) + 1) / 2
		if got.Nodes["leaf"] != leaves || got.Nodes["node"] != leaves-1 || got.Nodes["head"] != 1 {
			t.Fatalf("%d leaves: ran %v", leaves, got.Nodes)
		}
		for j, want := range (reference{c, ts}).logits(ids) {
			if v := g.Logits()[0][j]; math.Abs(float64(v)-want) > 1e-6 {
				t.Fatalf("tree %v: logit %d is %v, want %v", ids, j, v, want)
			}
		}
	}
}

// drive runs a graph without computing anything. It picks the next of the
// ready nodes with choose, checks that no entry belongs to two nodes, and
// returns the most entries in use and the most nodes ready at once.
func drive(t *testing.T, m *tree.Model, ids []int32, choose func(n int) int) (entries, ready int) {
	t.Helper()
	var (
		f       cellrt.Frontier
		pending []cellrt.Node
		used    = make(map[int32]bool)
		g       = m.Graph(ids)
		logits  = make([]float32, m.Config().NumLabels)
		leaf    = m.Program().Cells[0]
		node    = m.Program().Cells[1]
	)
	g.Start(&f)
	for steps := 0; ; steps++ {
		if reason, err := f.Done(); reason != 0 || err != nil {
			if want := len(ids) + 1; reason != cellrt.Stopped || err != nil || steps != want || len(used) != 1 {
				t.Fatalf("ended after %d nodes, want %d: reason %v, %v; %d entries in use", steps, want, reason, err, len(used))
			}
			return entries, ready
		}
		for _, n := range f.Nodes() {
			switch n.Cell {
			case leaf:
				if used[n.Args[1]] {
					t.Fatalf("entry %d is in use", n.Args[1])
				}
				used[n.Args[1]] = true
			case node:
				if n.Args[0] == n.Args[1] || !used[n.Args[0]] || !used[n.Args[1]] {
					t.Fatalf("node reads entries %v", n.Args)
				}
			}
			pending = append(pending, n)
		}
		entries, ready = max(entries, len(used)), max(ready, len(pending))
		if len(pending) == 0 {
			t.Fatalf("stalled after %d of %d nodes", steps, len(ids))
		}
		i := choose(len(pending))
		n := pending[i]
		pending = append(pending[:i], pending[i+1:]...)
		f.Reset()
		if n.Cell == node {
			delete(used, n.Args[1])
		}
		g.Advance(n, cellrt.Output{Values: logits}, &f)
	}
}

// orders are ways to choose the next of n ready nodes.
func orders() map[string]func(n int) int {
	return map[string]func(n int) int{
		"oldest": func(int) int { return 0 },
		"newest": func(n int) int { return n - 1 },
		"random": rand.New(rand.NewPCG(2, 3)).IntN,
	}
}

// TestNeverStalls runs trees of all shapes with the fewest entries that a
// configuration can have, in every order.
func TestNeverStalls(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	shapes := map[string][]int32{
		"leaf":         {1},
		"left":         chain(10_000, func(int) bool { return true }),
		"right":        chain(10_000, func(int) bool { return false }),
		"zigzag":       chain(10_000, func(d int) bool { return d%2 == 0 }),
		"random sides": chain(10_000, func(int) bool { return rng.IntN(2) == 0 }),
		"complete":     complete(12),
	}
	for i := range 20 {
		shapes[fmt.Sprint("random ", i)] = randomTree(nil, rng, small(), 1+rng.IntN(2000), float64(i)/20)
	}
	for name, ids := range shapes {
		for order, choose := range orders() {
			t.Run(name+" "+order, func(t *testing.T) {
				c := small()
				c.MaxNodes = len(ids)
				c.StateEntries = bits.Len(uint(len(ids)+1) / 2)
				m, _ := setup(t, c)
				if entries, _ := drive(t, m, ids, choose); entries > c.StateEntries {
					t.Errorf("%d entries in use, the slot has %d", entries, c.StateEntries)
				}
			})
		}
	}
}

// TestFewerEntriesStall shows that the bound is tight: with one entry less a
// complete tree cannot end, so such a configuration is refused.
func TestFewerEntriesStall(t *testing.T) {
	t.Parallel()
	for depth := range 8 {
		c := small()
		c.MaxNodes = 2<<depth - 1
		c.StateEntries = depth + 1
		m, _ := setup(t, c)
		if entries, _ := drive(t, m, complete(depth), orders()["oldest"]); entries != depth+1 {
			t.Errorf("depth %d: %d entries, want %d", depth, entries, depth+1)
		}
		c.StateEntries = depth
		if depth == 0 {
			c.StateEntries = -1
		}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "state_entries") {
			t.Errorf("depth %d with %d entries: %v", depth, c.StateEntries, err)
		}
	}
}

// TestLeavesFillTheEntries checks that a tree uses the entries it has, so that
// it gives wide batches by itself.
func TestLeavesFillTheEntries(t *testing.T) {
	t.Parallel()
	c := small()
	c.StateEntries = 64
	c.MaxNodes = 1 << 16
	m, _ := setup(t, c)
	for name, ids := range map[string][]int32{
		"complete": complete(10), "chain": chain(1000, func(int) bool { return true }),
	} {
		entries, ready := drive(t, m, ids, orders()["oldest"])
		if entries != 64 || ready != 64 {
			t.Errorf("%s: %d entries and %d ready nodes at once, want 64", name, entries, ready)
		}
	}
}

// TestAdvanceAllocatesNothing runs a graph with warm frontier memory.
func TestAdvanceAllocatesNothing(t *testing.T) { // not parallel: it counts allocations
	m, _ := setup(t, small())
	ids := complete(6)
	logits := make([]float32, m.Config().NumLabels)
	const runs = 20
	var graphs []*tree.Graph
	for range runs + 1 {
		graphs = append(graphs, m.Graph(ids))
	}
	var f cellrt.Frontier
	pending := make([]cellrt.Node, 0, 256)
	warm := func(g *tree.Graph) {
		pending = pending[:0]
		f.Reset()
		g.Start(&f)
		for {
			if reason, _ := f.Done(); reason != 0 {
				return
			}
			pending = append(pending, f.Nodes()...)
			n := pending[len(pending)-1]
			pending = pending[:len(pending)-1]
			f.Reset()
			g.Advance(n, cellrt.Output{Values: logits}, &f)
		}
	}
	warm(m.Graph(ids))
	next := 0
	if n := testing.AllocsPerRun(runs, func() { warm(graphs[next]); next++ }); n != 0 {
		t.Errorf("%g allocations a tree, want none", n)
	}
}

func TestLogitsThatAreNotFinite(t *testing.T) {
	t.Parallel()
	m, _ := setup(t, small())
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		g := m.Graph([]int32{1})
		var f cellrt.Frontier
		g.Start(&f)
		leaf := f.Nodes()[0]
		f.Reset()
		g.Advance(leaf, cellrt.Output{}, &f)
		head := f.Nodes()[0]
		f.Reset()
		g.Advance(head, cellrt.Output{Values: []float32{0, float32(bad), 0}}, &f)
		if _, err := f.Done(); !errors.Is(err, cellrt.ErrNumerical) || g.Logits() != nil {
			t.Errorf("%v: ended with %v and logits %v", bad, err, g.Logits())
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	good := tree.Config{VocabSize: 5, HiddenSize: 7, NumLabels: 3}.WithDefaults()
	if err := good.Validate(); err != nil || good.MaxNodes != 65536 || good.StateEntries != 64 || good.Labels[2] != "2" {
		t.Errorf("defaults %+v, %v", good, err)
	}
	tests := []struct {
		field  string
		change func(*tree.Config)
	}{
		{"vocab_size", func(c *tree.Config) { c.VocabSize = 0 }},
		{"hidden_size", func(c *tree.Config) { c.HiddenSize = 8193 }},
		{"num_labels", func(c *tree.Config) { c.NumLabels = 0 }},
		{"labels", func(c *tree.Config) { c.Labels = []string{"a"} }},
		{"max_nodes", func(c *tree.Config) { c.MaxNodes = 1<<20 + 1 }},
		{"max_nodes", func(c *tree.Config) { c.MaxNodes = -1 }},
		{"state_entries: 15, 16 to 4096 wanted", func(c *tree.Config) { c.StateEntries = 15 }},
		{"state_entries", func(c *tree.Config) { c.StateEntries = 4097 }},
	}
	for _, tt := range tests {
		c := good
		tt.change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.field) {
			t.Errorf("%s: %v", tt.field, err)
		}
		if _, err := tree.New("m", c, &safetensors.File{}); err == nil {
			t.Errorf("%s: a model was made", tt.field)
		}
	}
}

func TestNewChecksTensors(t *testing.T) {
	t.Parallel()
	c := small()
	tests := []struct {
		name, want string
		spoil      func(tensors)
	}{
		{"missing", "tensor node.bias: missing, shape [35] wanted", func(ts tensors) { delete(ts, "node.bias") }},
		{"shape", "tensor leaf.weight: shape [7 21], [21 7] wanted", func(ts tensors) {
			v := ts["leaf.weight"]
			v.Shape = []int{7, 21}
			ts["leaf.weight"] = v
		}},
		{"more", "tensor extra: shape [1], not part of the model", func(ts tensors) {
			ts["extra"] = safetensors.Values{Name: "extra", DType: safetensors.F32, Shape: []int{1}, Data: []float32{1}}
		}},
	}
	for _, tt := range tests {
		ts := randomTensors(c)
		tt.spoil(ts)
		if _, err := tree.New("m", c, ts.file(t)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
}
