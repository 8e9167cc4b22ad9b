package main

import "fmt"

// Registers of a tile: AX, R8, R9 and R10 point to rows 0, 4, 8 and 12 of the
// input, DX and BX are one and three strides of it, SI, R11, R12 and R13 point
// to the panels, and CX counts inputs. In a tile that prefetches, DI points to
// what it fetches next and R11 is how far that moves in a turn of the loop.

func rowBase(n int) string   { return []string{"AX", "R8", "R9", "R10"}[n] }
func panelBase(n int) string { return []string{"SI", "R11", "R12", "R13"}[n] }

const (
	rowsPerBase = 4
	cacheLine   = 64
)

func (t tile) rowBases() int { return (t.rows + rowsPerBase - 1) / rowsPerBase }

// input returns the operand of an element of the input, bytes after the
// current one.
func input(row, bytes int) string {
	index := []string{"", "(DX*1)", "(DX*2)", "(BX*1)"}[row%rowsPerBase]
	return fmt.Sprintf("%d(%s)%s", bytes, rowBase(row/rowsPerBase), index)
}

func tileDoc(name string, rows, panels int) string {
	return fmt.Sprintf("%s advances %d rows of %d panels by k inputs. Strides are in bytes.", name, rows, panels)
}

// tileParams returns the parameters of every tile.
func tileParams(f format) []param {
	return []param{
		{"k", "int"},
		{"x", "*" + f.input},
		{"xStride", "int"},
		{"w", "*" + f.goType},
		{"wStride", "int"},
		{"start", "*" + f.sum},
		{"startStride", "int"},
		{"y", "*" + f.sum},
		{"yStride", "int"},
	}
}

// write writes the tile's function.
func (t tile) write(u *unit) {
	params := tileParams(t.format)
	if t.prefetch {
		params = append(params, param{"ahead", "int"}, param{"stride", "int"})
	}
	f := u.function(t.routine(), tileDoc(t.routine(), t.rows, t.panels), params, nil)
	t.load(f)
	t.point(f)
	f.ins("SUBQ $%d, CX", unroll)
	f.ins("JLT rest")
	f.ins("PCALIGN $32")
	f.label("loop")
	for k := 0; k < unroll; k += t.depth {
		t.step(f, k, t.depth)
	}
	t.advance(f, unroll)
	if t.prefetch {
		f.ins("ADDQ R11, DI")
		t.prefetch = false // the rest is not worth it
	}
	f.ins("SUBQ $%d, CX", unroll)
	f.ins("JGE loop")
	f.label("rest")
	f.ins("ADDQ $%d, CX", unroll)
	t.rest(f)
	t.store(f)
	f.ret()
}

// load fills the accumulators.
func (t tile) load(f *function) {
	f.ins("MOVQ %s, DI", f.arg("start"))
	f.ins("MOVQ %s, DX", f.arg("startStride"))
	for r := range t.rows {
		for v := range t.vectors() {
			f.ins("VMOVUPS %d(DI), %s", v*t.bytes, t.accumulator(r, v))
		}
		if r+1 < t.rows {
			f.ins("ADDQ DX, DI")
		}
	}
}

// store writes the accumulators out.
func (t tile) store(f *function) {
	f.ins("MOVQ %s, DI", f.arg("y"))
	f.ins("MOVQ %s, DX", f.arg("yStride"))
	for r := range t.rows {
		for v := range t.vectors() {
			f.ins("VMOVUPS %s, %d(DI)", t.accumulator(r, v), v*t.bytes)
		}
		if r+1 < t.rows {
			f.ins("ADDQ DX, DI")
		}
	}
}

// point sets the general registers, and the mask.
func (t tile) point(f *function) {
	f.ins("MOVQ %s, CX", f.arg("k"))
	f.ins("MOVQ %s, AX", f.arg("x"))
	if t.rows > 1 {
		f.ins("MOVQ %s, DX", f.arg("xStride"))
	}
	if t.rows > 3 {
		f.ins("LEAQ (DX)(DX*2), BX")
	}
	for n := 1; n < t.rowBases(); n++ {
		f.ins("LEAQ (%s)(DX*4), %s", rowBase(n-1), rowBase(n))
	}
	f.ins("MOVQ %s, SI", f.arg("w"))
	if t.panels > 1 {
		f.ins("MOVQ %s, DI", f.arg("wStride"))
	}
	if t.prefetch {
		f.ins("MOVQ %s, DI", f.arg("ahead"))
		f.ins("ADDQ SI, DI")
		f.ins("MOVQ %s, R11", f.arg("stride"))
	}
	for n := 1; n < t.panels; n++ {
		f.ins("LEAQ (%s)(DI*1), %s", panelBase(n-1), panelBase(n))
	}
	if t.depth > 1 {
		// All ones, then zeros from the right.
		if t.wide() {
			f.ins("VPTERNLOGD $0xff, %[1]s, %[1]s, %[1]s", t.mask())
		} else {
			f.ins("VPCMPEQD %[1]s, %[1]s, %[1]s", t.mask())
		}
		f.ins("VPSLLD $16, %[1]s, %[1]s", t.mask())
	}
}

// advance moves the pointers by k inputs; for an odd rest of pairs they are not
// needed again.
func (t tile) advance(f *function, k int) {
	for n := range t.rowBases() {
		f.ins("ADDQ $%d, %s", 4*k, rowBase(n))
	}
	for n := range t.panels {
		f.ins("ADDQ $%d, %s", k/t.depth*panelVectors*t.bytes, panelBase(n))
	}
}

// rest takes the last inputs, fewer than a turn of the loop takes.
func (t tile) rest(f *function) {
	if t.depth == 1 {
		f.ins("JZ done")
		f.label("single")
		t.step(f, 0, 1)
		t.advance(f, 1)
		f.ins("DECQ CX")
		f.ins("JNZ single")
		f.label("done")
		return
	}
	f.ins("SUBQ $2, CX")
	f.ins("JLT odd")
	t.step(f, 0, 2)
	t.advance(f, 2)
	f.ins("SUBQ $2, CX")
	f.label("odd")
	// -2 or -1: nothing or one is left.
	f.ins("TESTQ $1, CX")
	f.ins("JZ done")
	t.step(f, 0, 1)
	f.label("done")
}

// step takes the inputs from k on, count of them, which one vector of weights
// covers.
func (t tile) step(f *function, k, count int) {
	at := k / t.depth * panelVectors * t.bytes
	if t.prefetch {
		for line := at / cacheLine; line*cacheLine < at+panelVectors*t.bytes; line++ {
			f.ins("PREFETCHT0 %d(DI)", line*cacheLine)
		}
	}
	for half := range count {
		if t.holdsWeights() {
			t.throughRows(f, 4*(k+half), at, half)
		} else {
			t.throughWeights(f, 4*(k+half), at, half)
		}
	}
}

// weights puts one vector of weights into a register.
func (t tile) weights(f *function, vector, at, half int, reg string) {
	memory := t.weightsMemory(vector, at)
	switch {
	case t.depth == 1:
		f.ins("VMOVUPS %s, %s", memory, reg)
	case half == 1 && t.wide():
		f.ins("VPANDD %s, %s, %s", memory, t.mask(), reg)
	case half == 1:
		f.ins("VPAND %s, %s, %s", memory, t.mask(), reg)
	case t.wide():
		f.ins("VPSLLD $16, %s, %s", memory, reg)
	default:
		f.ins("VMOVDQU %s, %s", memory, reg)
		f.ins("VPSLLD $16, %[1]s, %[1]s", reg)
	}
}

func (t tile) weightsMemory(vector, at int) string {
	return fmt.Sprintf("%d(%s)", at+vector%panelVectors*t.bytes, panelBase(vector/panelVectors))
}

func (t tile) throughRows(f *function, x, at, half int) {
	for v := range t.vectors() {
		t.weights(f, v, at, half, t.held(v))
	}
	for r := range t.rows {
		f.ins("VBROADCASTSS %s, %s", input(r, x), t.temporary(r))
		for v := range t.vectors() {
			f.ins("VFMADD231PS %s, %s, %s", t.held(v), t.temporary(r), t.accumulator(r, v))
		}
	}
}

func (t tile) throughWeights(f *function, x, at, half int) {
	for r := range t.rows {
		f.ins("VBROADCASTSS %s, %s", input(r, x), t.held(r))
	}
	for v := range t.vectors() {
		w := t.temporary(v)
		if t.rows == 1 && t.depth == 1 {
			w = t.weightsMemory(v, at)
		} else {
			t.weights(f, v, at, half, w)
		}
		for r := range t.rows {
			f.ins("VFMADD231PS %s, %s, %s", w, t.held(r), t.accumulator(r, v))
		}
	}
}
