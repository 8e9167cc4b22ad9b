package accuracy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// Drift is how far a model with one weight type is from float32 after so many
// steps on the same tokens.
type Drift struct {
	Model   string `json:"model"`
	Weights string `json:"weights"`
	Step    int    `json:"step"`
	// H and Logits are root mean squared differences, HSize and LogitsSize the
	// root mean squares of the float32 values.
	H          float64 `json:"h"`
	HSize      float64 `json:"h_size"`
	Logits     float64 `json:"logits"`
	LogitsSize float64 `json:"logits_size"`
}

// checkpoints are the steps that are compared, and the last one.
func checkpoints(steps int) []int {
	var at []int
	for _, s := range []int{1, 10, 100, 500} {
		if s < steps {
			at = append(at, s)
		}
	}
	return append(at, steps)
}

// lecture is what one sequence is made to read: an input of the model's, then
// tokens.
type lecture struct {
	input  string
	tokens []int32
}

// moment is the states and logits of all sequences after a step.
type moment struct{ h, logits []float32 }

// follow compares m with each weight type, of which the first is float32, on
// the lectures.
func follow(ctx context.Context, b cellrt.Backend, m *models.Model, types []cellrt.Weights, lectures []lecture, steps int) ([]Drift, error) {
	at := checkpoints(steps)
	var reference []moment
	var out []Drift
	for i, w := range types {
		moments, err := watch(ctx, b, m.WithWeights(w), lectures, at)
		if err != nil {
			return nil, fmt.Errorf("drift with %v: %w", w, err)
		}
		if i == 0 {
			reference = moments
			continue
		}
		for k, step := range at {
			d := Drift{Model: m.Name(), Weights: w.String(), Step: step}
			d.H, d.HSize = rms(moments[k].h, reference[k].h)
			d.Logits, d.LogitsSize = rms(moments[k].logits, reference[k].logits)
			out = append(out, d)
		}
	}
	return out, nil
}

// inspector is an executable whose states can be read.
type inspector interface {
	ReadState(slot int32, from int, to []float32)
}

// watch makes m read the lectures and returns its states and logits after the
// given steps, the last of which is the end.
func watch(ctx context.Context, b cellrt.Backend, m *models.Model, lectures []lecture, at []int) ([]moment, error) {
	x, err := b.Load(m.Program(), len(lectures))
	if err != nil {
		return nil, err
	}
	states, ok := x.(inspector)
	if !ok {
		return nil, errors.New("the backend shows no states")
	}
	r := reader{runner: x.NewRunner(), states: states, layout: m.Program().Layout}
	for _, l := range lectures {
		most := 3
		req, err := m.Unfold(models.Input{Text: l.input}, models.Params{MaxTokens: &most})
		if err != nil {
			return nil, err
		}
		p, err := newPlan(req, l.tokens[0])
		if err != nil {
			return nil, err
		}
		r.begin(p)
	}
	var moments []moment
	for step := 1; step <= at[len(at)-1]; step++ {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		logits := r.turn(func(slot int) int32 { return lectures[slot].tokens[(step-1)%len(lectures[slot].tokens)] })
		if slices.Contains(at, step) {
			moments = append(moments, moment{h: r.hidden(), logits: logits})
		}
	}
	return moments, nil
}

// reader runs the plans of sequences side by side, one in each slot.
type reader struct {
	runner cellrt.Runner
	states inspector
	layout *cellrt.Layout
	plans  []plan // by slot
}

// begin takes a plan into the next slot and runs what comes before its turns.
func (r *reader) begin(p plan) {
	slot := int32(len(r.plans))
	r.plans = append(r.plans, p)
	for _, n := range p.begin {
		r.runner.Run(n.Cell, []cellrt.Row{{Slot: slot, Args: n.Args}}, make([]cellrt.Output, 1))
	}
}

// turn runs one turn of every plan, each on its token, and returns the logits.
func (r *reader) turn(token func(slot int) int32) []float32 {
	rows, out := make([]cellrt.Row, len(r.plans)), make([]cellrt.Output, len(r.plans))
	for k, n := range r.plans[0].turn {
		for slot, p := range r.plans {
			rows[slot] = cellrt.Row{Slot: int32(slot), Args: p.turn[k].Args}
			if k == 0 {
				rows[slot].Args[p.token] = token(slot)
			}
		}
		r.runner.Run(n.Cell, rows, out)
	}
	var logits []float32
	for _, o := range out {
		logits = append(logits, o.Values...)
	}
	return logits
}

// hidden returns the states h of all sequences.
func (r *reader) hidden() []float32 {
	var all []float32
	for slot, p := range r.plans {
		for _, at := range p.hidden(r.layout) {
			h := make([]float32, at.width)
			r.states.ReadState(int32(slot), at.from, h)
			all = append(all, h...)
		}
	}
	return all
}

// rms returns the root mean squared difference of two vectors, and the root
// mean square of the second.
func rms(a, b []float32) (difference, size float64) {
	for i := range b {
		d := float64(a[i]) - float64(b[i])
		difference += d * d
		size += float64(b[i]) * float64(b[i])
	}
	n := float64(len(b))
	return math.Sqrt(difference / n), math.Sqrt(size / n)
}
