package main

import "fmt"

// The constants each activation needs.
const (
	powerConstants   = "log2E rounder ln2High ln2Low e4 e3 e2 e1 e0 one "
	sigmoidConstants = powerConstants + "sigmoidLow expHigh "
	tanhConstants    = powerConstants + "two tanhHigh "
)

// clamp bounds an operand from below and from above and returns the register
// of the result. The instructions return their second source, x, where it is
// NaN.
func (s *stream) clamp(x, low, high string) string {
	reg := s.take()
	bound := func(instruction, name string) {
		if held, ok := s.held[name]; ok {
			s.ins("%s %s, %s, %s", instruction, x, held, reg)
			return
		}
		spare := s.take()
		s.ins("VMOVUPS %s, %s", s.use(name), spare)
		s.ins("%s %s, %s, %s", instruction, x, spare, reg)
		s.give(spare)
	}
	if low != "" {
		bound("VMAXPS", low)
		x = reg
	}
	bound("VMINPS", high)
	return reg
}

// power is e^x in parts, all registers: e^x = 2^n (1 + below).
type power struct {
	below string
	n     string // as a number with AVX-512, as n + rounder with AVX2
	spare string // holds nothing
}

// power computes the parts of e^x, or of e^-x when negated, for a clamped x,
// whose register it takes over.
func (s *stream) power(x string, negated bool) power {
	t, n, p := s.take(), s.take(), s.take()
	s.ins("VMOVUPS %s, %s", s.use("rounder"), t)
	first, high := "VFMADD231PS", "VFNMADD231PS"
	if negated {
		first, high = "VFNMADD231PS", "VFNMSUB231PS"
	}
	s.ins("%s %s, %s, %s", first, s.use("log2E"), x, t)
	s.ins("VSUBPS %s, %s, %s", s.use("rounder"), t, n)
	s.ins("%s %s, %s, %s", high, s.use("ln2High"), n, x)
	s.ins("VFNMADD231PS %s, %s, %s", s.use("ln2Low"), n, x)
	s.ins("VMOVUPS %s, %s", s.use("e4"), p)
	for _, e := range []string{"e3", "e2", "e1", "e0"} {
		s.ins("VFMADD213PS %s, %s, %s", s.use(e), x, p)
	}
	out := power{below: p, n: n, spare: t}
	if s.bytes == 32 {
		out.n, out.spare = t, n
	}
	s.ins("VMULPS %s, %s, %s", x, x, out.spare)
	s.ins("VFMADD213PS %s, %s, %s", x, out.spare, p)
	s.give(x)
	return out
}

// exp writes e^x, or e^-x when negated, for a clamped x, whose register it
// takes over, and returns the register of the result.
func (s *stream) exp(x string, negated bool) string {
	e := s.power(x, negated)
	s.ins("VADDPS %s, %s, %s", s.use("one"), e.below, e.below)
	if s.bytes == 64 {
		s.ins("VSCALEFPS %[1]s, %[2]s, %[2]s", e.n, e.below)
	} else {
		// The power of two in two factors, because 2^n may be out of range.
		s.ins("VPSLLD $23, %[1]s, %[1]s", e.n)
		s.ins("VPSRAD $1, %s, %s", e.n, e.spare)
		s.ins("VPAND %[1]s, %[2]s, %[2]s", s.use("exponentBits"), e.spare)
		s.ins("VPSUBD %[1]s, %[2]s, %[2]s", e.spare, e.n)
		s.ins("VPADDD %[1]s, %[2]s, %[2]s", s.use("one"), e.spare)
		s.ins("VPADDD %[1]s, %[2]s, %[2]s", s.use("one"), e.n)
		s.ins("VMULPS %[1]s, %[2]s, %[2]s", e.spare, e.below)
		s.ins("VMULPS %[1]s, %[2]s, %[2]s", e.n, e.below)
	}
	s.give(e.n, e.spare)
	return e.below
}

// sigmoid writes the sigmoid of an operand, in memory or a register that it
// leaves as it is, and returns the register of the result.
func (s *stream) sigmoid(operand string) string {
	// Above expHigh the result is 1, as it is for a less strict bound.
	y := s.exp(s.clamp(operand, "sigmoidLow", "expHigh"), true)
	s.ins("VADDPS %s, %s, %s", s.use("one"), y, y)
	if one, ok := s.held["one"]; ok {
		s.ins("VDIVPS %s, %s, %s", y, one, y)
		return y
	}
	spare := s.take()
	s.ins("VMOVUPS %s, %s", s.use("one"), spare)
	s.ins("VDIVPS %s, %s, %s", y, spare, y)
	s.give(spare)
	return y
}

// tanh writes the hyperbolic tangent of register x, which it leaves as it is,
// and returns the register of the result.
func (s *stream) tanh(x string) string {
	sign := s.held["signBit"]
	a := s.take()
	s.ins("VANDNPS %s, %s, %s", x, sign, a)
	bounded := s.clamp(a, "", "tanhHigh")
	s.give(a)
	s.ins("VADDPS %[1]s, %[1]s, %[1]s", bounded)
	e := s.power(bounded, false)
	// 2^n (1 + below) - 1 as 2^n below + (2^n - 1)
	scale, m := e.n, e.spare
	if s.bytes == 64 {
		s.ins("VSCALEFPS %s, %s, %s", e.n, s.use("one"), scale)
	} else {
		s.ins("VPSLLD $23, %[1]s, %[1]s", e.n)
		s.ins("VPADDD %[1]s, %[2]s, %[2]s", s.use("one"), scale)
	}
	s.ins("VSUBPS %s, %s, %s", s.use("one"), scale, m)
	s.ins("VFMADD213PS %s, %s, %s", m, scale, e.below)
	s.ins("VADDPS %s, %s, %s", s.use("two"), e.below, m)
	s.ins("VDIVPS %s, %s, %s", m, e.below, e.below)
	if s.bytes == 64 {
		const orAnd = 0xf8 // destination OR (second AND third)
		s.ins("VPTERNLOGD $%#x, %s, %s, %s", orAnd, x, sign, e.below)
	} else {
		s.ins("VANDPS %s, %s, %s", x, sign, m)
		s.ins("VORPS %[1]s, %[2]s, %[2]s", m, e.below)
	}
	s.give(scale, m)
	return e.below
}

// emitTanh writes the routine for a slice, two vectors side by side.
func emitTanh(u *unit, i isa) {
	r := u.routine(i, "tanh", "tanh"+i.name+" replaces each element by its hyperbolic tangent.", []param{{"v", "[]float32"}}, nil)
	r.ins("MOVQ %s, SI", r.arg("v"))
	r.ins("MOVQ %s, CX", r.arg("len v"))
	r.hold("signBit")
	r.holdFor512(tanhConstants)
	step := func(offset int) *stream {
		s := r.stream(5)
		x := s.take()
		s.load(at(offset, "SI"), x)
		y := s.tanh(x)
		s.store(y, at(offset, "SI"))
		s.give(x, y)
		return s
	}
	r.label("pair")
	r.ins("CMPQ CX, $%d", 2*r.lanes())
	r.ins("JLT vector")
	r.interleave(step(0), step(r.bytes))
	r.ins("ADDQ $%d, SI", 2*r.bytes)
	r.ins("SUBQ $%d, CX", 2*r.lanes())
	r.ins("JMP pair")
	r.perVector("SI", func() { r.interleave(step(0)) })
}

// at returns the operand of a distance from a pointer.
func at(offset int, pointer string) string {
	if offset == 0 {
		return "(" + pointer + ")"
	}
	return fmt.Sprintf("%d(%s)", offset, pointer)
}
