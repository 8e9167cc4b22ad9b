package main

import "fmt"

// int8Kernel describes the products of 8-bit codes for one tier: tiles of rows
// rows and so many panels, two vectors a panel.
//
// With VNNI a group is four inputs: VPDPBUSD multiplies the four bytes of each
// lane and adds all to the lane's sum. Without it a group is two inputs:
// weights are widened to words, and VPMADDWD, then VPADDD do the same. (The
// byte form, VPMADDUBSW, saturates.)
type int8Kernel struct {
	isa
	tier string
	vnni bool
	// rows is how many rows a tile of 1, 2, 3 or 4 panels has at most.
	rows [4]int
}

// int8Unit returns the products of 8-bit codes of one tier.
func int8Unit(name string, i isa, vnni bool) *unit {
	k := int8Kernel{isa: i, tier: i.name, vnni: vnni, rows: [4]int{14, 3, 3, 3}}
	if vnni {
		k.tier, k.rows[1] = "VNNI", 7
	}
	if i.registers == 16 {
		k.rows = [4]int{6, 3, 2, 1}
	}
	u := &unit{name: name, arch: amd64}
	// The offsets of fields come from the compiler.
	u.constantAsm.WriteString("#include \"go_asm.h\"\n\n")
	for panels := 1; panels <= len(k.rows); panels++ {
		for rows := 1; rows <= k.rows[panels-1]; rows++ {
			k.tile(u, rows, panels)
		}
	}
	k.dispatch(u)
	k.quantizer(u)
	return u
}

func (k int8Kernel) tileName(rows, panels int) string {
	return fmt.Sprintf("int8%s%dx%d", k.tier, rows, panels)
}

// dispatch writes the Go function that calls the routine of a tile. Calls
// through a table would move every tile to the heap.
func (k int8Kernel) dispatch(u *unit) {
	p := func(format string, args ...any) { fmt.Fprintf(&u.stubs, format+"\n", args...) }
	p("\n// int8%s computes a tile of so many rows and panels.", k.tier)
	p("func int8%s(t *int8Tile, rows, panels int) {", k.tier)
	p("\tswitch panels<<4 | rows {")
	for panels := 1; panels <= len(k.rows); panels++ {
		for rows := 1; rows <= k.rows[panels-1]; rows++ {
			p("\tcase %d<<4 | %d:\n\t\t%s(t)", panels, rows, k.tileName(rows, panels))
		}
	}
	p("\tdefault:\n\t\tpanic(\"kernel: no such tile of 8-bit codes\")\n\t}\n}")
}

// Registers of a tile. AX is the tile; SI, DI and R8 are the codes of rows 0,
// 5 and 10, R9 and R10 one and three times their stride; BX are the weights of
// panel 0, CX and R11 one and three times the stride of panels; DX counts
// groups; R12 is how far ahead weights are fetched, and R13 the same plus the
// stride of panels.

func int8Field(name string) string { return "int8Tile_" + name + "(AX)" }

// codes returns the operand of group g of row r.
func (k int8Kernel) codes(r, g int) string {
	const groupBytes = 4 // four bytes or two words
	base := []string{"SI", "DI", "R8"}[r/5]
	index := []string{"", "(R9*1)", "(R9*2)", "(R10*1)", "(R9*4)"}[r%5]
	return fmt.Sprintf("%d(%s)%s", g*groupBytes, base, index)
}

// weights returns the operand of vector v of panel p in group g.
func (k int8Kernel) weights(p, g, v int) string {
	index := []string{"", "(CX*1)", "(CX*2)", "(R11*1)"}[p]
	return fmt.Sprintf("%d(BX)%s", (2*g+v)*k.weightBytes(), index)
}

// weightBytes returns the bytes of memory that make one vector of weights.
func (k int8Kernel) weightBytes() int {
	if k.vnni {
		return k.bytes
	}
	return k.bytes / 2
}

// int8Shape is a tile's size and its registers: the accumulators, row by row,
// come first, then weights, input codes and a product.
type int8Shape struct {
	rows, panels int
	weights      int
	// input is the first of one register for each row if resident, or else the only
	// one.
	input    int
	resident bool
	product  int
}

func (k int8Kernel) shape(rows, panels int) int8Shape {
	s := int8Shape{rows: rows, panels: panels, weights: 2 * rows * panels}
	s.input = s.weights + 2
	s.resident = panels > 1 && s.input+rows+1 <= k.registers
	s.product = s.input + 1
	if s.resident {
		s.product = s.input + rows
	}
	return s
}

// unroll returns how many groups the loop of a tile takes at a time: more for
// small tiles, where counting would cost.
func (k int8Kernel) unroll(s int8Shape) int {
	switch products := s.rows * s.panels; {
	case products >= 6 && k.weightBytes() >= 32:
		return 1
	case products >= 3:
		return 2
	}
	return 4
}

// acc returns the accumulator of a row's vector v in panel p.
func (s int8Shape) acc(r, p, v int) int { return (r*s.panels+p)*2 + v }

func (k int8Kernel) move() string {
	if k.bytes == 64 {
		return "VMOVDQU32"
	}
	return "VMOVDQU"
}

// tile writes one routine.
func (k int8Kernel) tile(u *unit, rows, panels int) {
	name := k.tileName(rows, panels)
	f := u.function(name, name+" computes a tile of that many rows and panels.", []param{{"t", "*int8Tile"}}, nil)
	s := k.shape(rows, panels)
	f.ins("MOVQ %s, AX", f.arg("t"))
	k.loadSums(f, s)
	k.loadPointers(f, s)
	if unroll := k.unroll(s); unroll > 1 {
		f.ins("SUBQ $%d, DX", unroll)
		f.ins("JLT under")
		f.label("loop")
		k.groups(f, s, unroll)
		f.ins("SUBQ $%d, DX", unroll)
		f.ins("JGE loop")
		f.label("under")
		f.ins("ADDQ $%d, DX", unroll)
	}
	f.ins("TESTQ DX, DX")
	f.ins("JEQ done")
	f.label("one")
	k.groups(f, s, 1)
	f.ins("DECQ DX")
	f.ins("JNE one")
	f.label("done")
	k.storeSums(f, s)
	k.finish(f, s)
}

func (k int8Kernel) loadSums(f *function, s int8Shape) {
	f.ins("MOVQ %s, R13", int8Field("sums"))
	f.ins("MOVQ %s, R12", int8Field("sumStride"))
	for r := range s.rows {
		for v := range 2 * s.panels {
			f.ins("%s %d(R13), %s", k.move(), v*k.bytes, k.reg(s.acc(r, 0, v)))
		}
		if r < s.rows-1 {
			f.ins("ADDQ R12, R13")
		}
	}
}

func (k int8Kernel) loadPointers(f *function, s int8Shape) {
	f.ins("MOVQ %s, SI", int8Field("codes"))
	f.ins("MOVQ %s, R9", int8Field("codeStride"))
	f.ins("LEAQ (R9)(R9*2), R10")
	if s.rows > 5 {
		f.ins("LEAQ (SI)(R9*4), DI")
		f.ins("ADDQ R9, DI")
	}
	if s.rows > 10 {
		f.ins("LEAQ (DI)(R9*4), R8")
		f.ins("ADDQ R9, R8")
	}
	f.ins("MOVQ %s, BX", int8Field("weights"))
	f.ins("MOVQ %s, CX", int8Field("panelStride"))
	f.ins("LEAQ (CX)(CX*2), R11")
	f.ins("MOVQ %s, R12", int8Field("ahead"))
	if s.panels > 1 && s.fetches() {
		f.ins("LEAQ (CX)(R12*1), R13")
	}
	f.ins("MOVQ %s, DX", int8Field("groups"))
}

// groups adds n groups to the sums and moves on.
func (k int8Kernel) groups(f *function, s int8Shape, n int) {
	for g := range n {
		if s.resident {
			for r := range s.rows {
				f.ins("VPBROADCASTD %s, %s", k.codes(r, g), k.reg(s.input+r))
			}
		}
		for p := range s.panels {
			k.fetch(f, s, p, g)
			k.panel(f, s, p, g)
		}
	}
	f.ins("ADDQ $%d, SI", 4*n)
	if s.rows > 5 {
		f.ins("ADDQ $%d, DI", 4*n)
	}
	if s.rows > 10 {
		f.ins("ADDQ $%d, R8", 4*n)
	}
	f.ins("ADDQ $%d, BX", 2*n*k.weightBytes())
}

// fetches says whether a tile fetches its weights: not those of up to three
// rows and several panels, which keep enough reads under way.
func (s int8Shape) fetches() bool { return s.panels == 1 || s.rows > 3 }

// fetch asks for the cache lines of a panel's weights that are further on.
func (k int8Kernel) fetch(f *function, s int8Shape, p, g int) {
	const line = 64
	if !s.fetches() {
		return
	}
	bytes := 2 * k.weightBytes()
	for at := g * bytes; at < (g+1)*bytes; at++ {
		if at%line == 0 {
			f.ins("PREFETCHT0 %d(BX)(%s*1)", at, []string{"R12", "R13"}[p])
		}
	}
}

// panel adds one group of one panel to the sums of all rows.
func (k int8Kernel) panel(f *function, s int8Shape, p, g int) {
	fromMemory := k.vnni && s.rows == 1
	if !fromMemory {
		for v := range 2 {
			load := k.move()
			if !k.vnni {
				load = "VPMOVSXBW"
			}
			f.ins("%s %s, %s", load, k.weights(p, g, v), k.reg(s.weights+v))
		}
	}
	for r := range s.rows {
		input := k.reg(s.input)
		if s.resident {
			input = k.reg(s.input + r)
		} else {
			f.ins("VPBROADCASTD %s, %s", k.codes(r, g), input)
		}
		for v := range 2 {
			weights, acc := k.reg(s.weights+v), k.reg(s.acc(r, p, v))
			if fromMemory {
				weights = k.weights(p, g, v)
			}
			if k.vnni {
				f.ins("VPDPBUSD %s, %s, %s", weights, input, acc)
				continue
			}
			product := k.reg(s.product)
			f.ins("VPMADDWD %s, %s, %s", weights, input, product)
			f.ins("VPADDD %s, %s, %s", product, acc, acc)
		}
	}
}

// storeSums returns with unfinished sums if the tile has a place for them.
func (k int8Kernel) storeSums(f *function, s int8Shape) {
	f.ins("MOVQ %s, R13", int8Field("partial"))
	f.ins("TESTQ R13, R13")
	f.ins("JEQ finish")
	for r := range s.rows {
		for v := range 2 * s.panels {
			f.ins("%s %s, %d(R13)", k.move(), k.reg(s.acc(r, 0, v)), (2*r*s.panels+v)*k.bytes)
		}
	}
	f.ret()
	f.label("finish")
}

// finish turns sums into results.
func (k int8Kernel) finish(f *function, s int8Shape) {
	for _, p := range [][2]string{
		{"scales", "SI"}, {"rowScales", "DI"}, {"init", "R8"}, {"initStride", "R9"}, {"y", "R10"}, {"yStride", "R11"},
	} {
		f.ins("MOVQ %s, %s", int8Field(p[0]), p[1])
	}
	scale := k.reg(s.input)
	for r := range s.rows {
		f.ins("VBROADCASTSS %d(DI), %s", 4*r, scale)
		for v := range 2 * s.panels {
			acc := k.reg(s.acc(r, 0, v))
			f.ins("VCVTDQ2PS %s, %s", acc, acc)
			f.ins("VMULPS %d(SI), %s, %s", v*k.bytes, acc, acc)
			f.ins("VFMADD213PS %d(R8), %s, %s", v*k.bytes, scale, acc)
			f.ins("VMOVUPS %s, %d(R10)", acc, v*k.bytes)
		}
		if r < s.rows-1 {
			f.ins("ADDQ R9, R8")
			f.ins("ADDQ R11, R10")
		}
	}
	f.ret()
}
