package accuracy

import (
	"math"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/zoo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func load(t *testing.T, name string) *models.Model {
	t.Helper()
	m, err := zoo.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFigure(t *testing.T) {
	t.Parallel()
	first := sheet{measure: "m", answers: []string{"a", "b", "c", "d"}, wrong: []bool{true, false, false, false}}
	other := sheet{measure: "m", answers: []string{"a", "x", "y", "d"}, wrong: []bool{true, true, false, false}}
	f := figure("model", []cellrt.Weights{cellrt.F32, cellrt.Int8}, []sheet{first, other})
	if f.Cases != 4 || *f.Types[0].Value != 25 || f.Types[0].Difference != nil || *f.Types[1].Value != 50 ||
		*f.Types[1].Difference != 25 || f.Types[1].Unlike != 2 || f.Types[1].Weights != "int8" {
		t.Errorf("%+v", f)
	}
	f = figure("model", []cellrt.Weights{cellrt.F32, cellrt.BF16}, []sheet{{bits: 1.5}, {bits: 1.75}})
	if f.Cases != 0 || *f.Types[1].Value != 1.75 || *f.Types[1].Difference != 0.25 || f.Types[1].Margin != nil {
		t.Errorf("%+v", f)
	}
}

func TestPaired(t *testing.T) {
	t.Parallel()
	a, b := make([]bool, 1000), make([]bool, 1000)
	for i := range 300 {
		a[i], b[i] = true, true // both: no matter
	}
	for i := range 10 {
		a[300+i] = true
	}
	for i := range 15 {
		b[400+i] = true
	}
	difference, margin := paired(a, b)
	// b + c = 26 with the halves, (c - b)^2/n = 0.025.
	if want := 1.96 * math.Sqrt(26-0.025) / 1000; math.Abs(difference-0.005) > 1e-12 || math.Abs(margin-want) > 1e-12 {
		t.Errorf("%v ± %v, want 0.005 ± %v", difference, margin, want)
	}
}

func TestHalves(t *testing.T) {
	t.Parallel()
	got := halves([]labelled{{Input: "short", Label: []byte(`"x"`)}, {Input: "zwölf Buchstaben und mehr", Label: []byte(`"de"`)}, {Input: "ääääääääääääz", Label: []byte(`7`)}})
	var texts []string
	for _, h := range got {
		texts = append(texts, h.Input+" "+h.truth())
	}
	if want := []string{"zwölf Buchst de", "aben und mehr de", "ääääää 7", "ääääääz 7"}; !slices.Equal(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		model, input string
		begin, turn  []string
		hidden       int
	}{
		{"kjv-lm", "ab", []string{"layers", "layers", "project"}, []string{"layers", "project"}, 640},
		{"g2p-en", "a", []string{"encoder.0.forward", "encoder.0.backward", "bridge", "decoder"}, []string{"decoder"}, 384},
	} {
		t.Run(tt.model, func(t *testing.T) {
			t.Parallel()
			m := load(t, tt.model)
			most := 3
			req, err := m.Unfold(models.Input{Text: tt.input}, models.Params{MaxTokens: &most})
			if err != nil {
				t.Fatal(err)
			}
			p, err := newPlan(req, 30)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(names(p.begin), tt.begin) || !slices.Equal(names(p.turn), tt.turn) {
				t.Errorf("begins with %v, turns %v", names(p.begin), names(p.turn))
			}
			if p.turn[0].Args[p.token] != 30 {
				t.Errorf("argument %d of %v is not the token", p.token, p.turn[0].Args)
			}
			width := 0
			for _, at := range p.hidden(m.Program().Layout) {
				width += at.width
			}
			if width != tt.hidden {
				t.Errorf("%d values of h, want %d", width, tt.hidden)
			}
		})
	}
}

func names(nodes []cellrt.Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Cell.Name)
	}
	return out
}

func TestPlanWantsTwoTokens(t *testing.T) {
	t.Parallel()
	m := load(t, "g2p-en")
	req, err := m.Unfold(models.Input{Text: "ab"}, models.Params{})
	if err != nil {
		t.Fatal(err)
	}
	const end = 2
	if _, err := newPlan(req, end); err == nil {
		t.Error("a plan of an output without tokens")
	}
}

// skewed is a backend whose states and logits are off by a share with any
// weight type but float32. What it stores stays right.
type skewed struct {
	cellrt.Backend
	share float32
}

func (s skewed) Load(p *cellrt.Program, slots int) (cellrt.Executable, error) {
	x, err := s.Backend.Load(p.WithWeights(cellrt.F32), slots)
	if err != nil || p.Weights == cellrt.F32 {
		return x, err
	}
	return skewedExecutable{Executable: x, factor: 1 + s.share}, nil
}

type skewedExecutable struct {
	cellrt.Executable
	factor float32
}

func (s skewedExecutable) ReadState(slot int32, from int, to []float32) {
	s.Executable.(inspector).ReadState(slot, from, to)
	scale(to, s.factor)
}

func (s skewedExecutable) NewRunner() cellrt.Runner {
	return skewedRunner{Runner: s.Executable.NewRunner(), factor: s.factor}
}

type skewedRunner struct {
	cellrt.Runner
	factor float32
}

func (s skewedRunner) Run(c *cellrt.Cell, rows []cellrt.Row, out []cellrt.Output) int {
	n := s.Runner.Run(c, rows, out)
	for i := range out {
		out[i].Values = slices.Clone(out[i].Values)
		scale(out[i].Values, s.factor)
	}
	return n
}

func scale(v []float32, factor float32) {
	for i := range v {
		v[i] *= factor
	}
}

// TestDrift follows a backend whose other weight types are off by a known
// share, and one whose are not.
func TestDrift(t *testing.T) {
	t.Parallel()
	m := load(t, "kjv-lm")
	lectures := []lecture{{input: "In the", tokens: []int32{32, 98}}, {input: "And God said", tokens: []int32{44, 32, 76}}}
	for _, share := range []float32{0, 0.125} {
		drift, err := follow(t.Context(), skewed{Backend: cpu.New(cpu.Config{}), share: share}, m, []cellrt.Weights{cellrt.F32, cellrt.Int8}, lectures, 12)
		if err != nil {
			t.Fatal(err)
		}
		if len(drift) != 3 || drift[0].Step != 1 || drift[1].Step != 10 || drift[2].Step != 12 {
			t.Fatalf("%+v", drift)
		}
		for _, d := range drift {
			if math.Abs(d.H/d.HSize-float64(share)) > 1e-6 || math.Abs(d.Logits/d.LogitsSize-float64(share)) > 1e-6 || d.HSize < 0.01 {
				t.Errorf("%+v, want a share of %v", d, share)
			}
		}
		if drift[0].LogitsSize == drift[2].LogitsSize {
			t.Error("two steps gave the same logits")
		}
	}
}

// TestLectures wants every sequence to read something else, as long as drift
// is followed.
func TestLectures(t *testing.T) {
	t.Parallel()
	o := Options{Steps: 60, Sequences: 4, Samples: 40, Root: "../../.."}
	for _, name := range []string{"kjv-lm", "g2p-en"} {
		got, err := o.lectures(t.Context(), cpu.New(cpu.Config{}), load(t, name))
		if err != nil || len(got) != 4 {
			t.Fatalf("%s: %d, %v", name, len(got), err)
		}
		for i, l := range got {
			if len(l.tokens) < o.Steps || l.input == "" || i > 0 && slices.Equal(l.tokens, got[0].tokens) {
				t.Errorf("%s: sequence %d reads %q and %d tokens", name, i, l.input, len(l.tokens))
			}
		}
	}
}
