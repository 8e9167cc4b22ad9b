package main

import (
	"fmt"
	"slices"
	"strings"
)

// neonElementwise generates for NEON what elementwise does for amd64. The last
// elements, fewer than a vector has, are taken one at a time, in the lowest
// element of registers.
func neonElementwise() *unit {
	u := &unit{name: "elementwise", arch: arm64}
	emitNeonTanh(u)
	emitNeonGates(u)
	emitNeonAttention(u)
	emitNeonGreedy(u)
	return u
}

// neonRoutine is a routine whose general registers are R0 to R15.
type neonRoutine struct {
	*routine

	single bool // works on one element instead of a vector
}

func neonStart(u *unit, name, doc string, params, results []param) *neonRoutine {
	return &neonRoutine{routine: u.routine(neon(), name, name+"NEON "+doc, params, results)}
}

// hold keeps constants in registers for the whole function. All routines read
// them from one table, each repeated over a vector.
func (r *neonRoutine) hold(names string) {
	list := strings.Fields(neonConstants)
	var words []uint32
	for _, name := range list {
		bits := constantBits(name)
		words = append(words, bits, bits, bits, bits)
	}
	r.ins("MOVD $%s, R15", r.data("constants", words))
	for name := range strings.FieldsSeq(names) {
		reg := r.take()
		r.held[name] = reg
		r.ins("FMOVQ %s, %s", at(slices.Index(list, name)*r.bytes, "R15"), float(reg))
	}
}

// neonStream is a stream of instructions for NEON.
type neonStream struct {
	*stream

	single bool
}

func (r *neonRoutine) stream(n int) neonStream {
	return neonStream{stream: r.routine.stream(n), single: r.single}
}

// weave writes streams side by side.
func (r *neonRoutine) weave(streams ...neonStream) {
	var plain []*stream
	for _, s := range streams {
		plain = append(plain, s.stream)
	}
	r.interleave(plain...)
}

// do writes an instruction that Go's assembler lacks, on float32.
func (s neonStream) do(name string, registers ...string) {
	s.ins("%s", neonWord(name, "4s", registers...))
}

// fused writes destination += a b, or -= with the name VFMLS.
func (s neonStream) fused(name, a, b, destination string) {
	s.ins("%s %s.S4, %s.S4, %s.S4", name, a, b, destination)
}

// integers writes an instruction of Go's assembler on 32-bit integers.
func (s neonStream) integers(name, a, b, destination string) {
	s.ins("%s %s.S4, %s.S4, %s.S4", name, a, b, destination)
}

// bitwise writes an instruction of Go's assembler on bits.
func (s neonStream) bitwise(name, a, b, destination string) {
	s.ins("%s %s.B16, %s.B16, %s.B16", name, a, b, destination)
}

// copy copies a register, or a constant.
func (s neonStream) copy(from, to string) { s.ins("VMOV %s.B16, %s.B16", from, to) }

// load reads the next elements at a pointer, which it moves on.
func (s neonStream) load(pointer, reg string) { s.ins("%s, %s", s.next(pointer), float(reg)) }

// next returns the beginning of a load of the next elements.
func (s neonStream) next(pointer string) string {
	if s.single {
		return fmt.Sprintf("FMOVS.P 4(%s)", pointer)
	}
	return fmt.Sprintf("FMOVQ.P 16(%s)", pointer)
}

// store writes the next elements at a pointer, which it moves on.
func (s neonStream) store(reg, pointer string) {
	if s.single {
		s.ins("FMOVS.P %s, 4(%s)", float(reg), pointer)
		return
	}
	s.ins("FMOVQ.P %s, 16(%s)", float(reg), pointer)
}

// perVector writes body for each whole vector of R2 elements, then for each
// element that is left, and returns. The body moves the pointers on.
func (r *neonRoutine) perVector(body func()) {
	r.perVectorTo("done", body)
	r.label("done")
	r.ret()
}

// perVectorTo is perVector that goes on at a label, which follows.
func (r *neonRoutine) perVectorTo(end string, body func()) {
	r.label("vector")
	r.ins("CMP $%d, R2", r.lanes())
	r.ins("BLT tail")
	body()
	r.ins("SUB $%d, R2, R2", r.lanes())
	r.ins("B vector")
	r.label("tail")
	r.ins("CBZ R2, %s", end)
	r.single = true
	body()
	r.single = false
	r.ins("SUB $1, R2, R2")
	r.ins("B tail")
}

// clear sets a register to zero.
func (r *neonRoutine) clear(reg string) { r.ins("VEOR %[1]s.B16, %[1]s.B16, %[1]s.B16", reg) }

// repeat loads a parameter into all elements of a register.
func (r *neonRoutine) repeat(name, reg string) {
	r.ins("FMOVS %s, %s", r.arg(name), float(reg))
	r.ins("VDUP %[1]s.S[0], %[1]s.S4", reg)
}
