package cpu

import (
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// compiler turns the cells of one program into steps. Weights that several
// cells use are packed once. Without shares it only finds out sizes: it packs
// nothing, and the steps cannot run.
type compiler struct {
	table      *kernel.Table
	format     kernel.Format
	layout     *cellrt.Layout
	foldBytes  int64
	shares     *shares
	packed     map[packKey]*block
	embeddings map[*cellrt.Matrix]*block
	blocks     []*block // that steps hold
	held       map[*block]bool
	bytes      int64 // of blocks
}

func newCompiler(b *Backend, format kernel.Format, layout *cellrt.Layout) *compiler {
	return &compiler{
		table: b.table, format: format, layout: layout, foldBytes: b.cfg.FoldBytes,
		packed: map[packKey]*block{}, embeddings: map[*cellrt.Matrix]*block{}, held: map[*block]bool{},
	}
}

func (c *compiler) compileAll(cells []*cellrt.Cell) ([]*compiledCell, error) {
	var all []*compiledCell
	for _, cell := range cells {
		compiled, err := c.compile(cell)
		if err != nil {
			return nil, fmt.Errorf("cell %s: %w", cell.Name, err)
		}
		all = append(all, compiled)
	}
	return all, nil
}

// cellCompiler is the compiler's state for one cell.
type cellCompiler struct {
	*compiler
	cell   *cellrt.Cell
	out    *compiledCell
	embeds map[cellrt.Value]cellrt.Embed // by the value they produce
	uses   map[cellrt.Value]int          // operations that read a value
	direct map[int]bool                  // stores done by the operation that makes their value
	inputs map[cellrt.Value]int          // values of products, by their number among them
}

func (c *compiler) compile(cell *cellrt.Cell) (*compiledCell, error) {
	cc := &cellCompiler{
		compiler: c, cell: cell, out: &compiledCell{},
		embeds: map[cellrt.Value]cellrt.Embed{}, uses: map[cellrt.Value]int{},
		direct: map[int]bool{}, inputs: map[cellrt.Value]int{},
	}
	for v := range cell.Values() {
		cc.reserve(cell.Width(cellrt.Value(v)))
	}
	for _, op := range cell.Ops() {
		cc.survey(op)
	}
	var embeds []cellrt.Embed
	for i, op := range cell.Ops() {
		if e, ok := op.(cellrt.Embed); ok {
			embeds = append(embeds, e)
			continue
		}
		if cc.direct[i] {
			continue
		}
		s, err := cc.step(i, op)
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
			lookups = append(lookups, &embedStep{
				id: e.ID, out: e.Out, width: e.Table.Cols, table: c.keepEmbedding(e.Table),
			})
		}
	}
	cc.out.steps = append(lookups, cc.out.steps...)
	cc.out.inputs = len(cc.inputs)
	return cc.out, nil
}

// aliasing is the distance in float32 values, 2 KiB, at multiples of which
// rows compete for the same few lines of a first-level cache.
const aliasing = 512

// reserve makes room for the next value of the cell.
func (c *cellCompiler) reserve(width int) {
	stride := kernel.Padded(width)
	if stride%aliasing == 0 {
		stride += 16
	}
	c.out.strides = append(c.out.strides, stride)
	c.out.offsets = append(c.out.offsets, c.out.width)
	c.out.width += stride
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

// step compiles the operation with number i, which is not an embedding.
func (c *cellCompiler) step(i int, op cellrt.Op) (step, error) {
	switch op := op.(type) {
	case cellrt.Load:
		return &loadStep{op: op, place: c.place(op.Field)}, nil
	case cellrt.Store:
		return &storeStep{in: op.In, target: c.target(op)}, nil
	case cellrt.Linear:
		return c.linear(op)
	case cellrt.LSTM:
		return c.lstm(i, op)
	case cellrt.GRU:
		return c.gru(i, op)
	case cellrt.Attend:
		return c.attend(op), nil
	case cellrt.Add:
		return &addStep{op: op, width: c.cell.Width(op.Out)}, nil
	case cellrt.Mean:
		return &meanStep{op: op, width: c.cell.Width(op.Out)}, nil
	case cellrt.TreeLeaf:
		return c.treeLeaf(i, op)
	case cellrt.TreeNode:
		return c.treeNode(i, op)
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
