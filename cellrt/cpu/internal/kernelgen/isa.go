package main

import "fmt"

// Architectures, as they end names of files.
const (
	amd64 = "amd64"
	arm64 = "arm64"
)

// isa is a vector instruction set.
type isa struct {
	name      string // as it ends names of functions: AVX2, AVX512, NEON
	prefix    string // of its vector registers: Y, Z or V
	bytes     int    // of a vector
	registers int
}

func avx2() isa   { return isa{name: "AVX2", prefix: "Y", bytes: 32, registers: 16} }
func avx512() isa { return isa{name: "AVX512", prefix: "Z", bytes: 64, registers: 32} }

// reg returns a vector register.
func (i isa) reg(n int) string {
	if n < 0 || n >= i.registers {
		panic(fmt.Sprintf("kernelgen: %s has no vector register %d", i.name, n))
	}
	return fmt.Sprintf("%s%d", i.prefix, n)
}

// lanes returns how many float32 values a vector holds.
func (i isa) lanes() int { return i.bytes / 4 }

// wide says whether the vectors are those of AVX-512.
func (i isa) wide() bool { return i.bytes == 64 }
