package main

import "fmt"

// emitNeonAttention writes the routines of attention. A sum in 16 lanes is four
// vectors.
func emitNeonAttention(u *unit) {
	emitNeonDots(u)
	emitNeonWeigh(u)
	emitNeonExps(u)
	emitNeonDivide(u)
	emitNeonAddVector(u)
}

// sumVectors is how many vectors hold the lanes of a sum of float32.
const sumVectors = sumLanes / 4

// addLanes writes the sum of the lanes, added in halves, to the lowest element
// of the first of four vectors, using another register.
func (r *neonRoutine) addLanes(sums []string, spare string) {
	r.then(func(s neonStream) {
		for half := sumVectors / 2; half > 0; half /= 2 {
			for v := range half {
				s.do("fadd", sums[v+half], sums[v], sums[v])
			}
		}
		lane := sums[0]
		s.ins("VEXT $8, %[1]s.B16, %[1]s.B16, %[2]s.B16", lane, spare)
		s.do("fadd", spare, lane, lane)
		s.ins("VDUP %s.S[1], %s.S4", lane, spare)
		s.ins("FADDS %[1]s, %[2]s, %[2]s", float(spare), float(lane))
	})
}

// turn makes the second of some vectors the first, and the first the last.
func (r *neonRoutine) turn(vectors []string, spare string) {
	r.then(func(s neonStream) {
		s.copy(vectors[0], spare)
		for v := range vectors[1:] {
			s.copy(vectors[v+1], vectors[v])
		}
		s.copy(spare, vectors[len(vectors)-1])
	})
}

// part loads the next R4 elements, up to four, at each of the pointers into the
// register beside it, and zeros above them. The pointers stay. R5 is used.
func (r *neonRoutine) part(name string, pointers, regs []string) {
	each := func(format string) {
		for i, p := range pointers {
			r.ins(format, p, float(regs[i]), regs[i])
		}
	}
	r.ins("CMP $2, R4")
	r.ins("BEQ %sTwo", name)
	r.ins("BGT %sThree", name)
	r.ins("CBNZ R4, %sOne", name)
	each("VEOR %[3]s.B16, %[3]s.B16, %[3]s.B16")
	r.ins("B %sLoaded", name)
	r.label(name + "One")
	each("FMOVS (%[1]s), %[2]s")
	r.ins("B %sLoaded", name)
	r.label(name + "Three")
	r.ins("CMP $4, R4")
	r.ins("BEQ %sFour", name)
	each("FMOVD (%[1]s), %[2]s\n\tADD $8, %[1]s, R5\n\tVLD1 (R5), %[3]s.S[2]")
	r.ins("B %sLoaded", name)
	r.label(name + "Two")
	each("FMOVD (%[1]s), %[2]s")
	r.ins("B %sLoaded", name)
	r.label(name + "Four")
	each("FMOVQ (%[1]s), %[2]s")
	r.label(name + "Loaded")
}

// storePart stores the first R4 elements, one to four, at a pointer.
func (r *neonRoutine) storePart(name, reg, pointer string) {
	r.ins("CMP $2, R4")
	r.ins("BLT %sOne", name)
	r.ins("BEQ %sTwo", name)
	r.ins("CMP $4, R4")
	r.ins("BEQ %sFour", name)
	r.ins("ADD $8, %s, R5", pointer)
	r.ins("VST1 %s.S[2], (R5)", reg)
	r.label(name + "Two")
	r.ins("FMOVD %s, (%s)", float(reg), pointer)
	r.ins("B %sStored", name)
	r.label(name + "One")
	r.ins("FMOVS %s, (%s)", float(reg), pointer)
	r.ins("B %sStored", name)
	r.label(name + "Four")
	r.ins("FMOVQ %s, (%s)", float(reg), pointer)
	r.label(name + "Stored")
}

// fewer puts the smaller of four and R2 into R4.
func (r *neonRoutine) fewer() {
	r.ins("MOVD $4, R4")
	r.ins("CMP R4, R2")
	r.ins("CSEL LT, R2, R4, R4")
}

// emitNeonDots writes the dot products of a query with the entries of memory,
// four entries at a time. R3 counts the entries, R2 the elements; R8 to R11
// point to the entries.
func emitNeonDots(u *unit) {
	r := neonStart(u, "dots", "sets each score to the dot product of the query and an entry of\nmemory, a sum in lanes. The query is not empty.",
		[]param{{"query", "[]float32"}, {"memory", "[]float32"}, {"scores", "[]float32"}}, nil)
	r.ins("MOVD %s, R8", r.arg("memory"))
	r.ins("MOVD %s, R7", r.arg("scores"))
	r.ins("MOVD %s, R3", r.arg("len scores"))
	r.ins("MOVD %s, R1", r.arg("len query"))
	r.dotEntries(4, "entries1")
	r.dotEntries(1, "done")
	r.label("done")
	r.ret()
}

// dotEntries writes the loop over groups of entries.
func (r *neonRoutine) dotEntries(entries int, next string) {
	label := func(name string) string { return fmt.Sprintf("%s%d", name, entries) }
	sums := r.takeAll(entries * sumVectors)
	operands := r.takeAll(1 + entries) // of the query and of each entry
	spare := r.take()
	pointers := []string{"R0", "R8", "R9", "R10", "R11"}[:1+entries]
	multiply := func(vector int) {
		for e := range entries {
			r.ins("VFMLA %s.S4, %s.S4, %s.S4", operands[0], operands[1+e], sums[e*sumVectors+vector])
		}
	}

	r.label(label("entries"))
	r.ins("CMP $%d, R3", entries)
	r.ins("BLT %s", next)
	r.ins("MOVD %s, R0", r.arg("query"))
	r.ins("MOVD R1, R2")
	for e := 1; e < entries; e++ {
		r.ins("ADD R1<<2, R%d, R%d", 7+e, 8+e)
	}
	for _, s := range sums {
		r.clear(s)
	}
	r.label(label("elements"))
	r.ins("CMP $%d, R2", sumLanes)
	r.ins("BLT %s", label("rest"))
	for vector := range sumVectors {
		for i, p := range pointers {
			r.ins("FMOVQ.P 16(%s), %s", p, float(operands[i]))
		}
		multiply(vector)
	}
	r.ins("SUB $%d, R2, R2", sumLanes)
	r.ins("B %s", label("elements"))
	r.label(label("rest"))
	r.ins("CBZ R2, %s", label("sums"))
	// Four parts, the last ones of zeros, as a whole vector of lanes has them.
	r.ins("MOVD $%d, R6", sumVectors)
	r.label(label("part"))
	r.fewer()
	r.part(label("part"), pointers, operands)
	multiply(0)
	for e := range entries {
		r.turn(sums[e*sumVectors:(e+1)*sumVectors], spare)
	}
	for _, p := range pointers {
		r.ins("ADD R4<<2, %[1]s, %[1]s", p)
	}
	r.ins("SUB R4, R2, R2")
	r.ins("SUBS $1, R6, R6")
	r.ins("BNE %s", label("part"))
	r.label(label("sums"))
	for e := range entries {
		first := sums[e*sumVectors]
		r.addLanes(sums[e*sumVectors:(e+1)*sumVectors], spare)
		r.ins("FMOVS.P %s, 4(R7)", float(first))
	}
	if entries > 1 {
		r.ins("MOVD R%d, R8", 7+entries)
	}
	r.ins("SUB $%d, R3, R3", entries)
	r.ins("B %s", label("entries"))
	r.give(sums...)
	r.give(operands...)
	r.give(spare)
}

// emitNeonWeigh writes the weighted sum of entries: a group of columns stays in
// registers while all entries pass. R2 counts the columns, R3 the entries; R0
// points to the columns, R1 to those of the first entry.
func emitNeonWeigh(u *unit) {
	r := neonStart(u, "weigh", "adds the entries of memory to out, each times its weight.",
		[]param{{"out", "[]float32"}, {"memory", "[]float32"}, {"weights", "[]float32"}}, nil)
	r.ins("MOVD %s, R0", r.arg("out"))
	r.ins("MOVD %s, R2", r.arg("len out"))
	r.ins("MOVD %s, R1", r.arg("memory"))
	r.ins("LSL $2, R2, R7")
	const vectors = 8
	r.label("wide")
	r.ins("CMP $%d, R2", vectors*r.lanes())
	r.ins("BLT vector")
	r.weighGroup("wide", vectors)
	r.ins("SUB $%d, R2, R2", vectors*r.lanes())
	r.ins("B wide")
	r.perVector(func() {
		if r.single {
			r.weighGroup("single", 1)
		} else {
			r.weighGroup("one", 1)
		}
	})
}

// weighGroup writes the sums of a group of vectors and moves R0 and R1 on.
func (r *neonRoutine) weighGroup(name string, vectors int) {
	sums, entry := r.takeAll(vectors), r.takeAll(min(vectors, 4))
	weight := r.take()
	step := func(pointer string, do func(s neonStream, v int)) {
		r.ins("MOVD %s, R8", pointer)
		r.then(func(s neonStream) {
			for v := range sums {
				do(s, v)
			}
		})
	}
	step("R0", func(s neonStream, v int) { s.load("R8", sums[v]) })
	r.ins("MOVD R1, R9")
	r.ins("MOVD %s, R4", r.arg("weights"))
	r.ins("MOVD %s, R3", r.arg("len weights"))
	r.label(name + "Entry")
	r.ins("CBZ R3, %sStore", name)
	r.ins("FMOVS.P 4(R4), %s", float(weight))
	step("R9", func(s neonStream, v int) {
		x := entry[v%len(entry)]
		s.load("R8", x)
		s.ins("%s", multiplyAddLane(weight, 0, x, sums[v]))
	})
	r.ins("ADD R7, R9, R9")
	r.ins("SUB $1, R3, R3")
	r.ins("B %sEntry", name)
	r.label(name + "Store")
	r.then(func(s neonStream) {
		for _, sum := range sums {
			s.store(sum, "R0")
		}
	})
	size := vectors * r.bytes
	if r.single {
		size = 4
	}
	r.ins("ADD $%d, R1, R1", size)
	r.give(sums...)
	r.give(entry...)
	r.give(weight)
}

// emitNeonExps writes the exponentials of a softmax and their sum.
func emitNeonExps(u *unit) {
	r := neonStart(u, "exps", "replaces the elements by e^(v[i]-largest) and returns their sum in\nlanes.",
		[]param{{"v", "[]float32"}, {"largest", "float32"}}, []param{{"sum", "float32"}})
	largest := r.expsStart()
	sums := r.takeAll(sumVectors)
	for _, s := range sums {
		r.clear(s)
	}
	add := func(s neonStream, y string, vector int) { s.do("fadd", y, sums[vector], sums[vector]) }
	r.perLanes(largest, "R1", add, func(spare string) { r.turn(sums, spare) })
	r.addLanes(sums, r.take())
	r.ins("FMOVS %s, %s", float(sums[0]), r.arg("sum"))
	r.ret()
}

// expsStart sets the registers of a routine for exponentials: R0 and R1 point to
// v, of R2 elements. It returns the register of the largest.
func (r *neonRoutine) expsStart() string {
	r.ins("MOVD %s, R0", r.arg("v"))
	r.ins("MOVD R0, R1")
	r.ins("MOVD %s, R2", r.arg("len v"))
	largest := r.take()
	r.repeat("largest", largest)
	r.hold(neonExp)
	return largest
}

// perLanes writes the exponentials of R2 elements at R0: add adds a vector of
// them to one of the four of a sum. They are stored at a pointer, if it is not "".
// The last ones come in up to four parts, after each of which turn moves on to
// the sum's next vector. Halves of the lanes are added, so that it does not
// matter which vector is the first in the end.
func (r *neonRoutine) perLanes(largest, pointer string, add func(s neonStream, y string, vector int), turn func(spare string)) {
	exps := func(vector int) neonStream {
		s := r.stream(4)
		x := s.take()
		s.load("R0", x)
		s.do("fsub", largest, x, x)
		s.exp(x, false)
		if pointer != "" {
			s.store(x, pointer)
		}
		add(s, x, vector)
		s.give(x)
		return s
	}
	r.label("lanes")
	r.ins("CMP $%d, R2", sumLanes)
	r.ins("BLT tail")
	for vector := 0; vector < sumVectors; vector += 2 {
		r.weave(exps(vector), exps(vector+1))
	}
	r.ins("SUB $%d, R2, R2", sumLanes)
	r.ins("B lanes")

	r.label("tail")
	r.ins("MOVD $%s, R7", r.data("tailMask", []uint32{1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 0, 0, 0, 0}))
	x, spare := r.take(), r.take()
	r.label("part")
	r.ins("CBZ R2, sum")
	r.fewer()
	r.part("part", []string{"R0"}, []string{x})
	s := r.stream(3)
	s.free = append(s.free, spare)
	s.do("fsub", largest, x, x)
	s.exp(x, false)
	r.weave(s)
	if pointer != "" {
		r.storePart("store", x, "R0")
	}
	r.ins("ADD R4<<2, R0, R0")
	r.ins("SUB R4<<2, R7, R5")
	r.ins("FMOVQ 16(R5), %s", float(spare))
	r.then(func(s neonStream) { s.bitwise("VAND", spare, x, x) })
	r.ins("SUB R4, R2, R2")
	s = r.stream(2)
	add(s, x, 0)
	r.weave(s)
	turn(spare)
	r.ins("B part")
	r.give(x, spare)
	r.label("sum")
}

// emitNeonDivide writes the division of a vector by a number.
func emitNeonDivide(u *unit) {
	r := neonStart(u, "divide", "divides the elements.", []param{{"v", "[]float32"}, {"by", "float32"}}, nil)
	r.ins("MOVD %s, R0", r.arg("v"))
	r.ins("MOVD R0, R1")
	r.ins("MOVD %s, R2", r.arg("len v"))
	by, x := r.take(), r.take()
	r.repeat("by", by)
	r.perVector(func() {
		r.then(func(s neonStream) {
			s.load("R0", x)
			s.do("fdiv", by, x, x)
			s.store(x, "R1")
		})
	})
}

// emitNeonAddVector writes the sum of two vectors.
func emitNeonAddVector(u *unit) {
	r := neonStart(u, "addVector", "sets out to x + y.",
		[]param{{"out", "[]float32"}, {"x", "[]float32"}, {"y", "[]float32"}}, nil)
	r.ins("MOVD %s, R0", r.arg("out"))
	r.ins("MOVD %s, R2", r.arg("len out"))
	r.ins("MOVD %s, R3", r.arg("x"))
	r.ins("MOVD %s, R4", r.arg("y"))
	a, b := r.take(), r.take()
	r.perVector(func() {
		r.then(func(s neonStream) {
			s.load("R3", a)
			s.load("R4", b)
			s.do("fadd", b, a, a)
			s.store(a, "R0")
		})
	})
}
