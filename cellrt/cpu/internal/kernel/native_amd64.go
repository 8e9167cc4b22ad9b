//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

// native returns the tables in assembly that this machine can run, the fastest
// last. Package cpu also checks that the operating system saves the registers.
func native() []*Table {
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA {
		return nil
	}
	tables := []*Table{avx2()}
	if !cpu.X86.HasAVX512F || !cpu.X86.HasAVX512BW || !cpu.X86.HasAVX512DQ || !cpu.X86.HasAVX512VL {
		return tables
	}
	tables = append(tables, avx512())
	if cpu.X86.HasAVX512VNNI {
		tables = append(tables, avx512VNNI())
	}
	return tables
}

func avx2() *Table {
	t := portable()
	t.Name, t.Width = "avx2", 16
	int8TierAVX2.setProducts(t)
	t.elementwise = avx2Elementwise()
	f, h := avx2Tilings()
	t.f32, t.bf16 = f32Product(f), bf16Product(h)
	t.peak = avx2Peak()
	return t
}

func avx512() *Table {
	t := portable()
	t.Name, t.Width = "avx512", 32
	int8TierAVX512.setProducts(t)
	t.elementwise = avx512Elementwise()
	f, h := avx512Tilings()
	t.f32, t.bf16 = f32Product(f), bf16Product(h)
	t.peak = avx512Peak()
	return t
}

func avx512VNNI() *Table {
	t := avx512()
	t.Name = "avx512vnni"
	int8TierVNNI.setProducts(t)
	return t
}
