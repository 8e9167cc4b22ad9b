package main

// emitGreedy writes the routines of the greedy choice.
func emitGreedy(u *unit, i isa) {
	emitLargest(u, i)
	emitFind(u, i)
	emitSumExp(u, i)
}

// emitLargest writes the search for the largest element, four vectors at a
// time. Element times zero, added up, is NaN once an element is not finite.
func emitLargest(u *unit, i isa) {
	r := u.routine(i, "largest", "largest"+i.name+" returns the largest of the elements that are no NaN, -Inf without\nany, and whether all are finite.",
		[]param{{"v", "[]float32"}}, []param{{"largest", "float32"}, {"finite", "bool"}})
	r.ins("MOVQ %s, SI", r.arg("v"))
	r.ins("MOVQ %s, CX", r.arg("len v"))
	r.hold("lowest")
	const chains = 4
	zero, x := r.take(), r.take()
	r.zero(zero)
	most, check := r.takeAll(chains), r.takeAll(chains)
	for c := range chains {
		r.ins("VMOVAPS %s, %s", r.held["lowest"], most[c])
		r.zero(check[c])
	}
	r.label("chains")
	r.ins("CMPQ CX, $%d", chains*r.lanes())
	r.ins("JLT vector")
	for c := range chains {
		r.ins("VMOVUPS %s, %s", at(c*r.bytes, "SI"), x)
		r.ins("VMAXPS %[2]s, %[1]s, %[2]s", x, most[c])
		r.ins("VFMADD231PS %s, %s, %s", x, zero, check[c])
	}
	r.ins("ADDQ $%d, SI", chains*r.bytes)
	r.ins("SUBQ $%d, CX", chains*r.lanes())
	r.ins("JMP chains")
	r.perVectorTo("SI", "result", func() {
		s := r.stream(0)
		s.load("(SI)", x)
		s.ins("VFMADD231PS %s, %s, %s", x, zero, check[0])
		switch {
		case r.mask == "":
		case r.bytes == 64:
			s.ins("VBLENDMPS %s, %s, %s, %s", x, r.held["lowest"], r.mask, x)
		default:
			s.ins("VBLENDVPS %s, %s, %s, %s", r.mask, x, r.held["lowest"], x)
		}
		s.ins("VMAXPS %[2]s, %[1]s, %[2]s", x, most[0])
		r.interleave(s)
	})
	r.label("result")
	for half := chains / 2; half > 0; half /= 2 {
		for c := range half {
			r.ins("VMAXPS %[1]s, %[2]s, %[2]s", most[c+half], most[c])
			r.ins("VADDPS %[1]s, %[2]s, %[2]s", check[c+half], check[c])
		}
	}
	r.foldLanes("VMAXPS", most[0], x)
	r.foldLanes("VADDPS", check[0], x)
	r.ins("VMOVSS %s, %s", xmm(most[0]), r.arg("largest"))
	r.ins("VUCOMISS %[1]s, %[1]s", xmm(check[0]))
	r.ins("SETPC %s", r.arg("finite"))
	r.ret()
}

// foldLanes combines the elements of a vector to its lowest, in any order,
// using another register.
func (r *routine) foldLanes(instruction, v, spare string) {
	if r.bytes == 64 {
		r.ins("VEXTRACTF32X8 $1, %s, %s", v, ymm(spare))
		r.ins("%s %s, %s, %s", instruction, ymm(spare), ymm(v), ymm(v))
	}
	r.upper128(v, spare)
	r.ins("%s %s, %s, %s", instruction, xmm(spare), xmm(v), xmm(v))
	r.ins("VMOVHLPS %[2]s, %[1]s, %[1]s", xmm(spare), xmm(v))
	r.ins("%s %s, %s, %s", instruction, xmm(spare), xmm(v), xmm(v))
	r.ins("VMOVSHDUP %s, %s", xmm(v), xmm(spare))
	r.ins("%s %s, %s, %s", instruction, xmm(spare), xmm(v), xmm(v))
}

// emitFind writes the search for a value, a vector at a time.
func emitFind(u *unit, i isa) {
	r := u.routine(i, "find", "find"+i.name+" returns the lowest index of an element that equals x, or the number of\nelements when there is none.",
		[]param{{"v", "[]float32"}, {"x", "float32"}}, []param{{"index", "int"}})
	r.ins("MOVQ %s, SI", r.arg("v"))
	r.ins("MOVQ SI, DI")
	r.ins("MOVQ %s, CX", r.arg("len v"))
	want, x := r.take(), r.take()
	r.ins("VBROADCASTSS %s, %s", r.arg("x"), want)
	r.perVectorTo("SI", "none", func() {
		s := r.stream(0)
		s.load("(SI)", x)
		const equal = 0 // ordered, quiet
		if r.bytes == 64 {
			if r.mask == "" {
				s.ins("VCMPPS $%d, %s, %s, K2", equal, x, want)
			} else {
				s.ins("VCMPPS $%d, %s, %s, %s, K2", equal, x, want, r.mask)
			}
			s.ins("KMOVW K2, AX")
		} else {
			s.ins("VCMPPS $%d, %s, %s, %s", equal, x, want, x)
			s.keepMasked(x)
			s.ins("VMOVMSKPS %s, AX", x)
		}
		s.ins("TESTL AX, AX")
		s.ins("JNE found")
		r.interleave(s)
	})
	r.label("none")
	r.ins("MOVQ %s, AX", r.arg("len v"))
	r.ins("MOVQ AX, %s", r.arg("index"))
	r.ret()
	r.label("found")
	r.ins("BSFL AX, AX")
	r.ins("SUBQ DI, SI")
	r.ins("SHRQ $2, SI")
	r.ins("ADDQ SI, AX")
	r.ins("MOVQ AX, %s", r.arg("index"))
	r.ret()
}

// emitSumExp writes the sum of a softmax without its largest element, in
// lanes of float64: a float32 vector gives two vectors of them.
func emitSumExp(u *unit, i isa) {
	r := u.routine(i, "sumExp", "sumExp"+i.name+" returns the sum of e^(v[i]-largest) in lanes of float64.",
		[]param{{"v", "[]float32"}, {"largest", "float32"}}, []param{{"sum", "float64"}})
	r.ins("MOVQ %s, SI", r.arg("v"))
	r.ins("MOVQ %s, CX", r.arg("len v"))
	largest := r.take()
	r.ins("VBROADCASTSS %s, %s", r.arg("largest"), largest)
	r.holdFor512(powerConstants + "expLow expHigh")
	sums := r.takeAll(2 * i.parts())
	for _, s := range sums {
		r.zero(s)
	}
	r.perLanes("SI", func(part int) *stream {
		s := r.stream(4)
		y := s.expBelow(at(part*r.bytes, "SI"), largest)
		s.keepMasked(y)
		high := s.take()
		if r.bytes == 64 {
			s.ins("VEXTRACTF32X8 $1, %s, %s", y, ymm(high))
			s.ins("VCVTPS2PD %s, %s", ymm(high), high)
			s.ins("VCVTPS2PD %s, %s", ymm(y), y)
		} else {
			s.ins("VEXTRACTF128 $1, %s, %s", y, xmm(high))
			s.ins("VCVTPS2PD %s, %s", xmm(high), high)
			s.ins("VCVTPS2PD %s, %s", xmm(y), y)
		}
		s.ins("VADDPD %[1]s, %[2]s, %[2]s", y, sums[2*part])
		s.ins("VADDPD %[1]s, %[2]s, %[2]s", high, sums[2*part+1])
		s.give(y, high)
		return s
	})
	for half := len(sums) / 2; half > 0; half /= 2 {
		for l := range half {
			r.ins("VADDPD %[1]s, %[2]s, %[2]s", sums[l+half], sums[l])
		}
	}
	s, spare := sums[0], r.take()
	if r.bytes == 64 {
		r.ins("VEXTRACTF64X4 $1, %s, %s", s, ymm(spare))
		r.ins("VADDPD %s, %s, %s", ymm(spare), ymm(s), ymm(s))
	}
	r.upper128(s, spare)
	r.ins("VADDPD %s, %s, %s", xmm(spare), xmm(s), xmm(s))
	r.ins("VUNPCKHPD %[2]s, %[2]s, %[1]s", xmm(spare), xmm(s))
	r.ins("VADDSD %s, %s, %s", xmm(spare), xmm(s), xmm(s))
	r.ins("VMOVSD %s, %s", xmm(s), r.arg("sum"))
	r.ret()
}
