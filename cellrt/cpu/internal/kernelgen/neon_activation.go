package main

// The constants each activation needs, and all there are.
const (
	neonPower     = "log2E rounder ln2High ln2Low e4 e3 e2 e1 e0 one "
	neonExp       = neonPower + "expLow expHigh exponentBits "
	neonTanh      = neonPower + "two tanhHigh signBit "
	neonConstants = neonExp + "two tanhHigh signBit lowest "
)

// power computes e^x = 2^n (1 + below) for a clamped x, whose register it takes
// over for below, and returns the register that has n in its low bits. The other
// two registers hold nothing.
func (s neonStream) power(x string) (n, spare, other string) {
	t, n, p := s.take(), s.take(), s.take()
	c := s.held
	s.copy(c["rounder"], t)
	s.fused("VFMLA", c["log2E"], x, t)
	s.do("fsub", c["rounder"], t, n)
	s.fused("VFMLS", c["ln2High"], n, x)
	s.fused("VFMLS", c["ln2Low"], n, x)
	s.copy(c["e3"], p)
	s.fused("VFMLA", c["e4"], x, p)
	for _, e := range []string{"e2", "e1", "e0"} {
		s.copy(c[e], n)
		s.fused("VFMLA", p, x, n)
		n, p = p, n
	}
	s.do("fmul", x, x, n)
	s.fused("VFMLA", n, p, x)
	return t, n, p
}

// exp writes e^x, or e^-x when negated, in the place of x, for any x.
func (s neonStream) exp(x string, negated bool) {
	if negated {
		s.do("fneg", x, x)
	}
	// Both return a NaN.
	s.do("fmax", s.held["expLow"], x, x)
	s.do("fmin", s.held["expHigh"], x, x)
	n, half, other := s.power(x)
	one := s.held["one"]
	s.do("fadd", one, x, x)
	// The power of two in two factors, because 2^n may be out of range.
	s.ins("VSHL $23, %[1]s.S4, %[1]s.S4", n)
	s.ins("%s", halve(n, half))
	s.bitwise("VAND", s.held["exponentBits"], half, half)
	s.integers("VSUB", half, n, n)
	s.integers("VADD", one, half, half)
	s.integers("VADD", one, n, n)
	s.do("fmul", half, x, x)
	s.do("fmul", n, x, x)
	s.give(n, half, other)
}

// sigmoid writes the sigmoid of x in its place.
func (s neonStream) sigmoid(x string) {
	s.exp(x, true)
	s.do("fadd", s.held["one"], x, x)
	s.do("fdiv", x, s.held["one"], x)
}

// tanh writes the hyperbolic tangent of register x, which it leaves as it is,
// and returns the register of the result.
func (s neonStream) tanh(x string) string {
	below := s.take()
	s.do("fabs", x, below)
	s.do("fmin", s.held["tanhHigh"], below, below)
	s.do("fadd", below, below, below)
	scale, m, more := s.power(below)
	// 2^n (1 + below) - 1 as 2^n below + (2^n - 1)
	s.ins("VSHL $23, %[1]s.S4, %[1]s.S4", scale)
	s.integers("VADD", s.held["one"], scale, scale)
	s.do("fsub", s.held["one"], scale, m)
	s.fused("VFMLA", below, scale, m)
	s.do("fadd", s.held["two"], m, more)
	s.do("fdiv", more, m, m)
	s.bitwise("VBIT", s.held["signBit"], x, m)
	s.give(below, scale, more)
	return m
}

// emitNeonTanh writes the routine for a slice, two vectors side by side.
func emitNeonTanh(u *unit) {
	r := neonStart(u, "tanh", "replaces each element by its hyperbolic tangent.", []param{{"v", "[]float32"}}, nil)
	r.ins("MOVD %s, R0", r.arg("v"))
	r.ins("MOVD %s, R2", r.arg("len v"))
	r.ins("MOVD R0, R1")
	r.hold(neonTanh)
	step := func() neonStream {
		s := r.stream(5)
		x := s.take()
		s.load("R0", x)
		y := s.tanh(x)
		s.store(y, "R1")
		s.give(x, y)
		return s
	}
	r.label("pair")
	r.ins("CMP $%d, R2", 2*r.lanes())
	r.ins("BLT vector")
	r.weave(step(), step())
	r.ins("SUB $%d, R2, R2", 2*r.lanes())
	r.ins("B pair")
	r.perVector(func() { r.weave(step()) })
}
