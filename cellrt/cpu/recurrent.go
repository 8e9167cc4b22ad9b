package cpu

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// inputPart begins the chains of a product over [x; h]: with the bias and x,
// or, when x is a row of a small table, with what these give for that row.
type inputPart struct {
	weight *kernel.Matrix // its first width inputs are x
	bias   []float32
	x      cellrt.Value
	width  int

	folded bool
	id     cellrt.Arg
	table  []float32 // Padded(weight.N) values for each row of the embedding
}

func (p *inputPart) run(b *batch, out kernel.Rows) {
	n := len(b.rows)
	if !p.folded {
		out.Fill(n, p.bias)
		b.accumulate(p.weight, out, b.value(p.x), 0, p.width)
		return
	}
	size := kernel.Padded(p.weight.N)
	for r := range n {
		id := b.arg(r, p.id)
		copy(out.Row(r, size), p.table[id*size:(id+1)*size])
	}
}

// inputParts returns the beginnings of the products of x with the weights,
// folded when x is an embedding and all their tables together are small.
func (c *cellCompiler) inputParts(x cellrt.Value, weights []*kernel.Matrix, biases [][]float32) []inputPart {
	embed, fold := c.embeds[x]
	if fold {
		size := int64(0)
		for _, w := range weights {
			size += int64(kernel.Padded(w.N)) * 4
		}
		fold = int64(embed.Table.Rows) <= c.foldBytes/size
	}
	if fold {
		c.uses[x]--
	}
	parts := make([]inputPart, len(weights))
	for i, w := range weights {
		p := inputPart{weight: w, bias: biases[i], x: x, width: c.cell.Width(x)}
		if fold {
			p.folded, p.id = true, embed.ID
			p.table = c.keep(foldTable(embed.Table, w, biases[i]))
			p.bias = nil
		} else {
			c.keep(p.bias)
		}
		parts[i] = p
	}
	return parts
}

// foldTable computes the beginning of w's chains for each row of an embedding
// table.
func foldTable(table *cellrt.Matrix, w *kernel.Matrix, bias []float32) []float32 {
	stride := kernel.Padded(w.N)
	out := kernel.Rows{Data: make([]float32, table.Rows*stride), Stride: stride}
	out.Fill(table.Rows, bias)
	kernel.Accumulate(w, out, kernel.Rows{Data: table.Data, Stride: table.Cols}, table.Rows, 0, table.Cols)
	return out.Data
}

// lstmStep is one LSTM step.
type lstmStep struct {
	op     cellrt.LSTM
	hidden int
	input  inputPart
	gates  cellrt.Value
}

func (c *cellCompiler) lstm(op cellrt.LSTM) step {
	hidden := c.cell.Width(op.H)
	w := c.pack(packKey{input: op.Input, recurrent: op.Recurrent}, func() *packedWeights {
		return &packedWeights{main: packBoth(op.Input, op.Recurrent, 0, 4*hidden)}
	})
	parts := c.inputParts(op.X, []*kernel.Matrix{w.main}, [][]float32{op.Bias})
	return &lstmStep{op: op, hidden: hidden, input: parts[0], gates: c.temporary(4 * hidden)}
}

func (s *lstmStep) run(b *batch) {
	gates := b.value(s.gates)
	s.input.run(b, gates)
	b.accumulate(s.input.weight, gates, b.value(s.op.H), s.input.width, s.hidden)
	b.eachRow(s, 5*s.hidden*activationWork)
}

// rows applies the gates.
func (s *lstmStep) rows(b *batch, from, to int) {
	gates, c := b.value(s.gates), b.value(s.op.C)
	outH, outC := b.value(s.op.OutH), b.value(s.op.OutC)
	for r := from; r < to; r++ {
		kernel.LSTM(gates.Row(r, 4*s.hidden), c.Row(r, s.hidden), outH.Row(r, s.hidden), outC.Row(r, s.hidden))
	}
}

// gruStep is one GRU step.
type gruStep struct {
	op              cellrt.GRU
	hidden          int
	inputRZ, inputN inputPart
	hiddenN         *kernel.Matrix
	biasN           []float32 // of the recurrent part of the candidate
	rz, nx, nh      cellrt.Value
}

func (c *cellCompiler) gru(op cellrt.GRU) step {
	hidden := c.cell.Width(op.H)
	w := c.pack(packKey{input: op.Input, recurrent: op.Recurrent}, func() *packedWeights {
		in, rec := op.Input, op.Recurrent
		return &packedWeights{
			main:            packBoth(in, rec, 0, 2*hidden),
			candidateInput:  kernel.Pack(hidden, [][]float32{in.Data[2*hidden*in.Cols:]}, []int{in.Cols}),
			candidateHidden: kernel.Pack(hidden, [][]float32{rec.Data[2*hidden*rec.Cols:]}, []int{rec.Cols}),
		}
	})
	biasRZ := make([]float32, 2*hidden)
	for i := range biasRZ {
		biasRZ[i] = op.InputBias[i] + op.RecurrentBias[i]
	}
	parts := c.inputParts(op.X, []*kernel.Matrix{w.main, w.candidateInput}, [][]float32{biasRZ, op.InputBias[2*hidden:]})
	return &gruStep{
		op: op, hidden: hidden, inputRZ: parts[0], inputN: parts[1],
		hiddenN: w.candidateHidden, biasN: c.keep(op.RecurrentBias[2*hidden:]),
		rz: c.temporary(2 * hidden), nx: c.temporary(hidden), nh: c.temporary(hidden),
	}
}

func (s *gruStep) run(b *batch) {
	n := len(b.rows)
	rz, nx, nh := b.value(s.rz), b.value(s.nx), b.value(s.nh)
	h := b.value(s.op.H)
	s.inputRZ.run(b, rz)
	b.accumulate(s.inputRZ.weight, rz, h, s.inputRZ.width, s.hidden)
	s.inputN.run(b, nx)
	nh.Fill(n, s.biasN)
	b.accumulate(s.hiddenN, nh, h, 0, s.hidden)
	b.eachRow(s, 3*s.hidden*activationWork)
}

// rows applies the gates.
func (s *gruStep) rows(b *batch, from, to int) {
	rz, nx, nh := b.value(s.rz), b.value(s.nx), b.value(s.nh)
	h, out := b.value(s.op.H), b.value(s.op.OutH)
	for r := from; r < to; r++ {
		kernel.GRU(rz.Row(r, 2*s.hidden), nx.Row(r, s.hidden), nh.Row(r, s.hidden), h.Row(r, s.hidden), out.Row(r, s.hidden))
	}
}

// packBoth packs the given rows of the input and the recurrent matrix as one
// matrix over [x; h].
func packBoth(input, recurrent *cellrt.Matrix, from, to int) *kernel.Matrix {
	return kernel.Pack(to-from, [][]float32{
		input.Data[from*input.Cols : to*input.Cols],
		recurrent.Data[from*recurrent.Cols : to*recurrent.Cols],
	}, []int{input.Cols, recurrent.Cols})
}
