package kernel

// LSTM turns the pre-activations of a row, [i f g o] of hidden values each,
// into the new hidden state h and cell state cOut. All but gates have length
// hidden.
func LSTM(gates, c, h, cOut []float32) {
	n := len(h)
	gi, gf, gg, out := gates[:n], gates[n:2*n], gates[2*n:3*n], gates[3*n:4*n]
	c, cOut = c[:n], cOut[:n]
	for j := range h {
		keep := float32(Sigmoid(gf[j]) * c[j])
		next := float32(Sigmoid(gi[j])*Tanh(gg[j])) + keep
		cOut[j] = next
		h[j] = Sigmoid(out[j]) * Tanh(next)
	}
}

// GRU turns the pre-activations of a row into the new hidden state hOut: rz
// holds those of the reset and the update gate, nx and nh the parts of the
// candidate that come from the input and from the state.
func GRU(rz, nx, nh, h, hOut []float32) {
	n := len(hOut)
	r, z := rz[:n], rz[n:2*n]
	nx, nh, h = nx[:n], nh[:n], h[:n]
	for j := range hOut {
		candidate := Tanh(float32(Sigmoid(r[j])*nh[j]) + nx[j])
		update := Sigmoid(z[j])
		hOut[j] = float32((1-update)*candidate) + float32(update*h[j])
	}
}

// TreeLeaf turns the pre-activations of a leaf, [i o u] of hidden values each,
// into its hidden state h and cell state c.
func TreeLeaf(gates, h, c []float32) {
	n := len(h)
	gi, out, gu := gates[:n], gates[n:2*n], gates[2*n:3*n]
	c = c[:n]
	for j := range h {
		next := Sigmoid(gi[j]) * Tanh(gu[j])
		c[j] = next
		h[j] = Sigmoid(out[j]) * Tanh(next)
	}
}

// TreeNode turns the pre-activations of an inner node, [i o u left-f right-f]
// of hidden values each, and the cell states of its children into its hidden
// state h and cell state c.
func TreeNode(gates, left, right, h, c []float32) {
	n := len(h)
	gi, out, gu := gates[:n], gates[n:2*n], gates[2*n:3*n]
	fl, fr := gates[3*n:4*n], gates[4*n:5*n]
	left, right, c = left[:n], right[:n], c[:n]
	for j := range h {
		next := float32(Sigmoid(gi[j])*Tanh(gu[j])) + float32(Sigmoid(fl[j])*left[j])
		next += float32(Sigmoid(fr[j]) * right[j])
		c[j] = next
		h[j] = Sigmoid(out[j]) * Tanh(next)
	}
}
