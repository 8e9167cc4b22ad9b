package main

import (
	"fmt"
	"strconv"
)

func neon() isa { return isa{name: "NEON", prefix: "V", bytes: 16, registers: 32} }

// neonCode is an instruction on vectors that Go's assembler lacks.
type neonCode struct {
	name     string // as in the processor's manual
	bits     uint32 // with 0 for the numbers of all registers
	from, to string // how the sources and the destination are divided
}

// neonCodes returns the instructions. Those with two sources have the second one
// of the manual first, as Go's assembler would.
func neonCodes() []neonCode {
	return []neonCode{
		{"fadd", 0x4e20d400, "4s", "4s"},
		{"fsub", 0x4ea0d400, "4s", "4s"},
		{"fmul", 0x6e20dc00, "4s", "4s"},
		{"fdiv", 0x6e20fc00, "4s", "4s"},
		{"fmax", 0x4e20f400, "4s", "4s"},
		{"fmin", 0x4ea0f400, "4s", "4s"},
		{"fcmgt", 0x6ea0e400, "4s", "4s"},
		{"fcmeq", 0x4e20e400, "4s", "4s"},
		{"fabs", 0x4ea0f800, "4s", "4s"},
		{"fneg", 0x6ea0f800, "4s", "4s"},
		{"fcvtns", 0x4e21a800, "4s", "4s"},
		{"scvtf", 0x4e21d800, "4s", "4s"},
		{"umax", 0x6ea06400, "4s", "4s"},
		{"fcvtl", 0x0e617800, "2s", "2d"},
		{"fcvtl2", 0x4e617800, "4s", "2d"},
		{"fadd", 0x4e60d400, "2d", "2d"},
	}
}

// neonWord returns the line for an instruction on vectors of float32, or of
// another kind that its destination has. The registers stand as in Go's
// assembler, the destination last; the comment is the manual's text.
func neonWord(name, to string, registers ...string) string {
	for _, c := range neonCodes() {
		if c.name == name && c.to == to {
			return c.word(registers)
		}
	}
	panic("kernelgen: no instruction " + name)
}

func (c neonCode) word(registers []string) string {
	last := len(registers) - 1
	destination := number(registers[last])
	code := c.bits | destination
	text := fmt.Sprintf("%s v%d.%s", c.name, destination, c.to)
	shift := 5
	for i := last - 1; i >= 0; i-- {
		source := number(registers[i])
		code |= source << shift
		shift = 16
		text += fmt.Sprintf(", v%d.%s", source, c.from)
	}
	return word(code, text)
}

func word(code uint32, text string) string { return fmt.Sprintf("WORD $0x%08x // %s", code, text) }

// multiplyAddLane returns the line that adds a times one element of b to the
// destination, for each element of a with one rounding.
func multiplyAddLane(b string, lane int, a, destination string) string {
	element := uint32(lane)
	code := 0x4f801000 | element&1<<21 | number(b)<<16 | element>>1<<11 | number(a)<<5 | number(destination)
	return word(code, fmt.Sprintf("fmla v%d.4s, v%d.4s, v%d.s[%d]", number(destination), number(a), number(b), lane))
}

// dotLane returns the line that adds to each element of the destination the
// products of its four bytes in a with the four of one element of b.
func dotLane(b string, lane int, a, destination string) string {
	element := uint32(lane)
	code := 0x4f80e000 | element&1<<21 | number(b)<<16 | element>>1<<11 | number(a)<<5 | number(destination)
	return word(code, fmt.Sprintf("sdot v%d.4s, v%d.16b, v%d.4b[%d]", number(destination), number(a), number(b), lane))
}

// halve returns the line that divides the elements, as signed integers, by two,
// downwards.
func halve(from, to string) string {
	return word(0x4f3f0400|number(from)<<5|number(to), fmt.Sprintf("sshr v%d.4s, v%d.4s, #1", number(to), number(from)))
}

// maxAcross returns the line that puts the largest element of a vector into the
// first element of another: NaN if one is.
func maxAcross(from, to string) string {
	return word(0x6e30f800|number(from)<<5|number(to), fmt.Sprintf("fmaxv s%d, v%d.4s", number(to), number(from)))
}

// number returns the number of a vector register.
func number(reg string) uint32 {
	n, err := strconv.ParseUint(reg[1:], 10, 5)
	if err != nil {
		panic("kernelgen: no vector register " + reg)
	}
	return uint32(n)
}

// float returns a vector register's name as instructions on numbers, loads and
// stores have it.
func float(reg string) string { return "F" + reg[1:] }
