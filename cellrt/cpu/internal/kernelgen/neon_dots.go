package main

import "fmt"

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
