package cpu

import (
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// compiler turns the cells of one program into steps. Weights that several
// cells use are packed once.
type compiler struct {
	layout    *cellrt.Layout
	foldBytes int64
	packed    map[packKey]*packedWeights
	bytes     int64 // weights kept so far
}

// packKey names the matrices that were packed together.
type packKey struct {
	input, recurrent *cellrt.Matrix
}

// packedWeights are the packed forms of the matrices of a [packKey]. A
// [cellrt.Linear] and an LSTM have a main matrix only; a GRU keeps apart what
// its reset gate scales.
type packedWeights struct {
	main                            *kernel.Matrix
	candidateInput, candidateHidden *kernel.Matrix
}

// cellCompiler is the compiler's state for one cell.
type cellCompiler struct {
	*compiler
	cell   *cellrt.Cell
	out    *compiledCell
	embeds map[cellrt.Value]cellrt.Embed // by the value they produce
	uses   map[cellrt.Value]int          // operations that read a value
}

func (c *compiler) compile(cell *cellrt.Cell) (*compiledCell, error) {
	cc := &cellCompiler{
		compiler: c, cell: cell, out: &compiledCell{},
		embeds: map[cellrt.Value]cellrt.Embed{}, uses: map[cellrt.Value]int{},
	}
	for v := range cell.Values() {
		cc.temporary(cell.Width(cellrt.Value(v)))
	}
	for _, op := range cell.Ops() {
		cc.survey(op)
	}
	var embeds []cellrt.Embed
	for _, op := range cell.Ops() {
		if e, ok := op.(cellrt.Embed); ok {
			embeds = append(embeds, e)
			continue
		}
		s, err := cc.step(op)
		if err != nil {
			return nil, err
		}
		cc.out.steps = append(cc.out.steps, s)
	}
	// An embedding depends on arguments alone, so it can come first; one that
	// nothing reads any more is left out.
	var lookups []step
	for _, e := range embeds {
		if cc.uses[e.Out] > 0 {
			c.bytes += int64(len(e.Table.Data)) * 4
			lookups = append(lookups, &embedStep{op: e})
		}
	}
	cc.out.steps = append(lookups, cc.out.steps...)
	return cc.out, nil
}

// temporary reserves scratch of the given width and returns its number, which
// for the first ones is that of the cell's own values.
func (c *cellCompiler) temporary(width int) cellrt.Value {
	stride := kernel.Padded(width)
	c.out.strides = append(c.out.strides, stride)
	c.out.offsets = append(c.out.offsets, c.out.width)
	c.out.width += stride
	return cellrt.Value(len(c.out.strides) - 1)
}

// survey notes which values op makes from a table and which it reads.
func (c *cellCompiler) survey(op cellrt.Op) {
	read := func(values ...cellrt.Value) {
		for _, v := range values {
			c.uses[v]++
		}
	}
	switch op := op.(type) {
	case cellrt.Embed:
		c.embeds[op.Out] = op
	case cellrt.Store:
		read(op.In)
	case cellrt.Linear:
		read(op.In...)
	case cellrt.LSTM:
		read(op.X, op.H, op.C)
	case cellrt.GRU:
		read(op.X, op.H)
	case cellrt.Attend:
		read(op.Query)
	case cellrt.Add:
		read(op.A, op.B)
	case cellrt.Mean:
		read(op.Sum)
	case cellrt.TreeLeaf:
		read(op.X)
	case cellrt.TreeNode:
		read(op.LeftH, op.LeftC, op.RightH, op.RightC)
	case cellrt.Greedy:
		read(op.Logits)
	case cellrt.Expose:
		read(op.In)
	}
}

// step compiles one operation other than an embedding.
func (c *cellCompiler) step(op cellrt.Op) (step, error) {
	switch op := op.(type) {
	case cellrt.Load:
		return &loadStep{op: op, place: c.place(op.Field)}, nil
	case cellrt.Store:
		return &storeStep{op: op, place: c.place(op.Field), size: c.cell.Width(op.In)}, nil
	case cellrt.Linear:
		return c.linear(op), nil
	case cellrt.LSTM:
		return c.lstm(op), nil
	case cellrt.GRU:
		return c.gru(op), nil
	case cellrt.Attend:
		return &attendStep{op: op, place: c.place(op.Memory), scores: c.temporary(c.layout.Field(op.Memory).Count)}, nil
	case cellrt.Add:
		return &addStep{op: op, width: c.cell.Width(op.Out)}, nil
	case cellrt.Mean:
		return &meanStep{op: op, width: c.cell.Width(op.Out)}, nil
	case cellrt.TreeLeaf:
		return c.treeLeaf(op), nil
	case cellrt.TreeNode:
		return c.treeNode(op), nil
	case cellrt.Greedy:
		return &greedyStep{op: op, width: c.cell.Width(op.Logits)}, nil
	case cellrt.Expose:
		return &exposeStep{op: op, width: c.cell.Width(op.In)}, nil
	default:
		return nil, fmt.Errorf("operation %T is not known to the CPU backend", op)
	}
}

func (c *cellCompiler) place(f cellrt.FieldID) place {
	field := c.layout.Field(f)
	return place{name: field.Name, offset: c.layout.Offset(f), count: field.Count, width: field.Width}
}

// pack returns the packed form of the key's matrices, made by make once.
func (c *compiler) pack(key packKey, make func() *packedWeights) *packedWeights {
	w := c.packed[key]
	if w == nil {
		w = make()
		c.packed[key] = w
		for _, m := range []*kernel.Matrix{w.main, w.candidateInput, w.candidateHidden} {
			if m != nil {
				c.bytes += m.Bytes()
			}
		}
	}
	return w
}

// keep counts a vector or table that a step holds.
func (c *compiler) keep(v []float32) []float32 {
	c.bytes += int64(len(v)) * 4
	return v
}
