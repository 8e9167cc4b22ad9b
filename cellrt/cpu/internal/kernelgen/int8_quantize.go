package main

import "fmt"

// quantizer writes the conversion of a row of values to codes: the search for
// the largest magnitude, and the rounding.
func (k int8Kernel) quantizer(u *unit) {
	if k.bytes == 64 {
		if k.vnni {
			codes512(u, k.tier, true)
			return
		}
		largest512(u)
		codes512(u, k.tier, false)
		return
	}
	laneNumbers(u)
	largest256(u)
	codes256(u)
}

const largestDoc = " returns the bits of the largest magnitude among n values: largestBits."

func largestFunction(u *unit, isa string) *function {
	name := "largestBits" + isa
	f := u.function(name, name+largestDoc, []param{{"x", "*float32"}, {"n", "int"}}, []param{{"bits", "uint32"}})
	f.ins("MOVQ %s, SI", f.arg("x"))
	f.ins("MOVQ %s, DX", f.arg("n"))
	return f
}

func codesFunction(u *unit, tier, layout string) *function {
	name := "codes" + tier
	doc := name + " writes the codes of n values times inverse, in " + layout + ". It writes whole\nvectors, so codes has room for n rounded up to 16."
	f := u.function(name, doc, []param{{"x", "*float32"}, {"n", "int"}, {"codes", "*byte"}, {"inverse", "float32"}}, nil)
	f.ins("MOVQ %s, SI", f.arg("x"))
	f.ins("MOVQ %s, DX", f.arg("n"))
	f.ins("MOVQ %s, DI", f.arg("codes"))
	return f
}

// tailMask sets K1 to the lowest DX bits, DX being below 16.
func tailMask(f *function) {
	f.ins("MOVL $1, R8")
	f.ins("MOVQ DX, CX")
	f.ins("SHLL CX, R8")
	f.ins("DECL R8")
	f.ins("KMOVW R8, K1")
}

func largest512(u *unit) {
	const vectors = 4
	f := largestFunction(u, "AVX512")
	f.ins("VPBROADCASTD %s, Z8", u.constant("magnitude", 0x7fffffff))
	for v := range vectors {
		f.ins("VPXORD Z%d, Z%d, Z%d", v, v, v)
	}
	step := func(n int) {
		for v := range n {
			f.ins("VPANDD %d(SI), Z8, Z%d", 64*v, 4+v)
			f.ins("VPMAXSD Z%d, Z%d, Z%d", 4+v, v, v)
		}
		f.ins("ADDQ $%d, SI", 64*n)
	}
	codeLoops(f, vectors, step)
	tailMask(f)
	f.ins("VMOVDQU32.Z (SI), K1, Z4")
	f.ins("VPANDD Z4, Z8, Z4")
	f.ins("VPMAXSD Z4, Z0, Z0")
	f.ins("VPMAXSD Z1, Z0, Z0")
	f.ins("VPMAXSD Z3, Z2, Z2")
	f.ins("VPMAXSD Z2, Z0, Z0")
	f.ins("VEXTRACTI64X4 $1, Z0, Y1")
	largestLane(f)
}

// largestLane returns the largest lane of Y0 and Y1.
func largestLane(f *function) {
	f.ins("VPMAXSD Y1, Y0, Y0")
	f.ins("VEXTRACTI128 $1, Y0, X1")
	f.ins("VPMAXSD X1, X0, X0")
	f.ins("VPSHUFD $0x4e, X0, X1")
	f.ins("VPMAXSD X1, X0, X0")
	f.ins("VPSHUFD $0xb1, X0, X1")
	f.ins("VPMAXSD X1, X0, X0")
	f.ins("VMOVD X0, AX")
	f.ins("MOVL AX, %s", f.arg("bits"))
	f.ret()
}

// codeLoops writes loops over DX values of which a vector has 16: step takes so
// many vectors. Fewer than 16 values remain in DX.
func codeLoops(f *function, vectors int, step func(vectors int)) {
	for _, n := range sizes(vectors) {
		f.label(fmt.Sprintf("by%d", n))
		f.ins("CMPQ DX, $%d", 16*n)
		f.ins("JLT under%d", n)
		step(n)
		f.ins("SUBQ $%d, DX", 16*n)
		f.ins("JMP by%d", n)
		f.label(fmt.Sprintf("under%d", n))
	}
}

func codes512(u *unit, tier string, bytes bool) {
	layout, narrow, width := "pairs", "VPMOVDW", 32
	if bytes {
		layout, narrow, width = "quads", "VPMOVDB", 16
	}
	f := codesFunction(u, tier, layout)
	f.ins("VBROADCASTSS %s, Z8", f.arg("inverse"))
	if bytes {
		f.ins("VPBROADCASTD %s, Z9", u.constant("excess", 128))
	}
	convert := func(v int) {
		f.ins("VCVTPS2DQ Z%d, Z%d", v, v)
		if bytes {
			f.ins("VPADDD Z9, Z%d, Z%d", v, v)
		}
		f.ins("%s Z%d, %d(DI)", narrow, v, width*v)
	}
	codeLoops(f, 4, func(n int) {
		for v := range n {
			f.ins("VMULPS %d(SI), Z8, Z%d", 64*v, v)
			convert(v)
		}
		f.ins("ADDQ $%d, SI", 64*n)
		f.ins("ADDQ $%d, DI", width*n)
	})
	f.ins("TESTQ DX, DX")
	f.ins("JEQ done")
	tailMask(f)
	f.ins("VMOVUPS.Z (SI), K1, Z0")
	f.ins("VMULPS Z0, Z8, Z0")
	convert(0)
	f.label("done")
	f.ret()
}

// laneNumbers writes the constant that masks of AVX2 compare with: 0 to 15.
func laneNumbers(u *unit) {
	for lane := range 16 {
		fmt.Fprintf(&u.constantAsm, "DATA codeLanes<>+%d(SB)/4, $%d\n", 4*lane, lane)
	}
	u.constantAsm.WriteString("GLOBL codeLanes<>(SB), RODATA|NOPTR, $64\n")
}

// tailMasks256 sets Y6 and Y7 to masks of the lowest DX lanes of 16.
func tailMasks256(f *function) {
	f.ins("VMOVD DX, X5")
	f.ins("VPBROADCASTD X5, Y5")
	for v := range 2 {
		f.ins("VPCMPGTD codeLanes<>+%d(SB), Y5, Y%d", 32*v, 6+v)
	}
}

func largest256(u *unit) {
	f := largestFunction(u, "AVX2")
	f.ins("VPBROADCASTD %s, Y8", u.constant("magnitude", 0x7fffffff))
	f.ins("VPXOR Y0, Y0, Y0")
	f.ins("VPXOR Y1, Y1, Y1")
	codeLoops(f, 1, func(int) {
		for v := range 2 {
			f.ins("VPAND %d(SI), Y8, Y%d", 32*v, 2+v)
			f.ins("VPMAXSD Y%d, Y%d, Y%d", 2+v, v, v)
		}
		f.ins("ADDQ $64, SI")
	})
	tailMasks256(f)
	for v := range 2 {
		f.ins("VPMASKMOVD %d(SI), Y%d, Y%d", 32*v, 6+v, 2+v)
		f.ins("VPAND Y%d, Y8, Y%d", 2+v, 2+v)
		f.ins("VPMAXSD Y%d, Y%d, Y%d", 2+v, v, v)
	}
	largestLane(f)
}

func codes256(u *unit) {
	f := codesFunction(u, "AVX2", "pairs")
	f.ins("VBROADCASTSS %s, Y8", f.arg("inverse"))
	convert := func() {
		f.ins("VCVTPS2DQ Y0, Y0")
		f.ins("VCVTPS2DQ Y1, Y1")
		f.ins("VPACKSSDW Y1, Y0, Y0")
		f.ins("VPERMQ $0xd8, Y0, Y0")
		f.ins("VMOVDQU Y0, (DI)")
	}
	codeLoops(f, 1, func(int) {
		f.ins("VMULPS (SI), Y8, Y0")
		f.ins("VMULPS 32(SI), Y8, Y1")
		convert()
		f.ins("ADDQ $64, SI")
		f.ins("ADDQ $32, DI")
	})
	f.ins("TESTQ DX, DX")
	f.ins("JEQ done")
	tailMasks256(f)
	for v := range 2 {
		f.ins("VMASKMOVPS %d(SI), Y%d, Y%d", 32*v, 6+v, v)
		f.ins("VMULPS Y%d, Y8, Y%d", v, v)
	}
	convert()
	f.label("done")
	f.ret()
}

func sizes(vectors int) []int {
	if vectors == 1 {
		return []int{1}
	}
	return []int{vectors, 1}
}
