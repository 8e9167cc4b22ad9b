package classifier_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/classifier"
	"github.com/cellmq/cellmq/models/internal/oracle"
	"github.com/cellmq/cellmq/models/safetensors"
)

// TestMatchesReference runs every kind of model through its cells, ready nodes
// in random order, with and without ramps, and compares with the equations.
func TestMatchesReference(t *testing.T) {
	t.Parallel()
	for name, c := range shapes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, ts := setup(t, c)
			rng := rand.New(rand.NewPCG(1, 1))
			o := oracle.New(m.Program())
			o.Order = rng.IntN
			for i := range 12 {
				tokens := randomText(rng, c, 1+i*3)
				ramps := i%2 == 0
				g := m.Graph(tokens, ramps)
				got, err := o.Run(g)
				if err != nil || got.Reason != cellrt.Stopped || len(got.Tokens) > 0 {
					t.Fatalf("got %+v, %v", got, err)
				}
				want := reference{c, ts}.logits(tokens)
				for l, logits := range g.Logits() {
					if l < len(want)-1 && !ramps {
						want[l] = nil
					}
					checkLogits(t, l, logits, want[l])
				}
				checkNodes(t, c, got.Nodes, len(tokens), ramps)
			}
		})
	}
}

func checkLogits(t *testing.T, layer int, got []float32, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("layer %d: logits %v, want %v", layer, got, want)
	}
	for j := range want {
		if math.Abs(float64(got[j])-want[j]) > 1e-6 {
			t.Fatalf("layer %d: logits %v, want %v", layer, got, want)
		}
	}
}

// checkNodes checks that each layer ran once at each position, and each head
// that was asked for once.
func checkNodes(t *testing.T, c classifier.Config, got map[string]int, positions int, ramps bool) {
	t.Helper()
	cells := c.NumLayers + 1
	if ramps {
		cells += c.Ramps
	}
	for name, n := range got {
		if want := map[bool]int{true: positions, false: 1}[strings.HasPrefix(name, "layer.")]; n != want {
			t.Fatalf("cell %s ran %d times, want %d", name, n, want)
		}
	}
	if len(got) != cells {
		t.Fatalf("ran %v, want %d cells", got, cells)
	}
}

// wave runs a graph without computing anything, picking the next of the ready
// nodes with choose, and returns how far each layer was ahead of the next at
// most.
func wave(t *testing.T, m *classifier.Model, length int, choose func(ready []cellrt.Node) int) []int {
	t.Helper()
	c := m.Config()
	var (
		f      cellrt.Frontier
		ready  []cellrt.Node
		g      = m.Graph(make([]int32, length), true)
		done   = make([]int, c.NumLayers)
		ahead  = make([]int, c.NumLayers-1)
		logits = make([]float32, len(c.Labels))
	)
	g.Start(&f)
	for {
		if reason, err := f.Done(); reason != 0 || err != nil {
			if reason != cellrt.Stopped || err != nil || done[len(done)-1] != length {
				t.Fatalf("ended with %v, %v after %v", reason, err, done)
			}
			return ahead
		}
		ready = append(ready, f.Nodes()...)
		if len(ready) == 0 {
			t.Fatalf("stalled after %v", done)
		}
		i := choose(ready)
		n := ready[i]
		ready = append(ready[:i], ready[i+1:]...)
		if l := n.Cell.Index(); l < c.NumLayers {
			if want := int32(done[l] % classifier.RingSize); n.Args[1] != want || (n.Args[2] < 0) != (done[l] == 0) {
				t.Fatalf("layer %d at %d has arguments %v", l, done[l], n.Args)
			}
			done[l]++
			if l > 0 && done[l] > done[l-1] {
				t.Fatalf("layer %d ran before its input: %v", l, done)
			}
			if l < len(ahead) {
				ahead[l] = max(ahead[l], done[l]-done[l+1])
			}
		}
		f.Reset()
		g.Advance(n, cellrt.Output{Values: logits}, &f)
	}
}

// TestRingHoldsLayersBack prefers the lowest layer, the highest, and none: a
// layer is never further ahead than the ring has room, and all of them end.
func TestRingHoldsLayersBack(t *testing.T) {
	t.Parallel()
	c := small()
	c.NumLayers, c.Ramps = 5, 4
	m, _ := setup(t, c)
	rng := rand.New(rand.NewPCG(7, 8))
	pick := func(better func(a, b int) bool) func([]cellrt.Node) int {
		return func(ready []cellrt.Node) int {
			best := 0
			for i, n := range ready {
				if better(n.Cell.Index(), ready[best].Cell.Index()) {
					best = i
				}
			}
			return best
		}
	}
	tests := map[string]struct {
		choose func([]cellrt.Node) int
		want   int // how far each layer comes ahead; 0 for at most the ring
	}{
		"lowest first":  {pick(func(a, b int) bool { return a < b }), classifier.RingSize},
		"highest first": {pick(func(a, b int) bool { return a > b }), 1},
		"random":        {func(ready []cellrt.Node) int { return rng.IntN(len(ready)) }, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, length := range []int{1, 7, 8, 9, 200} {
				for l, n := range wave(t, m, length, tt.choose) {
					want := min(tt.want, length)
					if n > classifier.RingSize || want > 0 && n != want {
						t.Errorf("%d positions: layer %d came %d ahead, want %d", length, l, n, want)
					}
				}
			}
		})
	}
}

// TestStateDoesNotGrow compares the states of models for short and long texts.
func TestStateDoesNotGrow(t *testing.T) {
	t.Parallel()
	c := small()
	m, _ := setup(t, c)
	c.MaxInputLength = classifier.MaxInputLength
	long, _ := setup(t, c)
	if a, b := m.Program().Layout.Size(), long.Program().Layout.Size(); a != b {
		t.Errorf("states of %d and %d values", a, b)
	}
}

// TestLayersOverlap checks that different layers of one text are ready at the
// same time.
func TestLayersOverlap(t *testing.T) {
	t.Parallel()
	c := small()
	m, _ := setup(t, c)
	most := 0
	wave(t, m, 50, func(ready []cellrt.Node) int {
		most = max(most, len(ready))
		return 0
	})
	if most != c.NumLayers {
		t.Errorf("%d nodes ready at once, want one for each of %d layers", most, c.NumLayers)
	}
}

func TestAdvanceAllocatesNothing(t *testing.T) { // not parallel: it counts allocations
	m, _ := setup(t, small())
	tokens := make([]int32, 40)
	logits := make([]float32, 3)
	const runs = 20
	var graphs []*classifier.Graph
	for range runs + 1 {
		graphs = append(graphs, m.Graph(tokens, true))
	}
	var f cellrt.Frontier
	ready := make([]cellrt.Node, 0, 64)
	turn := func(g *classifier.Graph) {
		ready = ready[:0]
		f.Reset()
		g.Start(&f)
		for {
			if reason, _ := f.Done(); reason != 0 {
				return
			}
			ready = append(ready, f.Nodes()...)
			n := ready[len(ready)-1]
			ready = ready[:len(ready)-1]
			f.Reset()
			g.Advance(n, cellrt.Output{Values: logits}, &f)
		}
	}
	turn(m.Graph(tokens, true))
	next := 0
	if n := testing.AllocsPerRun(runs, func() { turn(graphs[next]); next++ }); n != 0 {
		t.Errorf("%g allocations a text, want none", n)
	}
}

func TestLogitsThatAreNotFinite(t *testing.T) {
	t.Parallel()
	c := small()
	c.NumLayers, c.Ramps = 1, 0
	m, _ := setup(t, c)
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		g := m.Graph([]int32{1}, false)
		var f cellrt.Frontier
		g.Start(&f)
		layer := f.Nodes()[0]
		f.Reset()
		g.Advance(layer, cellrt.Output{}, &f)
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
	good := small()
	good.MaxInputLength, good.Pooling = 0, ""
	good = good.WithDefaults()
	if err := good.Validate(); err != nil || good.MaxInputLength != 16384 || good.Pooling != "mean" {
		t.Errorf("defaults %+v, %v", good, err)
	}
	tests := []struct {
		want   string
		change func(*classifier.Config)
	}{
		{`cell: "rnn", one of lstm, gru wanted`, func(c *classifier.Config) { c.Cell = "rnn" }},
		{`pooling: "max", one of mean wanted`, func(c *classifier.Config) { c.Pooling = "max" }},
		{"vocab_size: 0", func(c *classifier.Config) { c.VocabSize = 0 }},
		{"embedding_size: 0", func(c *classifier.Config) { c.EmbeddingSize = 0 }},
		{"hidden_size: 8193", func(c *classifier.Config) { c.HiddenSize = 8193 }},
		{"num_layers: 65", func(c *classifier.Config) { c.NumLayers = 65 }},
		{"ramps: 3, 0 to 2 wanted", func(c *classifier.Config) { c.Ramps = 3 }},
		{"labels: 0", func(c *classifier.Config) { c.Labels = nil }},
		{"max_input_length: -1", func(c *classifier.Config) { c.MaxInputLength = -1 }},
	}
	for _, tt := range tests {
		c := good
		tt.change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
		if _, err := classifier.New("m", c, &safetensors.File{}); err == nil {
			t.Errorf("%s: a model was made", tt.want)
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
		{"missing", "tensor ramps.1.bias: missing, shape [3] wanted", func(ts tensors) { delete(ts, "ramps.1.bias") }},
		{"shape", "tensor layers.0.weight_ih_l0: shape [5 28], [28 5] wanted", func(ts tensors) {
			v := ts["layers.0.weight_ih_l0"]
			v.Shape = []int{5, 28}
			ts["layers.0.weight_ih_l0"] = v
		}},
		{"more", "tensor ramps.2.bias: shape [1], not part of the model", func(ts tensors) {
			ts["ramps.2.bias"] = safetensors.Values{Name: "ramps.2.bias", DType: safetensors.F32, Shape: []int{1}, Data: []float32{1}}
		}},
	}
	for _, tt := range tests {
		ts := randomTensors(c)
		tt.spoil(ts)
		if _, err := classifier.New("m", c, ts.file(t)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
}

func TestParameters(t *testing.T) {
	t.Parallel()
	m, ts := setup(t, small())
	want := 0
	for _, v := range ts {
		want += len(v.Data)
	}
	if m.Parameters() != want {
		t.Errorf("%d parameters, want %d", m.Parameters(), want)
	}
}
