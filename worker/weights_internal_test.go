package worker

import (
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/zoo"
)

// TestWeigh chooses between what an operator says of a model, what he says of
// all, and what the model says itself.
func TestWeigh(t *testing.T) {
	t.Parallel()
	m, err := zoo.Load("listops")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		own     cellrt.Weights
		entries []string
		want    cellrt.Weights
	}{
		{"nothing said", cellrt.F32, nil, cellrt.F32},
		{"its own", cellrt.Int8, nil, cellrt.Int8},
		{"another's", cellrt.BF16, []string{"langid=int8"}, cellrt.BF16},
		{"all", cellrt.Int8, []string{"f32"}, cellrt.F32},
		{"all and another's", cellrt.F32, []string{"langid=f32", "bf16"}, cellrt.BF16},
		{"its name", cellrt.F32, []string{"listops=int8"}, cellrt.Int8},
		{"its name and all", cellrt.BF16, []string{"listops=int8", "f32"}, cellrt.Int8},
		{"all and its name", cellrt.BF16, []string{"int8", "listops=f32"}, cellrt.F32},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			found := []*models.Model{m.WithWeights(tt.own)}
			got, err := weigh(found, []string{"langid", "listops"}, tt.entries)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || got[0].Weights() != tt.want || found[0].Weights() != tt.own {
				t.Errorf("%v, want %v", got[0].Weights(), tt.want)
			}
		})
	}
}
