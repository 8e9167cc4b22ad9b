package kernel

// The routines below turn the pre-activations of a row into new states. They
// work on one group of panels (see [Table.Interleaved]): the gates lie Width
// values apart, and the states hold at most Width units. States may be shorter
// than the panels, and an input may be the same slice as an output.

// LSTM turns the pre-activations [i f g o] and the cell state c into the new
// cell state cOut and the hidden state h.
func (t *Table) LSTM(gates, c, cOut, h []float32) {
	t.checkGates(gates, 4, len(h), len(c), len(cOut))
	t.lstm(gates, t.Width, c, cOut, h)
}

// GRU turns the pre-activations [nx r z nh] and the hidden state h into the
// new hidden state hOut. nx and nh are the parts of the candidate that come
// from the input and from the state.
func (t *Table) GRU(gates, h, hOut []float32) {
	t.checkGates(gates, 4, len(h), len(hOut), len(h))
	t.gru(gates, t.Width, h, hOut)
}

// TreeLeaf turns the pre-activations [i o u] of a leaf into its hidden state h
// and cell state c.
func (t *Table) TreeLeaf(gates, h, c []float32) {
	t.checkGates(gates, 3, len(h), len(c), len(c))
	t.treeLeaf(gates, t.Width, h, c)
}

// TreeNode turns the pre-activations [i o u left-f right-f] of an inner node
// and the cell states of its children into its hidden state h and cell state
// c.
func (t *Table) TreeNode(gates, left, right, h, c []float32) {
	t.checkGates(gates, 5, len(h), len(left), len(right))
	t.checkGates(gates, 5, len(h), len(c), len(c))
	t.treeNode(gates, t.Width, left, right, h, c)
}

// checkGates panics unless the states have one length, which the kernels rely
// on for their bounds.
func (t *Table) checkGates(gates []float32, count, units, a, b int) {
	if units > t.Width || a != units || b != units || len(gates) < count*t.Width {
		panic("kernel: states of different lengths, or gates too short for them")
	}
}

func lstm(gates []float32, stride int, c, cOut, h []float32) {
	for j := range h {
		keep := float32(sigmoid(gates[stride+j]) * c[j])
		next := fma(sigmoid(gates[j]), tanh(gates[2*stride+j]), keep)
		cOut[j] = next
		h[j] = float32(sigmoid(gates[3*stride+j]) * tanh(next))
	}
}

func gru(gates []float32, stride int, h, hOut []float32) {
	for j := range hOut {
		candidate := tanh(fma(sigmoid(gates[stride+j]), gates[3*stride+j], gates[j]))
		update := sigmoid(gates[2*stride+j])
		hOut[j] = fma(update, h[j]-candidate, candidate)
	}
}

func treeLeaf(gates []float32, stride int, h, c []float32) {
	for j := range h {
		next := float32(sigmoid(gates[j]) * tanh(gates[2*stride+j]))
		c[j] = next
		h[j] = float32(sigmoid(gates[stride+j]) * tanh(next))
	}
}

func treeNode(gates []float32, stride int, left, right, h, c []float32) {
	for j := range h {
		next := float32(sigmoid(gates[j]) * tanh(gates[2*stride+j]))
		next = fma(sigmoid(gates[3*stride+j]), left[j], next)
		next = fma(sigmoid(gates[4*stride+j]), right[j], next)
		c[j] = next
		h[j] = float32(sigmoid(gates[stride+j]) * tanh(next))
	}
}
