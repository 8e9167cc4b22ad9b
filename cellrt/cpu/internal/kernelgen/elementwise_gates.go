package main

// emitGates writes the routines that turn pre-activations into new states, a
// vector of units at a time. The gates are DX bytes apart, starting at SI;
// whole vectors of them may be read, because they are whole panels.
func emitGates(u *unit, i isa) {
	emitLSTM(u, i)
	emitGRU(u, i)
	emitTreeLeaf(u, i)
	emitTreeNode(u, i)
}

// gateAddress returns the operand of a gate.
func gateAddress(n int) string {
	return []string{"(SI)", "(SI)(DX*1)", "(SI)(DX*2)", "(SI)(R12*1)", "(SI)(DX*4)"}[n]
}

// gates starts a gate routine. States are slices, pointed to by R8, R9, R10,
// R11 in their order.
func (u *unit) gates(i isa, name, doc string, states ...string) *routine {
	params := []param{{"gates", "[]float32"}, {"stride", "int"}}
	for _, s := range states {
		params = append(params, param{s, "[]float32"})
	}
	r := u.routine(i, name, name+i.name+" "+doc, params, nil)
	r.ins("MOVQ %s, SI", r.arg("gates"))
	r.ins("MOVQ %s, DX", r.arg("stride"))
	r.ins("SHLQ $2, DX")
	r.ins("LEAQ (DX)(DX*2), R12")
	for i, s := range states {
		r.ins("MOVQ %s, %s", r.arg(s), stateRegister(i))
	}
	r.ins("MOVQ %s, CX", r.arg("len "+states[0]))
	r.hold("signBit")
	r.holdFor512(sigmoidConstants + tanhConstants)
	return r
}

func stateRegister(n int) string { return []string{"R8", "R9", "R10", "R11"}[n] }

// sigmoidOf starts the sigmoid of a gate and returns where its result will be.
func (r *routine) sigmoidOf(gate int) (*stream, string) {
	s := r.stream(4)
	return s, s.sigmoid(gateAddress(gate))
}

// tanhOf starts the hyperbolic tangent of a register, which it takes over.
func (r *routine) tanhOf(x string) (*stream, string) {
	s := r.stream(4)
	y := s.tanh(x)
	s.give(x)
	return s, y
}

// tanhOfGate starts the hyperbolic tangent of a gate.
func (r *routine) tanhOfGate(gate int) (*stream, string) {
	x := r.take()
	r.ins("VMOVUPS %s, %s", gateAddress(gate), x)
	return r.tanhOf(x)
}

// readState loads a part of a state into a new register.
func (r *routine) readState(n int) string {
	s := r.stream(1)
	x := s.take()
	s.load(at(0, stateRegister(n)), x)
	r.interleave(s)
	return x
}

// writeState stores a register to a part of a state.
func (r *routine) writeState(reg string, n int) {
	s := r.stream(0)
	s.store(reg, at(0, stateRegister(n)))
	r.interleave(s)
}

// emitLSTM writes [i f g o], c -> cOut, h.
func emitLSTM(u *unit, i isa) {
	r := u.gates(i, "lstm", "turns the pre-activations [i f g o] and c into cOut and h.", "c", "cOut", "h")
	r.perVector("SI R8 R9 R10", func() {
		sf, f := r.sigmoidOf(1)
		si, in := r.sigmoidOf(0)
		sg, g := r.tanhOfGate(2)
		r.interleave(sf, si, sg)
		c := r.readState(0)
		r.ins("VMULPS %s, %s, %s", c, f, c)
		r.ins("VFMADD231PS %s, %s, %s", in, g, c)
		r.give(f, in, g)
		r.writeState(c, 1)
		r.finish(3, c, 2)
	})
}

// finish writes h = sigmoid(gate) * tanh(c), taking over the register c.
func (r *routine) finish(gate int, c string, h int) {
	so, o := r.sigmoidOf(gate)
	sc, y := r.tanhOf(c)
	r.interleave(so, sc)
	r.ins("VMULPS %[1]s, %[2]s, %[2]s", o, y)
	r.writeState(y, h)
	r.give(o, y)
}

// emitGRU writes [nx r z nh], h -> hOut.
func emitGRU(u *unit, i isa) {
	r := u.gates(i, "gru", "turns the pre-activations [nx r z nh] and h into hOut.", "h", "hOut")
	r.perVector("SI R8 R9", func() {
		sr, reset := r.sigmoidOf(1)
		sz, update := r.sigmoidOf(2)
		r.interleave(sr, sz)
		x := r.take()
		r.ins("VMOVUPS %s, %s", gateAddress(0), x)
		r.ins("VFMADD231PS %s, %s, %s", gateAddress(3), reset, x)
		r.give(reset)
		sn, candidate := r.tanhOf(x)
		r.interleave(sn)
		h := r.readState(0)
		r.ins("VSUBPS %s, %s, %s", candidate, h, h)
		r.ins("VFMADD213PS %s, %s, %s", candidate, update, h)
		r.writeState(h, 1)
		r.give(update, candidate, h)
	})
}

// emitTreeLeaf writes [i o u] -> h, c.
func emitTreeLeaf(u *unit, i isa) {
	r := u.gates(i, "treeLeaf", "turns the pre-activations [i o u] into h and c.", "h", "c")
	r.perVector("SI R8 R9", func() {
		si, in := r.sigmoidOf(0)
		su, c := r.tanhOfGate(2)
		r.interleave(si, su)
		r.ins("VMULPS %[1]s, %[2]s, %[2]s", in, c)
		r.give(in)
		r.writeState(c, 1)
		r.finish(1, c, 0)
	})
}

// emitTreeNode writes [i o u left-f right-f], left, right -> h, c.
func emitTreeNode(u *unit, i isa) {
	r := u.gates(i, "treeNode", "turns the pre-activations [i o u left-f right-f] and the children's cells\n"+
		"left and right into h and c.", "left", "right", "h", "c")
	r.perVector("SI R8 R9 R10 R11", func() {
		si, in := r.sigmoidOf(0)
		su, c := r.tanhOfGate(2)
		sl, keepLeft := r.sigmoidOf(3)
		r.interleave(si, su, sl)
		r.ins("VMULPS %[1]s, %[2]s, %[2]s", in, c)
		r.give(in)
		left := r.readState(0)
		r.ins("VFMADD231PS %s, %s, %s", left, keepLeft, c)
		r.give(left, keepLeft)
		sr, keepRight := r.sigmoidOf(4)
		r.interleave(sr)
		right := r.readState(1)
		r.ins("VFMADD231PS %s, %s, %s", right, keepRight, c)
		r.give(right, keepRight)
		r.writeState(c, 3)
		r.finish(1, c, 2)
	})
}
