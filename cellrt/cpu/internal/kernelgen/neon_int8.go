package main

import "fmt"

// neonInt8 returns the products of 8-bit codes with the instructions for dot
// products of bytes, and, for NEON without them too, the conversion of inputs to
// codes and of sums to results.
func neonInt8() *unit {
	u := &unit{name: "int8_neon", arch: arm64}
	i, f := neon(), format{name: "Int8", goType: "int8", depth: 1, input: "byte", sum: "int32"}
	i.name = "Dot"
	text := `
// int8Dot computes unfinished sums of a tile of so many rows and panels over k
// groups. Strides are in bytes.
func int8Dot(rows, panels, k int, x *byte, xStride int, w *int8, wStride int, start *int32, startStride int, y *int32, yStride int) {
	switch panels<<4 | rows {
`
	for panels := 1; panels <= maxPanels; panels++ {
		for _, t := range neonTiles(i, f, panels) {
			t.write(u)
			text += fmt.Sprintf("\tcase %d<<4 | %d:\n\t\t%s(k, x, xStride, w, wStride, start, startStride, y, yStride)\n", panels, t.rows, t.routine())
		}
	}
	emitNeonLargestBits(u)
	emitNeonCodes(u)
	emitNeonResults(u)
	u.stubs.WriteString(text + "\tdefault:\n\t\tpanic(\"kernel: no such tile of 8-bit codes\")\n\t}\n}\n")
	return u
}

// emitNeonLargestBits writes the search for the largest magnitude.
func emitNeonLargestBits(u *unit) {
	r := neonStart(u, "largestBits", "returns the bits of the largest magnitude in v.", []param{{"v", "[]float32"}}, []param{{"bits", "uint32"}})
	r.ins("MOVD %s, R0", r.arg("v"))
	r.ins("MOVD %s, R2", r.arg("len v"))
	const chains = 4
	most, x := r.takeAll(chains), r.takeAll(chains)
	for _, m := range most {
		r.clear(m)
	}
	take := func(s neonStream, c int) {
		s.load("R0", x[c])
		s.do("fabs", x[c], x[c])
		s.do("umax", x[c], most[c], most[c])
	}
	r.label("chains")
	r.ins("CMP $%d, R2", chains*r.lanes())
	r.ins("BLT vector")
	var streams []neonStream
	for c := range chains {
		s := r.stream(0)
		take(s, c)
		streams = append(streams, s)
	}
	r.weave(streams...)
	r.ins("SUB $%d, R2, R2", chains*r.lanes())
	r.ins("B chains")
	r.perVectorTo("result", func() { r.then(func(s neonStream) { take(s, 0) }) })
	r.label("result")
	r.then(func(s neonStream) {
		for half := chains / 2; half > 0; half /= 2 {
			for c := range half {
				s.do("umax", most[c+half], most[c], most[c])
			}
		}
		s.ins("%s", word(0x6eb0a800|number(most[0])<<5|number(most[0]), fmt.Sprintf("umaxv s%[1]d, v%[1]d.4s", number(most[0]))))
	})
	r.ins("FMOVS %s, %s", float(most[0]), r.arg("bits"))
	r.ret()
}

// emitNeonCodes writes the conversion to codes, 16 at a time.
func emitNeonCodes(u *unit) {
	r := neonStart(u, "codes", "writes the codes of the elements times inverse, in bytes.",
		[]param{{"v", "[]float32"}, {"codes", "*byte"}, {"inverse", "float32"}}, nil)
	r.ins("MOVD %s, R0", r.arg("v"))
	r.ins("MOVD %s, R2", r.arg("len v"))
	r.ins("MOVD %s, R1", r.arg("codes"))
	inverse := r.take()
	r.repeat("inverse", inverse)
	const vectors = 4
	x := r.takeAll(vectors)
	convert := func(x string) neonStream {
		s := r.stream(0)
		s.load("R0", x)
		s.do("fmul", inverse, x, x)
		s.do("fcvtns", x, x)
		return s
	}
	r.label("vector")
	r.ins("CMP $%d, R2", vectors*r.lanes())
	r.ins("BLT tail")
	r.weave(convert(x[0]), convert(x[1]), convert(x[2]), convert(x[3]))
	r.ins("VUZP1 %[2]s.H8, %[1]s.H8, %[1]s.H8", x[0], x[1])
	r.ins("VUZP1 %[2]s.H8, %[1]s.H8, %[1]s.H8", x[2], x[3])
	r.ins("VUZP1 %[2]s.B16, %[1]s.B16, %[1]s.B16", x[0], x[2])
	r.ins("FMOVQ.P %s, %d(R1)", float(x[0]), r.bytes)
	r.ins("SUB $%d, R2, R2", vectors*r.lanes())
	r.ins("B vector")
	r.label("tail")
	r.ins("CBZ R2, done")
	r.single = true
	r.weave(convert(x[0]))
	r.ins("VMOV %s.B[0], R3", x[0])
	r.ins("MOVB.P R3, 1(R1)")
	r.ins("SUB $1, R2, R2")
	r.ins("B tail")
	r.label("done")
	r.ret()
}

// emitNeonResults writes the step from sums to results.
func emitNeonResults(u *unit) {
	r := neonStart(u, "results", "sets y to init + sums scales scale, whose first product rounds. All have\nas many elements.",
		[]param{{"y", "[]float32"}, {"init", "*float32"}, {"sums", "*int32"}, {"scales", "*float32"}, {"scale", "float32"}}, nil)
	r.ins("MOVD %s, R0", r.arg("y"))
	r.ins("MOVD %s, R2", r.arg("len y"))
	r.ins("MOVD %s, R3", r.arg("init"))
	r.ins("MOVD %s, R4", r.arg("sums"))
	r.ins("MOVD %s, R5", r.arg("scales"))
	scale := r.take()
	r.repeat("scale", scale)
	y, sum, column := r.take(), r.take(), r.take()
	r.perVector(func() {
		r.then(func(s neonStream) {
			s.load("R3", y)
			s.load("R4", sum)
			s.load("R5", column)
			s.do("scvtf", sum, sum)
			s.do("fmul", column, sum, sum)
			s.fused("VFMLA", scale, sum, y)
			s.store(y, "R0")
		})
	})
}
