//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

// native returns the tables in assembly that this machine can run, the fastest
// last: every processor that Go runs on here has NEON.
func native() []*Table {
	tables := []*Table{neon()}
	if cpu.ARM64.HasASIMDDP {
		tables = append(tables, neonDot())
	}
	return tables
}

func neon() *Table {
	t := portable()
	t.Name, t.Width = "neon", 16
	t.elementwise = neonElementwise()
	t.quantize = quantizeNEON
	f, h := neonTilings()
	t.f32, t.bf16 = f32Product(f), bf16Product(h)
	t.peak = neonPeak()
	return t
}

func neonDot() *Table {
	t := neon()
	t.Name = "neondot"
	t.int8, t.layout = productDot, quads
	return t
}
