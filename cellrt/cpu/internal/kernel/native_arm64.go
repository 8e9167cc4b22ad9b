//go:build !purego

package kernel

// native returns the table in assembly: every processor that Go runs on here has
// NEON.
func native() []*Table { return []*Table{neon()} }

func neon() *Table {
	t := portable()
	t.Name, t.Width = "neon", 16
	t.elementwise = neonElementwise()
	f, h := neonTilings()
	t.f32, t.bf16 = f32Product(f), bf16Product(h)
	t.peak = neonPeak()
	return t
}
