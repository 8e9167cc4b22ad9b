package main

// emitNeonGreedy writes the routines of the greedy choice.
func emitNeonGreedy(u *unit) {
	emitNeonLargest(u)
	emitNeonFind(u)
	emitNeonSumExp(u)
}

// emitNeonLargest writes the search for the largest element, four vectors at a
// time. Element times zero, added up, is NaN once an element is not finite.
func emitNeonLargest(u *unit) {
	r := neonStart(u, "largest", "returns the largest of the elements that are no NaN, -Inf without\nany, and whether all are finite.",
		[]param{{"v", "[]float32"}}, []param{{"largest", "float32"}, {"finite", "bool"}})
	r.ins("MOVD %s, R0", r.arg("v"))
	r.ins("MOVD %s, R2", r.arg("len v"))
	r.hold("lowest")
	const chains = 4
	zero := r.take()
	r.clear(zero)
	most, check := r.takeAll(chains), r.takeAll(chains)
	x, above := r.takeAll(chains), r.takeAll(chains)
	r.then(func(s neonStream) {
		for c := range chains {
			s.copy(s.held["lowest"], most[c])
			r.clear(check[c])
		}
	})
	// A comparison with a NaN is false, whatever kind of NaN it is.
	take := func(s neonStream, c int) {
		s.do("fcmgt", most[c], x[c], above[c])
		s.fused("VFMLA", x[c], zero, check[c])
		s.bitwise("VBIT", above[c], x[c], most[c])
	}
	r.label("chains")
	r.ins("CMP $%d, R2", chains*r.lanes())
	r.ins("BLT vector")
	var streams []neonStream
	for c := range chains {
		s := r.stream(0)
		s.load("R0", x[c])
		take(s, c)
		streams = append(streams, s)
	}
	r.weave(streams...)
	r.ins("SUB $%d, R2, R2", chains*r.lanes())
	r.ins("B chains")
	r.perVectorTo("result", func() {
		r.then(func(s neonStream) {
			s.load("R0", x[0])
			if s.single {
				s.ins("VDUP %[1]s.S[0], %[1]s.S4", x[0])
			}
			take(s, 0)
		})
	})
	r.label("result")
	r.then(func(s neonStream) {
		for half := chains / 2; half > 0; half /= 2 {
			for c := range half {
				s.do("fmax", most[c+half], most[c], most[c])
				s.do("fadd", check[c+half], check[c], check[c])
			}
		}
		s.ins("%s", maxAcross(most[0], most[0]))
		s.ins("%s", maxAcross(check[0], check[0])) // NaN if one is
	})
	r.ins("FMOVS %s, %s", float(most[0]), r.arg("largest"))
	r.ins("FCMPS %[1]s, %[1]s", float(check[0]))
	r.ins("CSET VC, R3")
	r.ins("MOVB R3, %s", r.arg("finite"))
	r.ret()
}

// emitNeonFind writes the search for a value: four vectors at a time, until one
// of them has it, then one at a time.
func emitNeonFind(u *unit) {
	r := neonStart(u, "find", "returns the lowest index of an element that equals x, or the number of\nelements when there is none.",
		[]param{{"v", "[]float32"}, {"x", "float32"}}, []param{{"index", "int"}})
	r.ins("MOVD %s, R0", r.arg("v"))
	r.ins("MOVD R0, R1")
	r.ins("MOVD %s, R2", r.arg("len v"))
	want := r.take()
	r.repeat("x", want)
	const vectors = 4
	x := r.takeAll(vectors)
	r.label("group")
	r.ins("CMP $%d, R2", vectors*r.lanes())
	r.ins("BLT vector")
	r.then(func(s neonStream) {
		for v := range x {
			s.ins("FMOVQ %s, %s", at(v*r.bytes, "R0"), float(x[v]))
			s.do("fcmeq", want, x[v], x[v])
		}
		s.bitwise("VORR", x[1], x[0], x[0])
		s.bitwise("VORR", x[3], x[2], x[2])
		s.bitwise("VORR", x[2], x[0], x[0])
	})
	r.halves(x[0])
	r.ins("ORR R5, R4, R4")
	r.ins("CBNZ R4, vector")
	r.ins("ADD $%d, R0, R0", vectors*r.bytes)
	r.ins("SUB $%d, R2, R2", vectors*r.lanes())
	r.ins("B group")
	r.perVectorTo("none", func() {
		r.then(func(s neonStream) {
			s.load("R0", x[0])
			s.do("fcmeq", want, x[0], x[0])
			if s.single {
				s.ins("FMOVS %[1]s, %[1]s", float(x[0])) // without the others
			}
		})
		r.halves(x[0])
		if r.single {
			r.ins("SUB $4, R0, R3")
			r.ins("CBNZ R4, found")
			return
		}
		r.ins("SUB $%d, R0, R3", r.bytes)
		r.ins("CBNZ R4, found")
		r.ins("ADD $8, R3, R3")
		r.ins("MOVD R5, R4")
		r.ins("CBNZ R4, found")
	})
	r.label("none")
	r.ins("MOVD %s, R3", r.arg("len v"))
	r.ins("MOVD R3, %s", r.arg("index"))
	r.ret()
	// R3 points to two elements of which one has a bit in R4.
	r.label("found")
	r.ins("RBIT R4, R4")
	r.ins("CLZ R4, R4")
	r.ins("SUB R1, R3, R3")
	r.ins("LSR $2, R3, R3")
	r.ins("ADD R4>>5, R3, R3")
	r.ins("MOVD R3, %s", r.arg("index"))
	r.ret()
}

// halves copies a vector to R4 and R5.
func (r *neonRoutine) halves(reg string) {
	r.ins("VMOV %s.D[0], R4", reg)
	r.ins("VMOV %s.D[1], R5", reg)
}

// emitNeonSumExp writes the sum of a softmax without its largest element, in
// lanes of float64: a vector of float32 gives two vectors of them.
func emitNeonSumExp(u *unit) {
	r := neonStart(u, "sumExp", "returns the sum of e^(v[i]-largest) in lanes of float64.",
		[]param{{"v", "[]float32"}, {"largest", "float32"}}, []param{{"sum", "float64"}})
	largest := r.expsStart()
	sums := r.takeAll(2 * sumVectors)
	for _, s := range sums {
		r.clear(s)
	}
	double := func(s neonStream, name string, registers ...string) { s.ins("%s", neonWord(name, "2d", registers...)) }
	add := func(s neonStream, y string, vector int) {
		high := s.take()
		double(s, "fcvtl2", y, high)
		double(s, "fcvtl", y, y)
		double(s, "fadd", y, sums[2*vector], sums[2*vector])
		double(s, "fadd", high, sums[2*vector+1], sums[2*vector+1])
		s.give(high)
	}
	r.perLanes(largest, "", add, func(spare string) {
		r.turn(sums, spare)
		r.turn(sums, spare)
	})
	spare := r.take()
	r.then(func(s neonStream) {
		for half := len(sums) / 2; half > 0; half /= 2 {
			for l := range half {
				double(s, "fadd", sums[l+half], sums[l], sums[l])
			}
		}
		s.ins("VDUP %s.D[1], %s.D2", sums[0], spare)
		s.ins("FADDD %[1]s, %[2]s, %[2]s", float(spare), float(sums[0]))
	})
	r.ins("FMOVD %s, %s", float(sums[0]), r.arg("sum"))
	r.ret()
}
