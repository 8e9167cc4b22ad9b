package cellrt

import (
	"errors"
	"fmt"
)

// Cell is a sub-graph with shared weights: the unit of batching (BatchMaker,
// EuroSys'18, section 3). It is a straight-line list of operations over row
// vectors: gather state, compute, scatter state. Nodes of the same cell run in
// one batch whoever they belong to.
//
// A cell says what to compute; a [Backend] decides how. Cells are made by a
// [CellBuilder], are read-only afterwards and safe for concurrent use.
type Cell struct {
	// Name identifies the cell within its program, in metrics and logs.
	Name string
	// MaxRows is the largest batch worth running; 0 takes the runtime's limit.
	MaxRows int
	// LookAhead is how many batches of this cell an executor may be given at
	// once: more than one only for a cell without outputs, whose successors do
	// not depend on its results. 0 means 1.
	LookAhead int

	ops    []Op
	widths []int
	args   int
	work   int64
	index  int // position in the program, set by NewProgram
}

// Ops returns the operations in execution order. The slice is the cell's own.
func (c *Cell) Ops() []Op { return c.ops }

// Values returns the number of values; they are numbered from 0.
func (c *Cell) Values() int { return len(c.widths) }

// Width returns the width of a value in float32 elements.
func (c *Cell) Width(v Value) int { return c.widths[v] }

// Args returns how many arguments a node of the cell has.
func (c *Cell) Args() int { return c.args }

// hasOutput tells whether nodes of the cell report anything.
func (c *Cell) hasOutput() bool {
	for _, op := range c.ops {
		switch op.(type) {
		case Greedy, Expose:
			return true
		}
	}
	return false
}

// Work estimates what a row costs: its multiplications, and its values, each of
// which is written once. What attention reads depends on the row and is not in
// it.
func (c *Cell) Work() int64 { return c.work }

// estimate computes the cell's work.
func (c *Cell) estimate() int64 {
	n := 0
	for _, w := range c.widths {
		n += w
	}
	product := func(matrices ...*Matrix) {
		for _, m := range matrices {
			n += m.Rows * m.Cols
		}
	}
	for _, op := range c.ops {
		switch op := op.(type) {
		case Linear:
			product(op.Weight)
		case LSTM:
			product(op.Input, op.Recurrent)
		case GRU:
			product(op.Input, op.Recurrent)
		case TreeLeaf:
			product(op.Weight)
		case TreeNode:
			product(op.Weight)
		}
	}
	return int64(n)
}

// Index returns the cell's position in its program.
func (c *Cell) Index() int { return c.index }

// CellBuilder builds a [Cell], checking widths as it goes. The first error
// sticks, later calls do nothing useful but are safe, and Build returns it.
type CellBuilder struct {
	cell   *Cell
	layout *Layout
	err    error
}

// NewCell starts a cell whose nodes take args arguments and whose state lives
// in layout.
func NewCell(name string, layout *Layout, args int) *CellBuilder {
	b := &CellBuilder{cell: &Cell{Name: name, args: args}, layout: layout}
	if args < 0 || args > MaxArgs {
		b.fail("%d arguments, at most %d", args, MaxArgs)
	}
	return b
}

// Build returns the finished cell, or the first error met.
func (b *CellBuilder) Build() (*Cell, error) {
	if b.err == nil && len(b.cell.ops) == 0 {
		b.fail("no operations")
	}
	if b.err != nil {
		return nil, b.err
	}
	b.cell.work = b.cell.estimate()
	return b.cell, nil
}

// Embed looks up a row of table. See [Embed].
func (b *CellBuilder) Embed(table *Matrix, id Arg) Value {
	b.checkMatrix(table)
	b.checkArg(id)
	out := b.value(table.Cols)
	b.add(Embed{Table: table, ID: id, Out: out})
	return out
}

// Load gathers an entry of a field. See [Load].
func (b *CellBuilder) Load(f FieldID, index Arg) Value {
	b.checkArg(index)
	out := b.value(b.layout.Field(f).Width)
	b.add(Load{Field: f, Index: index, Out: out})
	return out
}

// Store scatters v to an entry of a field, from the given column on. See [Store].
func (b *CellBuilder) Store(f FieldID, index Arg, column int, v Value) {
	b.checkArg(index)
	field := b.layout.Field(f)
	if w := b.cell.widths[v]; column < 0 || column+w > field.Width {
		b.fail("store of %d values at column %d of field %s, which has %d", w, column, field.Name, field.Width)
	}
	b.add(Store{Field: f, Index: index, Column: column, In: v})
}

// Linear multiplies the concatenation of in by weight. See [Linear].
func (b *CellBuilder) Linear(weight *Matrix, bias []float32, act Activation, in ...Value) Value {
	b.checkMatrix(weight)
	width := 0
	for _, v := range in {
		width += b.cell.widths[v]
	}
	if width != weight.Cols {
		b.fail("%s has %d columns, its input %d", weight.Name, weight.Cols, width)
	}
	if bias != nil {
		b.checkLen(weight.Name+" bias", len(bias), weight.Rows)
	}
	out := b.value(weight.Rows)
	b.add(Linear{Weight: weight, Bias: bias, In: in, Act: act, Out: out})
	return out
}

// LSTM runs one LSTM step and returns the new hidden and cell state. See [LSTM].
func (b *CellBuilder) LSTM(input, recurrent *Matrix, bias []float32, x, h, c Value) (outH, outC Value) {
	hidden := b.recurrent(4, input, recurrent, x, h)
	b.checkLen("cell state", b.cell.widths[c], hidden)
	b.checkLen(input.Name+" bias", len(bias), 4*hidden)
	outH, outC = b.value(hidden), b.value(hidden)
	b.add(LSTM{Input: input, Recurrent: recurrent, Bias: bias, X: x, H: h, C: c, OutH: outH, OutC: outC})
	return outH, outC
}

// GRU runs one GRU step and returns the new hidden state. See [GRU].
func (b *CellBuilder) GRU(input, recurrent *Matrix, inputBias, recurrentBias []float32, x, h Value) Value {
	hidden := b.recurrent(3, input, recurrent, x, h)
	b.checkLen(input.Name+" bias", len(inputBias), 3*hidden)
	b.checkLen(recurrent.Name+" bias", len(recurrentBias), 3*hidden)
	out := b.value(hidden)
	b.add(GRU{Input: input, Recurrent: recurrent, InputBias: inputBias, RecurrentBias: recurrentBias, X: x, H: h, OutH: out})
	return out
}

// Attend reads memory by attention. See [Attend].
func (b *CellBuilder) Attend(query Value, memory FieldID, length Arg) Value {
	b.checkArg(length)
	width := b.layout.Field(memory).Width
	b.checkLen("attention query", b.cell.widths[query], width)
	out := b.value(width)
	b.add(Attend{Query: query, Memory: memory, Length: length, Out: out})
	return out
}

// Add sums two values. See [Add].
func (b *CellBuilder) Add(x, y Value) Value {
	b.checkLen("addend", b.cell.widths[y], b.cell.widths[x])
	out := b.value(b.cell.widths[x])
	b.add(Add{A: x, B: y, Out: out})
	return out
}

// Mean divides sum by the argument count. See [Mean].
func (b *CellBuilder) Mean(sum Value, count Arg) Value {
	b.checkArg(count)
	out := b.value(b.cell.widths[sum])
	b.add(Mean{Sum: sum, Count: count, Out: out})
	return out
}

// TreeLeaf computes a leaf of a tree. See [TreeLeaf].
func (b *CellBuilder) TreeLeaf(weight *Matrix, bias []float32, x Value) (outH, outC Value) {
	b.checkMatrix(weight)
	hidden := weight.Rows / 3
	b.checkLen(weight.Name+" rows", weight.Rows, 3*hidden)
	b.checkLen(weight.Name+" columns", weight.Cols, b.cell.widths[x])
	b.checkLen(weight.Name+" bias", len(bias), weight.Rows)
	outH, outC = b.value(hidden), b.value(hidden)
	b.add(TreeLeaf{Weight: weight, Bias: bias, X: x, OutH: outH, OutC: outC})
	return outH, outC
}

// TreeNode computes an inner node of a tree from its children's states. See
// [TreeNode].
func (b *CellBuilder) TreeNode(weight *Matrix, bias []float32, leftH, leftC, rightH, rightC Value) (outH, outC Value) {
	b.checkMatrix(weight)
	hidden := b.cell.widths[leftH]
	for _, v := range []Value{leftC, rightH, rightC} {
		b.checkLen("child state", b.cell.widths[v], hidden)
	}
	b.checkLen(weight.Name+" rows", weight.Rows, 5*hidden)
	b.checkLen(weight.Name+" columns", weight.Cols, 2*hidden)
	b.checkLen(weight.Name+" bias", len(bias), weight.Rows)
	outH, outC = b.value(hidden), b.value(hidden)
	b.add(TreeNode{
		Weight: weight, Bias: bias, LeftH: leftH, LeftC: leftC, RightH: rightH, RightC: rightC, OutH: outH, OutC: outC,
	})
	return outH, outC
}

// Expose makes v the node's output values. See [Expose].
func (b *CellBuilder) Expose(v Value) { b.add(Expose{In: v}) }

// Greedy makes the most probable token the node's output. See [Greedy].
func (b *CellBuilder) Greedy(logits Value) {
	b.add(Greedy{Logits: logits})
}

// recurrent checks the matrices of a recurrent step with the given number of
// gates and returns its hidden size.
func (b *CellBuilder) recurrent(gates int, input, recurrent *Matrix, x, h Value) int {
	b.checkMatrix(input)
	b.checkMatrix(recurrent)
	hidden := b.cell.widths[h]
	b.checkLen(input.Name+" rows", input.Rows, gates*hidden)
	b.checkLen(input.Name+" columns", input.Cols, b.cell.widths[x])
	b.checkLen(recurrent.Name+" rows", recurrent.Rows, gates*hidden)
	b.checkLen(recurrent.Name+" columns", recurrent.Cols, hidden)
	return hidden
}

func (b *CellBuilder) value(width int) Value {
	b.cell.widths = append(b.cell.widths, width)
	return Value(len(b.cell.widths) - 1)
}

func (b *CellBuilder) add(op Op) { b.cell.ops = append(b.cell.ops, op) }

func (b *CellBuilder) checkArg(a Arg) {
	if a != Zero && (a < 0 || int(a) >= b.cell.args) {
		b.fail("argument %d of %d", a, b.cell.args)
	}
}

func (b *CellBuilder) checkMatrix(m *Matrix) {
	if len(m.Data) != m.Rows*m.Cols || m.Rows <= 0 || m.Cols <= 0 {
		b.fail("%s is %d x %d with %d values", m.Name, m.Rows, m.Cols, len(m.Data))
	}
}

func (b *CellBuilder) checkLen(what string, got, want int) {
	if got != want {
		b.fail("%s: %d values, want %d", what, got, want)
	}
}

func (b *CellBuilder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("cell %s: %s", b.cell.Name, fmt.Sprintf(format, args...))
	}
}

// Program is what a model is to the runtime: the state layout of its sequences
// and the cells that work on it. It is read-only and safe for concurrent use.
type Program struct {
	Name   string
	Layout *Layout
	Cells  []*Cell
	// Weights is how a backend is to store the weights.
	Weights Weights
}

// WithWeights returns the same program, its cells included, with another
// weight type.
func (p *Program) WithWeights(w Weights) *Program {
	out := *p
	out.Weights = w
	return &out
}

// NewProgram collects cells that share a layout and numbers them. A cell
// belongs to one program.
func NewProgram(name string, layout *Layout, cells ...*Cell) (*Program, error) {
	if len(cells) == 0 {
		return nil, errors.New("program " + name + " has no cells")
	}
	for i, c := range cells {
		c.index = i
	}
	return &Program{Name: name, Layout: layout, Cells: cells}, nil
}
