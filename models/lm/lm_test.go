package lm_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/decode"
	"github.com/cellmq/cellmq/models/internal/oracle"
	"github.com/cellmq/cellmq/models/lm"
	"github.com/cellmq/cellmq/models/safetensors"
)

// small is a configuration with sizes that are multiples of nothing.
func small(cell string) lm.Config {
	return lm.Config{
		Cell: cell, NumLayers: 2, VocabSize: 11, EmbeddingSize: 5, HiddenSize: 7,
		MaxInputLength: 13, MaxOutputLength: 9, MaxBeamWidth: 3,
	}
}

// values are random weights for a configuration, by name.
func values(c lm.Config) map[string]safetensors.Values {
	rng := rand.New(rand.NewPCG(7, 7))
	all := map[string]safetensors.Values{}
	add := func(name string, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		data := make([]float32, n)
		for i := range data {
			data[i] = float32(rng.NormFloat64())
		}
		all[name] = safetensors.Values{Name: name, DType: safetensors.F32, Shape: shape, Data: data}
	}
	rows := 4 * c.HiddenSize
	if c.Cell == lm.GRU {
		rows = 3 * c.HiddenSize
	}
	add("embed.weight", c.VocabSize, c.EmbeddingSize)
	in := c.EmbeddingSize
	for _, suffix := range []string{"l0", "l1"} {
		add("rnn.weight_ih_"+suffix, rows, in)
		add("rnn.weight_hh_"+suffix, rows, c.HiddenSize)
		add("rnn.bias_ih_"+suffix, rows)
		add("rnn.bias_hh_"+suffix, rows)
		in = c.HiddenSize
	}
	add("out.weight", c.VocabSize, c.HiddenSize)
	add("out.bias", c.VocabSize)
	return all
}

func file(t *testing.T, all map[string]safetensors.Values) *safetensors.File {
	t.Helper()
	var list []safetensors.Values
	for _, v := range all {
		list = append(list, v)
	}
	var buf bytes.Buffer
	if err := safetensors.Write(&buf, list, nil); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Parse(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func model(t *testing.T, c lm.Config) *lm.Model {
	t.Helper()
	m, err := lm.New("test", c, file(t, values(c)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestModel(t *testing.T) {
	t.Parallel()
	for _, cell := range []string{lm.LSTM, lm.GRU} {
		c := small(cell)
		m := model(t, c)
		want := 0
		for _, v := range values(c) {
			want += len(v.Data)
		}
		if m.Parameters() != want || len(m.Program().Cells) != 2 || m.Config().EndToken() != -1 {
			t.Errorf("%s: %d parameters, %d cells, end token %d", cell, m.Parameters(), len(m.Program().Cells), m.Config().EndToken())
		}
		fields := map[string]int{lm.LSTM: 4, lm.GRU: 2}[cell]
		if got, size := m.Program().Layout.Fields(), m.Program().Layout.Size(); got != fields || size != fields*6*c.HiddenSize {
			t.Errorf("%s: %d fields of %d values, want %d of %d", cell, got, size, fields, fields*6*c.HiddenSize)
		}
	}
}

// TestScoreSumsGreedySteps scores what was chosen greedily, which must have the
// log-probability that the choices had.
func TestScoreSumsGreedySteps(t *testing.T) {
	t.Parallel()
	m := model(t, small(lm.LSTM))
	input := []int32{3, 1, 4, 1, 5}
	o := oracle.New(m.Program())
	g := m.Graph(input, decode.Options{MaxTokens: 8})
	out, err := o.Run(g)
	if err != nil || out.Reason != cellrt.Length || len(out.Tokens) != 8 {
		t.Fatalf("got %v, %v", out, err)
	}
	score := func(tokens []int32) float64 {
		s := m.ScoreGraph(tokens)
		out, err := o.Run(s)
		if err != nil || out.Reason != cellrt.Stopped || len(out.Tokens) != 0 {
			t.Fatalf("got %v, %v", out, err)
		}
		return s.LogProb()
	}
	whole := append([]int32(nil), input...)
	for _, tok := range out.Tokens {
		whole = append(whole, tok.ID)
	}
	if got := score(whole) - score(input); math.Abs(got-g.LogProb()) > 1e-5 {
		t.Errorf("score %v, greedy %v", got, g.LogProb())
	}
	if got := score(input[:1]); got != 0 {
		t.Errorf("one token has score %v", got)
	}
}

func TestNumericalErrors(t *testing.T) {
	t.Parallel()
	c := small(lm.GRU)
	all := values(c)
	all["embed.weight"].Data[3*c.EmbeddingSize] = float32(math.NaN()) // of token 3
	m, err := lm.New("test", c, file(t, all))
	if err != nil {
		t.Fatal(err)
	}
	graphs := map[string]func(input ...int32) cellrt.Graph{
		"greedy": func(input ...int32) cellrt.Graph { return m.Graph(input, decode.Options{MaxTokens: 1}) },
		"drawn": func(input ...int32) cellrt.Graph {
			return m.Graph(input, decode.Options{MaxTokens: 1, Sampling: decode.Sampling{Temperature: 1}})
		},
		"searched": func(input ...int32) cellrt.Graph {
			return m.Graph(input, decode.Options{MaxTokens: 1, BeamWidth: 2})
		},
		"scored": func(input ...int32) cellrt.Graph { return m.ScoreGraph(append(input, 1)) },
	}
	for name, graph := range graphs {
		o := oracle.New(m.Program())
		if _, err := o.Run(graph(1, 2)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := o.Run(graph(1, 3)); !errors.Is(err, cellrt.ErrNumerical) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*lm.Config){
		"cell":              func(c *lm.Config) { c.Cell = "rnn" },
		"num_layers":        func(c *lm.Config) { c.NumLayers = 17 },
		"vocab_size":        func(c *lm.Config) { c.VocabSize = 1<<20 + 1 },
		"embedding_size":    func(c *lm.Config) { c.EmbeddingSize = 0 },
		"hidden_size":       func(c *lm.Config) { c.HiddenSize = 8193 },
		"eos_token_id":      func(c *lm.Config) { eos := int32(11); c.EOSToken = &eos },
		"max_input_length":  func(c *lm.Config) { c.MaxInputLength = -1 },
		"max_output_length": func(c *lm.Config) { c.MaxOutputLength = 1<<20 + 1 },
		"max_beam_width":    func(c *lm.Config) { c.MaxBeamWidth = 65 },
	}
	if err := small(lm.LSTM).Validate(); err != nil {
		t.Fatal(err)
	}
	for field, spoil := range tests {
		c := small(lm.LSTM)
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), field+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one error of %s", err, field)
		}
		if _, err := lm.New("test", c, file(t, values(small(lm.LSTM)))); err == nil {
			t.Errorf("%s: accepted", field)
		}
	}
	want := small(lm.LSTM)
	want.MaxInputLength, want.MaxOutputLength, want.MaxBeamWidth = lm.DefaultInputLength, lm.DefaultOutputLength, lm.DefaultBeamWidth
	got := lm.Config{Cell: lm.LSTM, NumLayers: 2, VocabSize: 11, EmbeddingSize: 5, HiddenSize: 7}.WithDefaults()
	if got != want {
		t.Errorf("defaults %+v, want %+v", got, want)
	}
}

func TestNewChecksTensors(t *testing.T) {
	t.Parallel()
	c := small(lm.LSTM)
	for want, spoil := range map[string]func(map[string]safetensors.Values){
		"tensor out.bias: missing, shape [11] wanted":       func(all map[string]safetensors.Values) { delete(all, "out.bias") },
		"tensor rnn.bias_hh_l1: missing, shape [28] wanted": func(all map[string]safetensors.Values) { delete(all, "rnn.bias_hh_l1") },
		"tensor other: shape [11], not part of the model":   func(all map[string]safetensors.Values) { v := all["out.bias"]; v.Name = "other"; all["other"] = v },
		"tensor embed.weight: shape [5 11], [11 5] wanted": func(all map[string]safetensors.Values) {
			v := all["embed.weight"]
			v.Shape = []int{5, 11}
			all["embed.weight"] = v
		},
	} {
		all := values(c)
		spoil(all)
		if _, err := lm.New("test", c, file(t, all)); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	c.MaxBeamWidth, c.HiddenSize = 64, 1<<13
	if _, err := lm.New("test", c, file(t, values(small(lm.LSTM)))); err == nil {
		t.Error("other sizes were accepted")
	}
}

func TestAdvanceAllocatesNothing(t *testing.T) {
	m := model(t, small(lm.LSTM))
	for name, o := range map[string]decode.Options{
		"greedy": {MaxTokens: 1 << 30},
		"drawn":  {MaxTokens: 1 << 30, Sampling: decode.Sampling{Temperature: 1, TopK: 5}},
	} {
		g := m.Graph([]int32{1, 2, 3}, o)
		out := cellrt.Output{Token: 3, Values: make([]float32, 11)}
		var f cellrt.Frontier
		g.Start(&f)
		step := func() {
			n := f.Nodes()[0]
			f.Reset()
			g.Advance(n, out, &f)
		}
		for range 20 {
			step()
		}
		if n := testing.AllocsPerRun(100, step); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
