package main

import (
	"fmt"
	"math"
	"strings"
)

// elementwise generates the routines that work on whole vectors: activations,
// gates, attention and the choice of the largest, for amd64. They must do the operations
// of the portable ones in package kernel, in the same order for each element.
func elementwise() *unit {
	u := &unit{name: "elementwise", arch: amd64}
	for _, i := range []isa{avx2(), avx512()} {
		emitTanh(u, i)
		emitGates(u, i)
		emitAttention(u, i)
		emitGreedy(u, i)
	}
	return u
}

// routine is a function with a pool of vector registers and constants. The
// general registers are assigned by hand; AX, BX and K1 serve the masks.
type routine struct {
	*function
	isa

	free []string          // vector registers that hold nothing
	held map[string]string // registers of constants
	mask string            // mask of the elements that exist, or "" for all
}

func (u *unit) routine(i isa, name, doc string, params, results []param) *routine {
	r := &routine{function: u.function(name+i.name, doc, params, results), isa: i, held: map[string]string{}}
	for n := i.registers - 1; n >= 0; n-- {
		r.free = append(r.free, i.reg(n))
	}
	return r
}

// take returns a register that holds nothing.
func (r *routine) take() string {
	if len(r.free) == 0 {
		panic("kernelgen: out of vector registers")
	}
	last := len(r.free) - 1
	reg := r.free[last]
	r.free = r.free[:last]
	return reg
}

// takeAll returns n registers.
func (r *routine) takeAll(n int) []string {
	var regs []string
	for range n {
		regs = append(regs, r.take())
	}
	return regs
}

// give puts registers back.
func (r *routine) give(regs ...string) { r.free = append(r.free, regs...) }

// constantBits returns the constants of the activations by name. They are
// those of package kernel, where they are explained.
func constantBits(name string) uint32 {
	values := map[string]float32{
		"expHigh": 89, "expLow": -104, "sigmoidLow": -89, "tanhHigh": 10,
		"log2E": 1.4426950408889634, "ln2High": 0.693359375, "ln2Low": -2.1219444005469057e-4,
		"rounder": 1.5 * (1 << 23),
		"e0":      0.5, "e1": 0.16666576666119942, "e2": 0.04166655421298538,
		"e3": 0.008363232883680738, "e4": 0.0013926250831287747,
		"one": 1, "two": 2,
		"lowest": float32(math.Inf(-1)),
	}
	switch name {
	case "signBit":
		return 1 << 31
	case "exponentBits":
		return 0xff800000
	}
	value, ok := values[name]
	if !ok {
		panic("kernelgen: no constant " + name)
	}
	return math.Float32bits(value)
}

// vectorConstant returns the operand of a constant repeated over 32 bytes.
func (u *unit) vectorConstant(name string) string {
	bits := constantBits(name)
	return u.data(name, []uint32{bits, bits, bits, bits, bits, bits, bits, bits})
}

// data returns the operand of read-only data, which is written once a unit.
func (u *unit) data(name string, words []uint32) string {
	if u.constants == nil {
		u.constants = map[string]bool{}
	}
	if !u.constants[name] {
		u.constants[name] = true
		for i, w := range words {
			fmt.Fprintf(&u.constantAsm, "DATA %s<>+%d(SB)/4, $0x%08x\n", name, 4*i, w)
		}
		fmt.Fprintf(&u.constantAsm, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n", name, 4*len(words))
	}
	return name + "<>(SB)"
}

// hold keeps constants in registers for the whole function.
func (r *routine) hold(names string) {
	for name := range strings.FieldsSeq(names) {
		if r.held[name] != "" {
			continue
		}
		reg := r.take()
		r.held[name] = reg
		r.ins("VBROADCASTSS %s, %s", r.vectorConstant(name), reg)
	}
}

// holdFor512 keeps constants in registers where there are enough of them.
// Otherwise they are operands in memory.
func (r *routine) holdFor512(names string) {
	if r.registers == 32 {
		r.hold(names)
	}
}

// use returns a constant as an operand that may be in memory.
func (r *routine) use(name string) string {
	if reg, ok := r.held[name]; ok {
		return reg
	}
	if r.bytes != 32 {
		panic("kernelgen: constant not in a register: " + name)
	}
	return r.vectorConstant(name)
}

// zero clears a register.
func (r *routine) zero(reg string) { r.ins("VXORPS %[1]s, %[1]s, %[1]s", reg) }

// stream is a sequence of instructions that is independent of others. It has
// registers of its own, because its instructions end up between theirs.
type stream struct {
	*routine

	lines []string
	free  []string
}

// stream starts a sequence with n registers.
func (r *routine) stream(n int) *stream { return &stream{routine: r, free: r.takeAll(n)} }

func (s *stream) ins(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// take returns a register of the stream that holds nothing.
func (s *stream) take() string {
	if len(s.free) == 0 {
		panic("kernelgen: out of the stream's registers")
	}
	last := len(s.free) - 1
	reg := s.free[last]
	s.free = s.free[:last]
	return reg
}

// give puts registers back.
func (s *stream) give(regs ...string) { s.free = append(s.free, regs...) }

// interleave writes streams side by side, so that the chain of one fills the
// waiting times of the others. Registers that hold nothing go back to the
// routine, the others belong to it from now on.
func (r *routine) interleave(streams ...*stream) {
	for i, more := 0, true; more; i++ {
		more = false
		for _, s := range streams {
			if i < len(s.lines) {
				r.ins("%s", s.lines[i])
				more = true
			}
		}
	}
	for _, s := range streams {
		r.give(s.free...)
		s.free = nil
	}
}

// setMask makes the mask of the first CX elements of a vector, fewer than it
// has. With AVX2 the mask is a register, and a second mask, if wanted, covers
// the elements of a second vector.
func (r *routine) setMask(second ...string) {
	if r.bytes == 64 {
		r.mask = "K1"
		r.ins("MOVL $1, AX")
		r.ins("SHLL CX, AX")
		r.ins("DECL AX")
		r.ins("KMOVW AX, K1")
		return
	}
	words := make([]uint32, 32)
	for i := range 16 {
		words[i] = math.MaxUint32
	}
	table := r.data("tailMask", words)
	r.mask = r.take()
	r.ins("LEAQ %s, AX", table)
	r.ins("MOVQ $16, BX")
	r.ins("SUBQ CX, BX")
	r.ins("VMOVUPS (AX)(BX*4), %s", r.mask)
	for _, reg := range second {
		r.ins("VMOVUPS 32(AX)(BX*4), %s", reg)
	}
}

// load writes a load of the elements that the mask has; the others become 0.
func (s *stream) load(address, reg string) {
	switch {
	case s.mask == "":
		s.ins("VMOVUPS %s, %s", address, reg)
	case s.bytes == 64:
		s.ins("VMOVUPS.Z %s, %s, %s", address, s.mask, reg)
	default:
		s.ins("VMASKMOVPS %s, %s, %s", address, s.mask, reg)
	}
}

// store writes a store of the elements that the mask has.
func (s *stream) store(reg, address string) {
	switch {
	case s.mask == "":
		s.ins("VMOVUPS %s, %s", reg, address)
	case s.bytes == 64:
		s.ins("VMOVUPS %s, %s, %s", reg, s.mask, address)
	default:
		s.ins("VMASKMOVPS %s, %s, %s", reg, s.mask, address)
	}
}

// keepMasked sets the elements that the mask lacks to 0.
func (s *stream) keepMasked(reg string) {
	switch {
	case s.mask == "":
	case s.bytes == 64:
		s.ins("VMOVAPS.Z %s, %s, %s", reg, s.mask, reg)
	default:
		s.ins("VANDPS %s, %s, %s", s.mask, reg, reg)
	}
}

// perVector writes body for each whole vector of CX elements and once more,
// with a mask, for the rest, and returns. The pointers advance by a vector each
// time.
func (r *routine) perVector(pointers string, body func()) {
	r.perVectorTo(pointers, "done", body)
	r.label("done")
	r.ret()
}

// perVectorTo is perVector that goes on at a label, which follows.
func (r *routine) perVectorTo(pointers, end string, body func()) {
	r.label("vector")
	r.ins("CMPQ CX, $%d", r.lanes())
	r.ins("JLT tail")
	body()
	for p := range strings.FieldsSeq(pointers) {
		r.ins("ADDQ $%d, %s", r.bytes, p)
	}
	r.ins("SUBQ $%d, CX", r.lanes())
	r.ins("JMP vector")
	r.label("tail")
	r.ins("TESTQ CX, CX")
	r.ins("JEQ %s", end)
	r.setMask()
	body()
	r.mask = ""
}
