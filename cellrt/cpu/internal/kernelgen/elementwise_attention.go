package main

// emitAttention writes the routines of attention. A sum in 16 lanes is one
// vector with AVX-512 and two with AVX2.
func emitAttention(u *unit, i isa) {
	emitDots(u, i)
	emitWeigh(u, i)
	emitExps(u, i)
	emitDivide(u, i)
	emitAddVector(u, i)
}

// sumLanes is how many lanes the sums over a vector have.
const sumLanes = 16

// parts returns how many vectors hold the lanes of a sum.
func (i isa) parts() int { return sumLanes / i.lanes() }

// xmm and ymm return the lower part of a vector register.
func xmm(reg string) string { return "X" + reg[1:] }
func ymm(reg string) string { return "Y" + reg[1:] }

// upper128 copies the second 16 bytes of a register to another.
func (r *routine) upper128(from, to string) {
	instruction := "VEXTRACTF128"
	if r.registers == 32 {
		instruction = "VEXTRACTF32X4" // the other knows 16 registers
	}
	r.ins("%s $1, %s, %s", instruction, ymm(from), xmm(to))
}

// addLanes writes the sum of the lanes of float32 vectors, added in halves,
// to the lowest element of the first of them, using another register.
func (r *routine) addLanes(sums []string, spare string) {
	s := sums[0]
	if len(sums) == 2 {
		r.ins("VADDPS %s, %s, %s", sums[1], s, s)
	} else {
		r.ins("VEXTRACTF32X8 $1, %s, %s", s, ymm(spare))
		r.ins("VADDPS %s, %s, %s", ymm(spare), ymm(s), ymm(s))
	}
	r.upper128(s, spare)
	r.ins("VADDPS %s, %s, %s", xmm(spare), xmm(s), xmm(s))
	r.ins("VMOVHLPS %[2]s, %[1]s, %[1]s", xmm(spare), xmm(s))
	r.ins("VADDPS %s, %s, %s", xmm(spare), xmm(s), xmm(s))
	r.ins("VMOVSHDUP %s, %s", xmm(s), xmm(spare))
	r.ins("VADDSS %s, %s, %s", xmm(spare), xmm(s), xmm(s))
}

// emitWeigh writes the weighted sum of entries: a group of columns stays in
// registers while all entries pass. CX counts the columns, R8 the entries.
func emitWeigh(u *unit, i isa) {
	r := u.routine(i, "weigh", "weigh"+i.name+" adds the entries of memory to out, each times its weight.",
		[]param{{"out", "[]float32"}, {"memory", "[]float32"}, {"weights", "[]float32"}}, nil)
	r.ins("MOVQ %s, DI", r.arg("out"))
	r.ins("MOVQ %s, CX", r.arg("len out"))
	r.ins("MOVQ %s, SI", r.arg("memory"))
	r.ins("MOVQ CX, DX")
	r.ins("SHLQ $2, DX")
	r.weighColumns("wide", 8, "vector")
	r.perVector("", func() { r.weighGroup("one"+r.mask, 1) })
}

// weighColumns writes the loop over groups of whole vectors.
func (r *routine) weighColumns(name string, vectors int, next string) {
	r.label(name)
	r.ins("CMPQ CX, $%d", vectors*r.lanes())
	r.ins("JLT %s", next)
	r.weighGroup(name, vectors)
	r.ins("SUBQ $%d, CX", vectors*r.lanes())
	r.ins("JMP %s", name)
}

// weighGroup writes the sums of a group of vectors and moves DI and SI on.
func (r *routine) weighGroup(name string, vectors int) {
	sums := r.takeAll(vectors)
	p, y := r.take(), r.take()
	s := r.stream(0)
	for v, sum := range sums {
		s.load(at(v*r.bytes, "DI"), sum)
	}
	s.ins("MOVQ SI, R10")
	s.ins("MOVQ %s, R9", r.arg("weights"))
	s.ins("MOVQ %s, R8", r.arg("len weights"))
	r.interleave(s)
	r.label(name + "Entry")
	r.ins("TESTQ R8, R8")
	r.ins("JEQ %sStore", name)
	r.ins("VBROADCASTSS (R9), %s", p)
	s = r.stream(0)
	for v, sum := range sums {
		address := at(v*r.bytes, "R10")
		if r.mask != "" {
			s.load(address, y)
			address = y
		}
		s.ins("VFMADD231PS %s, %s, %s", address, p, sum)
	}
	s.ins("ADDQ $4, R9")
	s.ins("ADDQ DX, R10")
	s.ins("DECQ R8")
	s.ins("JMP %sEntry", name)
	r.interleave(s)
	r.label(name + "Store")
	s = r.stream(0)
	for v, sum := range sums {
		s.store(sum, at(v*r.bytes, "DI"))
	}
	s.ins("ADDQ $%d, DI", vectors*r.bytes)
	s.ins("ADDQ $%d, SI", vectors*r.bytes)
	r.interleave(s)
	r.give(sums...)
	r.give(p, y)
}

// emitExps writes the exponentials of a softmax and their sum.
func emitExps(u *unit, i isa) {
	r := u.routine(i, "exps", "exps"+i.name+" replaces the elements by e^(v[i]-largest) and returns their sum in\nlanes.",
		[]param{{"v", "[]float32"}, {"largest", "float32"}}, []param{{"sum", "float32"}})
	r.ins("MOVQ %s, SI", r.arg("v"))
	r.ins("MOVQ %s, CX", r.arg("len v"))
	largest := r.take()
	r.ins("VBROADCASTSS %s, %s", r.arg("largest"), largest)
	r.holdFor512(powerConstants + "expLow expHigh")
	sums := r.takeAll(i.parts())
	for _, s := range sums {
		r.zero(s)
	}
	r.perLanes("SI", func(part int) *stream {
		s := r.stream(4)
		y := s.expBelow(at(part*r.bytes, "SI"), largest)
		s.store(y, at(part*r.bytes, "SI"))
		s.keepMasked(y)
		s.ins("VADDPS %[1]s, %[2]s, %[2]s", y, sums[part])
		s.give(y)
		return s
	})
	r.addLanes(sums, r.take())
	r.ins("VMOVSS %s, %s", xmm(sums[0]), r.arg("sum"))
	r.ret()
}

// expBelow writes e^(x-largest) for elements in memory and returns the
// register of the result.
func (s *stream) expBelow(address, largest string) string {
	x := s.take()
	s.load(address, x)
	s.ins("VSUBPS %s, %s, %s", largest, x, x)
	bounded := s.clamp(x, "expLow", "expHigh")
	s.give(x)
	return s.exp(bounded, false)
}

// perLanes writes body for each 16 of CX elements, once for each part of them,
// and for the rest with masks.
func (r *routine) perLanes(pointer string, body func(part int) *stream) {
	all := func() {
		var streams []*stream
		for p := range r.parts() {
			streams = append(streams, body(p))
		}
		r.interleave(streams...)
	}
	r.label("lanes")
	r.ins("CMPQ CX, $%d", sumLanes)
	r.ins("JLT tail")
	all()
	r.ins("ADDQ $%d, %s", 4*sumLanes, pointer)
	r.ins("SUBQ $%d, CX", sumLanes)
	r.ins("JMP lanes")
	r.label("tail")
	r.ins("TESTQ CX, CX")
	r.ins("JEQ sum")
	if r.parts() == 1 {
		r.setMask()
		all()
	} else {
		second := r.take()
		r.setMask(second)
		first := r.mask
		for p, mask := range []string{first, second} {
			r.mask = mask
			r.interleave(body(p))
		}
		r.give(first, second)
	}
	r.mask = ""
	r.label("sum")
}

// emitDivide writes the division of a vector by a number.
func emitDivide(u *unit, i isa) {
	r := u.routine(i, "divide", "divide"+i.name+" divides the elements.", []param{{"v", "[]float32"}, {"by", "float32"}}, nil)
	r.ins("MOVQ %s, SI", r.arg("v"))
	r.ins("MOVQ %s, CX", r.arg("len v"))
	by, x := r.take(), r.take()
	r.ins("VBROADCASTSS %s, %s", r.arg("by"), by)
	r.perVector("SI", func() {
		s := r.stream(0)
		s.load("(SI)", x)
		s.ins("VDIVPS %[1]s, %[2]s, %[2]s", by, x)
		s.store(x, "(SI)")
		r.interleave(s)
	})
}

// emitAddVector writes the sum of two vectors.
func emitAddVector(u *unit, i isa) {
	r := u.routine(i, "addVector", "addVector"+i.name+" sets out to x + y.",
		[]param{{"out", "[]float32"}, {"x", "[]float32"}, {"y", "[]float32"}}, nil)
	r.ins("MOVQ %s, DI", r.arg("out"))
	r.ins("MOVQ %s, CX", r.arg("len out"))
	r.ins("MOVQ %s, SI", r.arg("x"))
	r.ins("MOVQ %s, DX", r.arg("y"))
	a, b := r.take(), r.take()
	r.perVector("DI SI DX", func() {
		s := r.stream(0)
		s.load("(SI)", a)
		s.load("(DX)", b)
		s.ins("VADDPS %[1]s, %[2]s, %[2]s", b, a)
		s.store(a, "(DI)")
		r.interleave(s)
	})
}
