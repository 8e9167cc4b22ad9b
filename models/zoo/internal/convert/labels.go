package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cellmq/cellmq/models"
)

// labelled is a test input with its true label and the trainer's results.
type labelled struct {
	Input   string    `json:"input"`
	Label   label     `json:"label"`
	Output  label     `json:"output"`
	ByLayer []label   `json:"by_layer"`
	Logits  []float32 `json:"logits"`
}

// label is a label, or the index of one that has no other name.
type label string

// UnmarshalJSON reads a string or a number.
func (l *label) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(l))
	}
	var n json.Number
	err := json.Unmarshal(b, &n)
	*l = label(n)
	return err
}

// goldenLabel is a line of golden.jsonl.
type goldenLabel struct {
	Input        string    `json:"input"`
	Label        label     `json:"label"`
	Logits       []float32 `json:"logits"`
	FinishReason string    `json:"finish_reason"`
	Tolerance    float64   `json:"tolerance"`
}

// testLabels compares a model's labels with the true ones and the trainer's,
// and its logits with the trainer's. A line without those takes the logits of
// the first model tested, the one with float32 weights. The golden tolerance
// covers twice what rounding changed in any logit.
func testLabels(ctx context.Context, m *models.Model, lines []labelled) (evaluation, error) {
	ramps := len(lines) > 0 && len(lines[0].ByLayer) > 1
	outcomes := make([]models.Outcome, len(lines))
	err := runAll(ctx, m, len(lines), func(i int) (*models.Request, error) {
		return m.Unfold(models.Input{Text: lines[i].Input}, models.Params{Ramps: ramps})
	}, func(i int, r *models.Request, _ models.Output) {
		outcomes[i] = r.Outcome()
	})
	if err != nil {
		return evaluation{}, err
	}
	right := make([]int, len(m.Program().Cells)) // by layer; there are more cells than layers
	layers, different, off := 0, 0, 0.0
	for i, l := range lines {
		got := byLayer(outcomes[i])
		layers = len(got)
		for layer, name := range got {
			if name == l.Label {
				right[layer]++
			}
		}
		if got[len(got)-1] != l.Output || ramps && !slices.Equal(got, l.ByLayer) {
			different++
		}
		last := outcomes[i].Logits[len(outcomes[i].Logits)-1]
		if l.Logits == nil {
			lines[i].Logits = last
		}
		for j, want := range l.Logits {
			off = max(off, math.Abs(float64(last[j])-float64(want)))
		}
	}
	e := evaluation{summary: fmt.Sprintf(
		"right of %d, by layer: %s  output differs from the trainer's: %d  largest difference of a logit: %.2g",
		len(lines), strings.Trim(fmt.Sprint(right[:layers]), "[]"), different, off)}
	for i := 0; i < len(lines); i += max(1, len(lines)/goldenLines) {
		l := lines[i]
		if label(outcomes[i].Label) != l.Output {
			continue
		}
		e.golden = append(e.golden, goldenLabel{
			Input: l.Input, Label: l.Output, Logits: l.Logits, FinishReason: "stop", Tolerance: tolerance(off),
		})
	}
	return e, nil
}

// byLayer returns the labels of the layers whose logits are known.
func byLayer(o models.Outcome) []label {
	var labels []label
	for _, logits := range o.Logits {
		if logits == nil {
			continue
		}
		best := 0
		for i, v := range logits {
			if v > logits[best] {
				best = i
			}
		}
		labels = append(labels, label(o.Scores[best].Label))
	}
	return labels
}
