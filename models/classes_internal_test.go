package models

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestScoreBits pins the bits of scores, which are those of every architecture.
// The logits of all but the last are some whose float32 scores differ with an
// exponential that is right to the last bit of a float64.
func TestScoreBits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		logits []float32
		bits   [3]uint32
	}{
		{[]float32{1.921875, 7.765625, -3.15625}, [3]uint32{0x3b3d5e40, 0x3f7f4174, 0x37970c51}},
		{[]float32{0.53125, -1.7890625, -3.3203125}, [3]uint32{0x3f64acf9, 0x3db3b9df, 0x3c9b7954}},
		{[]float32{-2.390625, 7.21875, -0.0546875}, [3]uint32{0x388c9ae8, 0x3f7fce2d, 0x3a35b795}},
		{[]float32{0, -800, -3.5}, [3]uint32{0x3f787efe, 0, 0x3cf02034}},
	} {
		o := classify([]string{"a", "b", "c"}, [][]float32{tt.logits})
		for i, s := range o.Scores {
			if got := math.Float32bits(s.Probability); got != tt.bits[i] {
				t.Errorf("%v: score %d is %#x, want %#x", tt.logits, i, got, tt.bits[i])
			}
		}
	}
}

// TestLayers wants what each head says at the place of its layer, and nothing
// when only the last one ran.
func TestLayers(t *testing.T) {
	t.Parallel()
	half := []Score{{Label: "a", Probability: 0.5}, {Label: "b", Probability: 0.5}}
	last := []Score{{Label: "a"}, {Label: "b", Probability: 1}}
	tests := []struct {
		name   string
		logits [][]float32
		want   []Layer
	}{
		{"not ended", nil, nil},
		{"without ramps", [][]float32{nil, nil, {-1000, 0}}, nil},
		{"one layer", [][]float32{{-1000, 0}}, nil},
		{"a layer without a ramp", [][]float32{{2, 2}, nil, {-1000, 0}}, []Layer{{Label: "a", Scores: half}, {}, {Label: "b", Scores: last}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, classify([]string{"a", "b"}, tt.logits).Layers); diff != "" {
				t.Error(diff)
			}
		})
	}
}
