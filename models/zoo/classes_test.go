package zoo_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/zoo"
)

// answer is a test input with its true label and PyTorch's results for the
// float32 weights, as they are in the file: labels are strings or numbers.
type answer struct {
	Input   string            `json:"input"`
	Label   json.RawMessage   `json:"label"`
	ByLayer []json.RawMessage `json:"by_layer"`
	Output  json.RawMessage   `json:"output"`
	Logits  []float64         `json:"logits"`
}

func name(raw json.RawMessage) string { return string(bytes.Trim(raw, `"`)) }

// layers are PyTorch's labels by layer.
func (a answer) layers() []string {
	if len(a.ByLayer) == 0 {
		return []string{name(a.Output)}
	}
	var labels []string
	for _, l := range a.ByLayer {
		labels = append(labels, name(l))
	}
	return labels
}

func readAnswers(t *testing.T, file string) []answer {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var answers []answer
	for line := range bytes.Lines(b) {
		var a answer
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	return answers
}

// TestLabelsEqualPyTorch runs the whole test sets of the models that answer
// with a label: every label of every layer is PyTorch's, and accuracy is what
// the trainer measured.
func TestLabelsEqualPyTorch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		model string
		right []int // of 1,000, by layer
		off   float64
	}{
		{"langid", []int{844, 843, 845, 848, 851, 850}, 0},
		{"listops", []int{998}, 0.008},
	}
	for _, tt := range tests {
		t.Run(tt.model, func(t *testing.T) {
			t.Parallel()
			answers := readAnswers(t, tt.model+".jsonl")
			if len(answers) != 1000 {
				t.Fatalf("%d test inputs, want 1000", len(answers))
			}
			if testing.Short() {
				answers = answers[:100]
				t.Logf("%d inputs", len(answers))
			}
			right := runAnswers(t, tt.model, answers, tt.off)
			if len(answers) == 1000 && !slices.Equal(right, tt.right) {
				t.Errorf("%v right by layer, want %v", right, tt.right)
			}
		})
	}
}

// runAnswers compares a model's labels with PyTorch's and returns how many are
// right by layer.
func runAnswers(t *testing.T, model string, answers []answer, off float64) []int {
	t.Helper()
	m, err := zoo.Load(model)
	if err != nil {
		t.Fatal(err)
	}
	run := serve(t, m).Run
	got := make([][]string, len(answers))
	var group sync.WaitGroup
	for first := range slots {
		group.Go(func() {
			for i := first; i < len(answers); i += slots {
				a := answers[i]
				req, err := m.Unfold(models.Input{Text: a.Input}, models.Params{Ramps: len(a.ByLayer) > 0})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := run(t.Context(), req); err != nil {
					t.Error(err)
					return
				}
				o := req.Outcome()
				got[i] = labels(o)
				for j, want := range a.Logits {
					if l := o.Logits[len(o.Logits)-1][j]; !(math.Abs(float64(l)-want) <= off) {
						t.Errorf("input %d: logit %d is %v, want %v", i, j, l, want)
					}
				}
			}
		})
	}
	group.Wait()
	right := make([]int, len(answers[0].layers()))
	for i, a := range answers {
		want := a.layers()
		if !slices.Equal(got[i], want) {
			t.Fatalf("input %d, %q: got %v, want %v", i, a.Input, got[i], want)
		}
		for l, label := range want {
			if label == name(a.Label) {
				right[l]++
			}
		}
	}
	return right
}

// labels returns the most probable label of each layer.
func labels(o models.Outcome) []string {
	var out []string
	for _, logits := range o.Logits {
		best := slices.Index(logits, slices.Max(logits))
		out = append(out, o.Scores[best].Label)
	}
	return out
}
