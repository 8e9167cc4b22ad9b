package main

import "fmt"

// emitNeonGates writes the routines that turn pre-activations into new states.
// R3 to R7 point to the gates, R8 to R11 to the states in their order; each is
// read or written once for a vector of units.
func emitNeonGates(u *unit) {
	emitNeonLSTM(u)
	emitNeonGRU(u)
	emitNeonTreeLeaf(u)
	emitNeonTreeNode(u)
}

func neonGate(n int) string  { return fmt.Sprintf("R%d", 3+n) }
func neonState(n int) string { return fmt.Sprintf("R%d", 8+n) }

// neonGates starts a gate routine.
func neonGates(u *unit, name, doc string, gates int, states ...string) *neonRoutine {
	params := []param{{"gates", "[]float32"}, {"stride", "int"}}
	for _, s := range states {
		params = append(params, param{s, "[]float32"})
	}
	r := neonStart(u, name, doc, params, nil)
	r.ins("MOVD %s, %s", r.arg("gates"), neonGate(0))
	r.ins("MOVD %s, R1", r.arg("stride"))
	for g := 1; g < gates; g++ {
		r.ins("ADD R1<<2, %s, %s", neonGate(g-1), neonGate(g))
	}
	for i, s := range states {
		r.ins("MOVD %s, %s", r.arg(s), neonState(i))
	}
	r.ins("MOVD %s, R2", r.arg("len "+states[0]))
	r.hold(neonExp + "two tanhHigh signBit ")
	return r
}

// sigmoidOf starts the sigmoid of a gate and returns where its result will be.
func (r *neonRoutine) sigmoidOf(gate int) (neonStream, string) {
	s := r.stream(4)
	x := s.take()
	s.load(neonGate(gate), x)
	s.sigmoid(x)
	return s, x
}

// tanhOf starts the hyperbolic tangent of a register, which it takes over.
func (r *neonRoutine) tanhOf(x string) (neonStream, string) {
	s := r.stream(4)
	y := s.tanh(x)
	s.give(x)
	return s, y
}

// tanhOfGate starts the hyperbolic tangent of a gate.
func (r *neonRoutine) tanhOfGate(gate int) (neonStream, string) {
	return r.tanhOf(r.read(neonGate(gate)))
}

// read loads the next elements of a gate or state into a new register.
func (r *neonRoutine) read(pointer string) string {
	s := r.stream(1)
	x := s.take()
	s.load(pointer, x)
	r.weave(s)
	return x
}

// write stores the next elements of a state.
func (r *neonRoutine) write(reg string, state int) {
	s := r.stream(0)
	s.store(reg, neonState(state))
	r.weave(s)
}

// then writes instructions that depend on each other.
func (r *neonRoutine) then(f func(s neonStream)) {
	s := r.stream(0)
	f(s)
	r.weave(s)
}

// finish writes h = sigmoid(gate) * tanh(c), taking over the register c.
func (r *neonRoutine) finish(gate int, c string, h int) {
	so, o := r.sigmoidOf(gate)
	sc, y := r.tanhOf(c)
	r.weave(so, sc)
	r.then(func(s neonStream) { s.do("fmul", o, y, y) })
	r.write(y, h)
	r.give(o, y)
}

// emitNeonLSTM writes [i f g o], c -> cOut, h.
func emitNeonLSTM(u *unit) {
	r := neonGates(u, "lstm", "turns the pre-activations [i f g o] and c into cOut and h.", 4, "c", "cOut", "h")
	r.perVector(func() {
		sf, f := r.sigmoidOf(1)
		si, in := r.sigmoidOf(0)
		sg, g := r.tanhOfGate(2)
		r.weave(sf, si, sg)
		c := r.read(neonState(0))
		r.then(func(s neonStream) {
			s.do("fmul", f, c, c)
			s.fused("VFMLA", in, g, c)
		})
		r.give(f, in, g)
		r.write(c, 1)
		r.finish(3, c, 2)
	})
}

// emitNeonGRU writes [nx r z nh], h -> hOut.
func emitNeonGRU(u *unit) {
	r := neonGates(u, "gru", "turns the pre-activations [nx r z nh] and h into hOut.", 4, "h", "hOut")
	r.perVector(func() {
		sr, reset := r.sigmoidOf(1)
		sz, update := r.sigmoidOf(2)
		r.weave(sr, sz)
		x, fromState := r.read(neonGate(0)), r.read(neonGate(3))
		r.then(func(s neonStream) { s.fused("VFMLA", reset, fromState, x) })
		r.give(reset, fromState)
		sn, candidate := r.tanhOf(x)
		r.weave(sn)
		h := r.read(neonState(0))
		r.then(func(s neonStream) {
			s.do("fsub", candidate, h, h)
			s.fused("VFMLA", update, h, candidate)
		})
		r.write(candidate, 1)
		r.give(update, candidate, h)
	})
}

// emitNeonTreeLeaf writes [i o u] -> h, c.
func emitNeonTreeLeaf(u *unit) {
	r := neonGates(u, "treeLeaf", "turns the pre-activations [i o u] into h and c.", 3, "h", "c")
	r.perVector(func() {
		si, in := r.sigmoidOf(0)
		su, c := r.tanhOfGate(2)
		r.weave(si, su)
		r.then(func(s neonStream) { s.do("fmul", in, c, c) })
		r.give(in)
		r.write(c, 1)
		r.finish(1, c, 0)
	})
}

// emitNeonTreeNode writes [i o u left-f right-f], left, right -> h, c.
func emitNeonTreeNode(u *unit) {
	r := neonGates(u, "treeNode", "turns the pre-activations [i o u left-f right-f] and the children's cells\n"+
		"left and right into h and c.", 5, "left", "right", "h", "c")
	r.perVector(func() {
		si, in := r.sigmoidOf(0)
		su, c := r.tanhOfGate(2)
		sl, keepLeft := r.sigmoidOf(3)
		r.weave(si, su, sl)
		r.then(func(s neonStream) { s.do("fmul", in, c, c) })
		r.give(in)
		left := r.read(neonState(0))
		r.then(func(s neonStream) { s.fused("VFMLA", left, keepLeft, c) })
		r.give(left, keepLeft)
		sr, keepRight := r.sigmoidOf(4)
		r.weave(sr)
		right := r.read(neonState(1))
		r.then(func(s neonStream) { s.fused("VFMLA", right, keepRight, c) })
		r.give(right, keepRight)
		r.write(c, 3)
		r.finish(1, c, 2)
	})
}
