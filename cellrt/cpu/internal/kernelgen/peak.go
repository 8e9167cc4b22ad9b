package main

// peakRegisters is how many chains the loop that measures a peak runs side by
// side, more than latency times throughput on any processor.
const peakRegisters = 12

// peakUnit returns loops of nothing but fused multiply-adds between registers.
func peakUnit() *unit {
	u := &unit{name: "peak", arch: amd64}
	for _, i := range []isa{avx2(), avx512()} {
		f := u.peak(i)
		f.ins("MOVQ %s, CX", f.arg("turns"))
		for r := range peakRegisters + 2 {
			f.ins("VXORPS %[1]s, %[1]s, %[1]s", i.reg(r))
		}
		f.ins("TESTQ CX, CX")
		f.ins("JLE done")
		f.ins("PCALIGN $32")
		f.label("loop")
		for r := range peakRegisters {
			f.ins("VFMADD231PS %s, %s, %s", i.reg(peakRegisters), i.reg(peakRegisters+1), i.reg(r))
		}
		f.ins("DECQ CX")
		f.ins("JNZ loop")
		f.label("done")
		f.ret()
	}
	return u
}

// peak declares the function of an instruction set.
func (u *unit) peak(i isa) *function {
	return u.function("peak"+i.name, "peak"+i.name+" does as many fused multiply-adds of vectors as turns times\npeakRegisters says, from register to register.", []param{{"turns", "int"}}, nil)
}

// neonPeak returns the same loop for NEON.
func neonPeak() *unit {
	u := &unit{name: "peak", arch: arm64}
	f := u.peak(neon())
	f.ins("MOVD %s, R0", f.arg("turns"))
	for r := range peakRegisters + 2 {
		f.ins("VEOR V%[1]d.B16, V%[1]d.B16, V%[1]d.B16", r)
	}
	f.ins("CMP $0, R0")
	f.ins("BLE done")
	f.ins("PCALIGN $32")
	f.label("loop")
	for r := range peakRegisters {
		f.ins("VFMLA V%d.S4, V%d.S4, V%d.S4", peakRegisters, peakRegisters+1, r)
	}
	f.ins("SUBS $1, R0, R0")
	f.ins("BNE loop")
	f.label("done")
	f.ret()
	return u
}
