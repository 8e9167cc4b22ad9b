package backendtest

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

// Size implements [cellrt.Sizer] for a backend that does; for others all sizes
// are as large as can be.
func (b withWeights) Size(p *cellrt.Program, slots int) (weights, state int64, err error) {
	if s, ok := b.Backend.(cellrt.Sizer); ok {
		return s.Size(p.WithWeights(b.weights), slots)
	}
	return math.MaxInt64, math.MaxInt64, nil
}

// checkSizes compares what an executable says of its memory with what its
// backend said before and with the sum of its blocks.
func checkSizes(t *testing.T, b cellrt.Backend, p *cellrt.Program, x cellrt.Executable, slots int) {
	t.Helper()
	if want := int64(slots) * int64(p.Layout.Size()) * 4; x.StateBytes() < want {
		t.Errorf("%d bytes of state, want at least %d", x.StateBytes(), want)
	}
	if x.WeightBytes() <= 0 {
		t.Errorf("%d bytes of weights", x.WeightBytes())
	}
	var sum int64
	seen := map[any]bool{}
	for id, bytes := range x.Blocks {
		if seen[id] || bytes <= 0 {
			t.Errorf("block %v of %d bytes, seen before: %t", id, bytes, seen[id])
		}
		seen[id] = true
		sum += bytes
	}
	if sum != x.WeightBytes() {
		t.Errorf("blocks of %d bytes, weights of %d", sum, x.WeightBytes())
	}
	sizer, ok := b.(cellrt.Sizer)
	if !ok {
		return
	}
	weights, state, err := sizer.Size(p, slots)
	if err != nil || weights < x.WeightBytes() || state < x.StateBytes() {
		t.Errorf("size %d and %d, error %v, then %d and %d bytes loaded", weights, state, err, x.WeightBytes(), x.StateBytes())
	}
}

// testWeightsMayChange runs every cell before and after the weights of the
// loaded program become something else, and wants the same bits.
func testWeightsMayChange(t *testing.T, open func(testing.TB) cellrt.Backend) {
	t.Helper()
	const slots = 4
	for _, s := range shapes() {
		t.Run(strconv.Itoa(s.hidden), func(t *testing.T) {
			r := rand.New(rand.NewPCG(10, uint64(s.hidden)))
			l := load(t, open, r, s, slots)
			var rows []cellrt.Row
			var states [][]float32
			for slot := range int32(slots) {
				rows = append(rows, l.row(r, slot))
				states = append(states, vector(r, l.layout.Size()))
			}
			run := func(cell string) ([]cellrt.Output, [][]float32) {
				var after [][]float32
				for slot, state := range states {
					l.WriteState(int32(slot), 0, state)
				}
				out := l.run(t, cell, rows)
				for slot := range states {
					after = append(after, l.state(int32(slot)))
				}
				return out, after
			}
			want, wantStates := map[string][]cellrt.Output{}, map[string][][]float32{}
			for _, name := range l.names() {
				want[name], wantStates[name] = run(name)
			}
			overwrite(l.program)
			for _, name := range l.names() {
				out, after := run(name)
				for i := range rows {
					if !sameOutput(out[i], want[name][i]) || !sameBits(after[i], wantStates[name][i]) {
						t.Errorf("cell %s row %d has other bits since the program's weights changed", name, i)
					}
				}
			}
		})
	}
}

// overwrite makes all weights of a program something else.
func overwrite(p *cellrt.Program) {
	for _, c := range p.Cells {
		for _, op := range c.Ops() {
			for _, v := range weightsOf(op) {
				for i := range v {
					v[i] = 77
				}
			}
		}
	}
}

// weightsOf returns the weights of an operation.
func weightsOf(op cellrt.Op) [][]float32 {
	switch op := op.(type) {
	case cellrt.Embed:
		return [][]float32{op.Table.Data}
	case cellrt.Linear:
		return [][]float32{op.Weight.Data, op.Bias}
	case cellrt.LSTM:
		return [][]float32{op.Input.Data, op.Recurrent.Data, op.Bias}
	case cellrt.GRU:
		return [][]float32{op.Input.Data, op.Recurrent.Data, op.InputBias, op.RecurrentBias}
	case cellrt.TreeLeaf:
		return [][]float32{op.Weight.Data, op.Bias}
	case cellrt.TreeNode:
		return [][]float32{op.Weight.Data, op.Bias}
	}
	return nil
}
