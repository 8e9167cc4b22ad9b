package seq2seq_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/decode"
	"github.com/cellmq/cellmq/models/internal/oracle"
	"github.com/cellmq/cellmq/models/seq2seq"
)

// small is a configuration with sizes that are multiples of nothing.
func small() seq2seq.Config {
	return seq2seq.Config{
		Cell: seq2seq.LSTM, NumLayers: 1, Attention: seq2seq.NoAttention,
		EmbeddingSize: 5, EncoderHidden: 7, DecoderHidden: 9, SourceVocab: 11, TargetVocab: 6,
		BOSToken: 1, EOSToken: 2, MaxSourceLength: 13, MaxTargetLength: 9, MaxBeamWidth: 5,
	}
}

// shapes are all kinds of model, by name.
func shapes() map[string]seq2seq.Config {
	all := map[string]seq2seq.Config{}
	for _, cell := range []string{seq2seq.LSTM, seq2seq.GRU} {
		for layers := 1; layers <= 3; layers++ {
			for _, bidirectional := range []bool{false, true} {
				for _, attention := range []string{seq2seq.NoAttention, seq2seq.LuongGeneral} {
					c := small()
					c.Cell, c.NumLayers, c.Bidirectional, c.Attention = cell, layers, bidirectional, attention
					all[fmt.Sprintf("%s-%d-%t-%s", cell, layers, bidirectional, attention)] = c
				}
			}
		}
	}
	return all
}

func setup(t *testing.T, c seq2seq.Config) (*seq2seq.Model, tensors) {
	t.Helper()
	ts := randomTensors(c, 42)
	m, err := seq2seq.New("test", c, ts.file(t))
	if err != nil {
		t.Fatal(err)
	}
	return m, ts
}

func randomSource(rng *rand.Rand, c seq2seq.Config, n int) []int32 {
	source := make([]int32, n)
	for i := range source {
		source[i] = int32(rng.IntN(c.SourceVocab))
	}
	return source
}

func ids(tokens []cellrt.Token) []int32 {
	var out []int32
	for _, t := range tokens {
		out = append(out, t.ID)
	}
	return out
}

// atMost are the options of a greedy output.
func atMost(tokens int) decode.Options { return decode.Options{MaxTokens: tokens} }

func sameToken(a, b cellrt.Token) bool {
	return a.ID == b.ID && a.LogProb == b.LogProb && a.Break == b.Break && slices.Equal(a.Top, b.Top)
}

// TestMatchesReference runs every kind of model through its cells, ready nodes
// in random order, and compares with the equations.
func TestMatchesReference(t *testing.T) {
	t.Parallel()
	for name, c := range shapes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, ts := setup(t, c)
			rng := rand.New(rand.NewPCG(1, 1))
			o := oracle.New(m.Program())
			o.Order = rng.IntN
			for i := range 25 {
				source := randomSource(rng, c, 1+i%c.MaxSourceLength)
				want, wantLogProb, cut := reference{c, ts}.decode(source)
				g := m.Graph([][]int32{source}, atMost(c.MaxTargetLength))
				got, err := o.Run(g)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(ids(got.Tokens), want) || (got.Reason == cellrt.Length) != cut {
					t.Fatalf("source %v: got %v %v, want %v cut %t", source, ids(got.Tokens), got.Reason, want, cut)
				}
				if off := math.Abs(g.LogProb() - wantLogProb); off > 1e-5 {
					t.Fatalf("source %v: log-probability %v, want %v", source, g.LogProb(), wantLogProb)
				}
			}
		})
	}
}

// TestUnfoldsEachNodeOnce counts the nodes of each cell.
func TestUnfoldsEachNodeOnce(t *testing.T) {
	t.Parallel()
	for name, c := range shapes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := setup(t, c)
			source := []int32{3, 1, 4, 1, 5}
			got, err := oracle.New(m.Program()).Run(m.Graph([][]int32{source}, atMost(c.MaxTargetLength)))
			if err != nil {
				t.Fatal(err)
			}
			steps := len(got.Tokens)
			if got.Reason == cellrt.Stopped {
				steps++
			}
			want := map[string]int{"bridge": 1, "decoder": steps}
			for _, cell := range m.Program().Cells {
				if strings.HasPrefix(cell.Name, "encoder") {
					want[cell.Name] = len(source)
				}
			}
			cells := 3
			if c.Bidirectional {
				cells = 2 + 2*c.NumLayers
			}
			if len(m.Program().Cells) != cells || fmt.Sprint(got.Nodes) != fmt.Sprint(want) {
				t.Errorf("%d cells, nodes %v, want %d and %v", len(m.Program().Cells), got.Nodes, cells, want)
			}
		})
	}
}

func TestDirectionsAreReadyTogether(t *testing.T) {
	t.Parallel()
	c := small()
	c.Bidirectional = true
	m, _ := setup(t, c)
	var f cellrt.Frontier
	m.Graph([][]int32{{3, 4, 5}}, atMost(9)).Start(&f)
	var got []string
	for _, n := range f.Nodes() {
		got = append(got, fmt.Sprint(n.Cell.Name, n.Args))
	}
	want := []string{"encoder.0.forward[3 0 -1 0]", "encoder.0.backward[5 2 -1 0]"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestLayersOverlap shows that a second layer starts before the first one has
// finished both directions everywhere: its chains follow position by position.
func TestLayersOverlap(t *testing.T) {
	t.Parallel()
	c := small()
	c.Bidirectional, c.NumLayers = true, 2
	m, _ := setup(t, c)
	g := m.Graph([][]int32{{1, 2, 3, 4}}, atMost(9))
	var f cellrt.Frontier
	g.Start(&f)
	forward, backward := f.Nodes()[0], f.Nodes()[1]
	run := func(n cellrt.Node) []cellrt.Node {
		f.Reset()
		g.Advance(n, cellrt.Output{}, &f)
		return slices.Clone(f.Nodes())
	}
	for range 3 { // the backward chain up to position 1, then to its end
		backward = run(backward)[0]
	}
	if ready := run(backward); len(ready) != 0 {
		t.Fatalf("the second layer started without a forward output: %v", ready)
	}
	ready := run(forward) // position 0 has both outputs now
	if len(ready) != 2 || ready[0].Cell.Name != "encoder.0.forward" || ready[1].Cell.Name != "encoder.1.forward" {
		t.Fatalf("after both outputs of position 0: %v", ready)
	}
}

func TestSegments(t *testing.T) {
	t.Parallel()
	for name, c := range shapes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := setup(t, c)
			rng := rand.New(rand.NewPCG(9, 9))
			alone, together := oracle.New(m.Program()), oracle.New(m.Program())
			together.Order = rng.IntN
			for range 10 {
				var segments [][]int32
				var want []cellrt.Token
				reason, sum, boundary := cellrt.Stopped, 0.0, false
				for s := range 1 + rng.IntN(4) {
					segments = append(segments, randomSource(rng, c, 1+rng.IntN(3)))
					boundary = boundary || s > 0
					g := m.Graph(segments[s:], atMost(c.MaxTargetLength))
					r, err := alone.Run(g)
					if err != nil {
						t.Fatal(err)
					}
					sum += g.LogProb()
					if r.Reason == cellrt.Length {
						reason = cellrt.Length
					}
					for _, tok := range r.Tokens {
						tok.Break = boundary
						boundary = false
						want = append(want, tok)
					}
				}
				g := m.Graph(segments, atMost(len(segments)*c.MaxTargetLength))
				got, err := together.Run(g)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.EqualFunc(got.Tokens, want, sameToken) || got.Reason != reason {
					t.Fatalf("segments %v: got %v %v, want %v %v", segments, got.Tokens, got.Reason, want, reason)
				}
				if math.Abs(g.LogProb()-sum) > 1e-9 {
					t.Fatalf("log-probability %v, want %v", g.LogProb(), sum)
				}
			}
		})
	}
}

// script runs a graph of single-position segments by hand, giving its decoder
// nodes the tokens of a script, and returns what it emitted and how it ended.
// A negative token is a row that is not finite.
func script(t *testing.T, c seq2seq.Config, segments, bound int, tokens ...int32) ([]cellrt.Token, cellrt.Reason, error) {
	t.Helper()
	m, _ := setup(t, c)
	source := make([][]int32, segments)
	for i := range source {
		source[i] = []int32{3}
	}
	g := m.Graph(source, atMost(bound))
	var f cellrt.Frontier
	var got []cellrt.Token
	g.Start(&f)
	for {
		got = append(got, f.Tokens()...)
		if reason, err := f.Done(); reason != 0 || err != nil {
			if len(tokens) > 0 {
				t.Fatalf("ended with %v unread", tokens)
			}
			return got, reason, err
		}
		n := f.Nodes()[0]
		f.Reset()
		out := cellrt.Output{LogProb: -1}
		if n.Cell.Name == "decoder" {
			if len(tokens) == 0 {
				t.Fatal("wants more tokens")
			}
			if out.Token = tokens[0]; out.Token < 0 {
				out.LogProb = float32(math.NaN())
			}
			tokens = tokens[1:]
		}
		g.Advance(n, out, &f)
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	const eos, nan = 2, -1
	tests := []struct {
		name     string
		segments int
		bound    int
		script   []int32
		want     string
		reason   cellrt.Reason
		err      error
	}{
		{"stop", 1, 3, []int32{4, 5, eos}, "4 5", cellrt.Stopped, nil},
		{"stop at once", 1, 3, []int32{eos}, "", cellrt.Stopped, nil},
		{"length", 1, 3, []int32{4, 5, 4}, "4 5 4", cellrt.Length, nil},
		{"max_tokens", 1, 1, []int32{4}, "4", cellrt.Length, nil},
		{"NaN", 1, 3, []int32{4, nan}, "4", 0, cellrt.ErrNumerical},
		{"two segments", 2, 6, []int32{4, eos, 5, eos}, "4 |5", cellrt.Stopped, nil},
		{"first segment cut", 2, 6, []int32{4, 4, 4, 5, eos}, "4 4 4 |5", cellrt.Length, nil},
		{"last segment cut", 2, 6, []int32{4, eos, 5, 5, 5}, "4 |5 5 5", cellrt.Length, nil},
		{"max_tokens in the second segment", 2, 3, []int32{4, 5, eos, 4}, "4 5 |4", cellrt.Length, nil},
		{"max_tokens at the first segment's bound", 2, 3, []int32{4, 4, 4}, "4 4 4", cellrt.Length, nil},
		{"empty segments", 4, 12, []int32{eos, 4, eos, eos, 5, eos}, "|4 |5", cellrt.Stopped, nil},
		{"all segments empty", 2, 6, []int32{eos, eos}, "", cellrt.Stopped, nil},
		{"NaN in the second segment", 2, 6, []int32{4, eos, nan}, "4", 0, cellrt.ErrNumerical},
	}
	c := small()
	c.MaxTargetLength = 3
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tokens, reason, err := script(t, c, tt.segments, tt.bound, tt.script...)
			var words []string
			for _, tok := range tokens {
				w := strconv.Itoa(int(tok.ID))
				if tok.Break {
					w = "|" + w
				}
				words = append(words, w)
			}
			if got := strings.Join(words, " "); got != tt.want || reason != tt.reason || !errors.Is(err, tt.err) {
				t.Errorf("got %q %v %v, want %q %v %v", got, reason, err, tt.want, tt.reason, tt.err)
			}
		})
	}
}

// TestSearchIgnoresTheOrder searches with the rows of a step in any order and
// compares with oldest first.
func TestSearchIgnoresTheOrder(t *testing.T) {
	t.Parallel()
	for name, c := range shapes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := setup(t, c)
			rng := rand.New(rand.NewPCG(6, 2))
			ordered, shuffled := oracle.New(m.Program()), oracle.New(m.Program())
			shuffled.Order = rng.IntN
			for range 6 {
				source := [][]int32{randomSource(rng, c, 1+rng.IntN(5)), randomSource(rng, c, 1+rng.IntN(5))}
				source = source[rng.IntN(2):]
				o := decode.Options{MaxTokens: 9 * len(source), BeamWidth: 2 + rng.IntN(4), NBest: 1}
				first, second := m.Graph(source, o), m.Graph(source, o)
				want, err := ordered.Run(first)
				if err != nil {
					t.Fatal(err)
				}
				got, err := shuffled.Run(second)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.EqualFunc(got.Tokens, want.Tokens, sameToken) || got.Reason != want.Reason || first.LogProb() != second.LogProb() {
					t.Fatalf("got %v %v %v, want %v %v %v", got.Tokens, got.Reason, second.LogProb(), want.Tokens, want.Reason, first.LogProb())
				}
			}
		})
	}
}

func TestAdvanceAllocatesNothing(t *testing.T) {
	c := small()
	c.Bidirectional, c.NumLayers, c.Attention = true, 2, seq2seq.LuongGeneral
	m, _ := setup(t, c)
	source := [][]int32{{1, 2, 3, 4}, {5, 6}}
	var f cellrt.Frontier
	queue := make([]cellrt.Node, 0, 64)
	run := func(g *seq2seq.Graph) {
		queue = queue[:0]
		f.Reset()
		g.Start(&f)
		for i := 0; ; i++ {
			queue = append(queue, f.Nodes()...)
			if reason, _ := f.Done(); reason != 0 {
				return
			}
			f.Reset()
			g.Advance(queue[i], cellrt.Output{Token: 3}, &f)
		}
	}
	run(m.Graph(source, atMost(18))) // grow the frontier
	graphs := make([]*seq2seq.Graph, 101)
	for i := range graphs {
		graphs[i] = m.Graph(source, atMost(18))
	}
	i := 0
	if n := testing.AllocsPerRun(100, func() { run(graphs[i]); i++ }); n != 0 {
		t.Errorf("%v allocations in a request", n)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*seq2seq.Config){
		"cell":                func(c *seq2seq.Config) { c.Cell = "rnn" },
		"attention":           func(c *seq2seq.Config) { c.Attention = "bahdanau" },
		"num_layers":          func(c *seq2seq.Config) { c.NumLayers = 17 },
		"embedding_size":      func(c *seq2seq.Config) { c.EmbeddingSize = 0 },
		"encoder_hidden_size": func(c *seq2seq.Config) { c.EncoderHidden = -1 },
		"decoder_hidden_size": func(c *seq2seq.Config) { c.DecoderHidden = 8193 },
		"source_vocab_size":   func(c *seq2seq.Config) { c.SourceVocab = 1<<20 + 1 },
		"target_vocab_size":   func(c *seq2seq.Config) { c.TargetVocab = 1<<20 + 1 },
		"pad_token_id":        func(c *seq2seq.Config) { c.PadToken = 6 },
		"bos_token_id":        func(c *seq2seq.Config) { c.BOSToken = -1 },
		"eos_token_id":        func(c *seq2seq.Config) { c.EOSToken = 6 },
		"max_source_length":   func(c *seq2seq.Config) { c.MaxSourceLength = 1<<14 + 1 },
		"max_beam_width":      func(c *seq2seq.Config) { c.MaxBeamWidth = 65 },
		"max_target_length":   func(c *seq2seq.Config) { c.MaxTargetLength = 0 },
	}
	if err := small().Validate(); err != nil {
		t.Fatal(err)
	}
	for field, spoil := range tests {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			c := small()
			spoil(&c)
			if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), field+": ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one error of %s", err, field)
			}
			if _, err := seq2seq.New("test", c, randomTensors(small(), 1).file(t)); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestNewChecksTensors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		spoil func(tensors)
		want  string
	}{
		{"missing", func(ts tensors) { delete(ts, "out.bias") }, "tensor out.bias: missing, shape [6] wanted"},
		{"transposed", func(ts tensors) {
			v := ts["out.weight"]
			v.Shape = []int{9, 6}
			ts["out.weight"] = v
		}, "tensor out.weight: shape [9 6], [6 9] wanted"},
		{"extra", func(ts tensors) {
			v := ts["out.bias"]
			v.Name = "attn.weight"
			ts[v.Name] = v
		}, "tensor attn.weight: shape [6], not part of the model"},
		{"several", func(ts tensors) {
			delete(ts, "bridge_c.bias")
			delete(ts, "decoder.bias_hh_l0")
		}, "tensor decoder.bias_hh_l0: missing, shape [36] wanted\ntensor bridge_c.bias: missing, shape [9] wanted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ts := randomTensors(small(), 1)
			tt.spoil(ts)
			if _, err := seq2seq.New("test", small(), ts.file(t)); err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestNewBoundsTheState(t *testing.T) {
	t.Parallel()
	c := small()
	c.Bidirectional, c.Attention = true, seq2seq.LuongGeneral
	c.NumLayers, c.EncoderHidden, c.MaxSourceLength = seq2seq.MaxLayers, 128, seq2seq.MaxPositions
	_, err := seq2seq.New("test", c, randomTensors(c, 1).file(t))
	if err == nil || !strings.HasPrefix(err.Error(), "max_source_length: a sequence's state has 67119936 values, at most 67108864 wanted") {
		t.Errorf("got %v", err)
	}
}

func TestParameters(t *testing.T) {
	t.Parallel()
	m, ts := setup(t, small())
	want := 0
	for _, v := range ts {
		want += len(v.Data)
	}
	if got := m.Parameters(); got != want {
		t.Errorf("%d parameters, want %d", got, want)
	}
}
