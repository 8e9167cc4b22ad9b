package main

import (
	"fmt"
	"strconv"
)

func neon() isa { return isa{name: "NEON", prefix: "V", bytes: 16, registers: 32} }

// neonCode is the code of an instruction on vectors that Go's assembler lacks,
// with the register numbers left out.
type neonCode struct {
	name string // as in the processor's manual
	bits uint32
}

// word returns the line for an instruction of one destination and one or two
// sources: names of registers, in the order of Go's assembler. The comment has
// the manual's order, the destination first.
func (c neonCode) word(sources []string, destination string) string {
	code := c.bits | number(destination)
	text := fmt.Sprintf("%s v%d.4s", c.name, number(destination))
	shift := 5
	for i := range sources {
		n := number(sources[len(sources)-1-i])
		code |= n << shift
		shift += 11
		text += fmt.Sprintf(", v%d.4s", n)
	}
	return fmt.Sprintf("WORD $0x%08x // %s", code, text)
}

// multiplyAddLane returns the line that adds a times one element of b to the
// destination, for each element of a with one rounding.
func multiplyAddLane(b string, lane int, a, destination string) string {
	element := uint32(lane)
	code := 0x4f801000 | element&1<<21 | number(b)<<16 | element>>1<<11 | number(a)<<5 | number(destination)
	return fmt.Sprintf("WORD $0x%08x // fmla v%d.4s, v%d.4s, v%d.s[%d]", code, number(destination), number(a), number(b), lane)
}

// number returns the number of a vector register.
func number(reg string) uint32 {
	n, err := strconv.ParseUint(reg[1:], 10, 5)
	if err != nil {
		panic("kernelgen: no vector register " + reg)
	}
	return uint32(n)
}

// float returns a vector register's name where an instruction takes a number,
// or loads and stores.
func float(reg string) string { return "F" + reg[1:] }
