package main

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
