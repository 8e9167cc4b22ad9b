package workload_test

import (
	"math"
	"slices"
	"testing"

	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// TestNumbers wants the numbers to have no pattern that would hide a mistake:
// they are spread over their range, different between tensors, and the same
// whatever else there is.
func TestNumbers(t *testing.T) {
	t.Parallel()
	c := workload.Case{Kind: workload.GRU, Inputs: 64, Units: 96, Rows: 8, Weights: workload.F32}
	p, in := c.MakeParameters(), c.MakeInputs()
	amplitude := math.Sqrt(3.0 / (64 + 96))
	for name, test := range map[string]struct {
		values    []float32
		want      int
		amplitude float64
	}{
		"weight":         {p.Weight, 3 * 96 * 64, amplitude},
		"recurrent":      {p.Recurrent, 3 * 96 * 96, amplitude},
		"bias":           {p.Bias, 3 * 96, 0.5},
		"recurrent bias": {p.RecurrentBias, 3 * 96, 0.5},
		"x":              {in.X, 8 * 64, 1},
		"h":              {in.H, 8 * 96, 1},
	} {
		if len(test.values) != test.want {
			t.Errorf("%s: %d numbers, want %d", name, len(test.values), test.want)
		}
		sum, squares := 0.0, 0.0
		for _, v := range test.values {
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
		n := float64(len(test.values))
		spread := math.Sqrt(3*squares/n) / test.amplitude
		if mean := sum / n / test.amplitude; math.Abs(mean) > 0.15 || math.Abs(spread-1) > 0.1 {
			t.Errorf("%s: mean %.2f, spread %.2f of the amplitude", name, mean, spread)
		}
	}
	if slices.Equal(p.Weight[:64], p.Recurrent[:64]) {
		t.Error("tensors have the same numbers")
	}
	if in.C != nil {
		t.Error("a GRU has a cell state")
	}
}

func TestWant(t *testing.T) {
	t.Parallel()
	sigmoid := func(x float32) float64 { return 1 / (1 + math.Exp(-float64(x))) }
	tanh := func(x float64) float64 { return math.Tanh(x) }
	for _, kind := range []workload.Kind{workload.Product, workload.LSTM, workload.GRU} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			// One input and one unit, so that every product has one term.
			c := workload.Case{Kind: kind, Inputs: 1, Units: 1, Rows: 2, Weights: workload.F32}
			p, in := c.MakeParameters(), c.MakeInputs()
			got := c.Want(p, c.Samples())
			pre := func(g, row int) float32 {
				return p.Weight[g]*in.X[row] + p.Recurrent[g]*in.H[row] + p.Bias[g]
			}
			var want []float64
			for r := range 2 {
				switch kind {
				case workload.Product:
					want = append(want, float64(p.Weight[0]*in.X[r]+p.Bias[0]))
				case workload.LSTM:
					cell := sigmoid(pre(1, r))*float64(in.C[r]) + sigmoid(pre(0, r))*tanh(float64(pre(2, r)))
					want = append(want, sigmoid(pre(3, r))*tanh(cell), cell)
				case workload.GRU:
					reset := sigmoid(pre(0, r) + p.RecurrentBias[0])
					update := sigmoid(pre(1, r) + p.RecurrentBias[1])
					recurrent := float64(p.Recurrent[2]*in.H[r] + p.RecurrentBias[2])
					candidate := tanh(float64(p.Weight[2]*in.X[r]+p.Bias[2]) + reset*recurrent)
					want = append(want, (1-update)*candidate+update*float64(in.H[r]))
				}
			}
			if len(got) != len(want) {
				t.Fatalf("%d results, want %d", len(got), len(want))
			}
			for i := range want {
				if math.Abs(got[i]-want[i]) > 1e-6 {
					t.Errorf("result %d = %g, want %g", i, got[i], want[i])
				}
			}
		})
	}
}

func TestSamples(t *testing.T) {
	t.Parallel()
	small := workload.Case{Kind: workload.Product, Inputs: 4, Units: 33, Rows: 7, Weights: workload.F32}
	for i, at := range small.Samples() {
		if at != i {
			t.Fatalf("place %d of a small result is %d", i, at)
		}
	}
	large := workload.Case{Kind: workload.Product, Inputs: 4, Units: 4096, Rows: 64, Weights: workload.F32}
	at := large.Samples()
	rows, columns := map[int]bool{}, map[int]bool{}
	for i, place := range at {
		if place < 0 || place >= large.Outputs() || i > 0 && place <= at[i-1] {
			t.Fatalf("place %d is %d after %d", i, place, at[max(0, i-1)])
		}
		rows[place/4096] = true
		columns[place%64] = true
	}
	if len(rows) != 64 || len(columns) != 64 {
		t.Errorf("places in %d rows and at %d of 64 columns", len(rows), len(columns))
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	want := make([]float64, 1000)
	for i := range want {
		want[i] = math.Sin(float64(i))
	}
	with := func(change func(i int, x float64) float64) []float32 {
		out := make([]float32, len(want))
		for i, x := range want {
			out[i] = float32(change(i, x))
		}
		return out
	}
	relative := func(e float64) []float32 {
		return with(func(i int, x float64) float64 { return x + e*0.7*math.Cos(float64(i)) })
	}
	one := func(value float64) []float32 {
		return with(func(i int, x float64) float64 {
			if i == 500 {
				return value
			}
			return x
		})
	}
	for _, test := range []struct {
		name    string
		weights workload.Weights
		got     []float32
		fails   bool
	}{
		{"exact", workload.F32, relative(0), false},
		{"rounded", workload.F32, relative(1e-6), false},
		{"bf16 in the name of f32", workload.F32, relative(2e-3), true},
		{"bf16", workload.BF16, relative(2e-3), false},
		{"int8 in the name of bf16", workload.BF16, relative(1.5e-2), true},
		{"int8", workload.Int8, relative(1.5e-2), false},
		{"wrong", workload.Int8, relative(0.1), true},
		{"f32 in the name of int8", workload.Int8, relative(1e-6), true},
		{"one wrong", workload.F32, one(want[500] + 0.01), true},
		{"not a number", workload.Int8, one(math.NaN()), true},
		{"infinite", workload.Int8, one(math.Inf(1)), true},
		{"too few", workload.F32, relative(0)[1:], true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := workload.Case{Weights: test.weights}
			if got, err := c.Check(test.got, want); (err != nil) != test.fails {
				t.Errorf("relative error %g: error %v, want one: %v", got, err, test.fails)
			}
		})
	}
}

func TestFlop(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind workload.Kind
		want float64
	}{{workload.Product, 2 * 5 * 3 * 7}, {workload.LSTM, 2 * 5 * 4 * 7 * (3 + 7)}, {workload.GRU, 2 * 5 * 3 * 7 * (3 + 7)}} {
		c := workload.Case{Kind: test.kind, Inputs: 3, Units: 7, Rows: 5}
		if got := c.Flop(); got != test.want {
			t.Errorf("%s: %g operations, want %g", test.kind, got, test.want)
		}
	}
}
