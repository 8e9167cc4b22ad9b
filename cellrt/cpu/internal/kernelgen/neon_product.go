package main

import (
	"fmt"
	"strings"
)

// Registers of a tile: R0 counts inputs, R1 to R6 point to the rows of the input
// and R8 to R11 to the panels; R7, R12 and R13 serve for the rest.

const (
	neonPanelVectors = 4 // a panel of 16 columns
	neonRows         = 6
)

// neonTile is a tile for NEON: accumulators first, then a register for the
// inputs of each row, then temporaries for weights. Instructions multiply a
// vector by one element of another, so that a load of inputs brings those of a
// whole turn of the loop. The mask of bfloat16 is last, if there is room.
type neonTile struct {
	isa
	format
	rows, panels int
}

func (t neonTile) routine() string {
	return fmt.Sprintf("tile%s%sx%dx%d", t.format.name, t.isa.name, t.rows, t.panels)
}

// vectors returns how many vectors of weights the tile spans.
func (t neonTile) vectors() int { return t.panels * neonPanelVectors }

func (t neonTile) accumulator(row, vector int) string { return t.reg(row*t.vectors() + vector) }

func (t neonTile) input(row int) string { return t.reg(t.rows*t.vectors() + row) }

// temporaries returns how many registers are left.
func (t neonTile) temporaries() int { return t.registers - t.rows*(t.vectors()+1) }

// mask returns the register of bfloat16's mask, or "".
func (t neonTile) mask() string {
	if t.depth == 1 || t.temporaries() < 3 {
		return ""
	}
	return t.reg(t.registers - 1)
}

// temporary returns the n-th of up to eight temporaries, in turns.
func (t neonTile) temporary(n int) string {
	left := t.temporaries()
	if t.mask() != "" {
		left--
	}
	return t.reg(t.rows*(t.vectors()+1) + n%(min(left, 8)&^1))
}

// fits says whether the registers suffice: weights take two.
func (t neonTile) fits() bool { return t.temporaries() >= 2 }

// neonProduct returns the tiles of a format and the function that fills a table
// with them.
func neonProduct(name string, f format) *unit {
	u := &unit{name: name, arch: arm64}
	text := fmt.Sprintf("\n// fill%[1]sNEON sets the tiles of NEON.\nfunc fill%[1]sNEON(t *tiling[%[2]s]) {\n", f.name, f.goType)
	for panels := 1; panels <= maxPanels; panels++ {
		list := []string{"nil"}
		for _, t := range neonTiles(neon(), f, panels) {
			t.write(u)
			list = append(list, t.routine())
		}
		text += fmt.Sprintf("\tt.tiles[%d] = []tile[%s]{%s}\n", panels, f.goType, strings.Join(list, ", "))
	}
	u.stubs.WriteString(text + "}\n")
	return u
}

// neonTiles returns the tiles of so many panels, by rows.
func neonTiles(i isa, f format, panels int) []neonTile {
	var tiles []neonTile
	for t := (neonTile{isa: i, format: f, rows: 1, panels: panels}); t.fits() && t.rows <= neonRows; t.rows++ {
		tiles = append(tiles, t)
	}
	return tiles
}

// write writes the tile's function.
func (t neonTile) write(u *unit) {
	f := u.function(t.routine(), tileDoc(t.routine(), t.rows, t.panels), tileParams(t.format), nil)
	t.move(f, "start", "FLDPQ %[2]s, (%[1]s)")
	t.point(f)
	f.ins("SUBS $%d, R0, R0", unroll)
	f.ins("BLT rest")
	f.ins("PCALIGN $32")
	f.label("loop")
	t.inputs(f, unroll)
	for k := 0; k < unroll; k += t.depth {
		t.step(f, k, t.depth)
	}
	t.advance(f, unroll)
	f.ins("SUBS $%d, R0, R0", unroll)
	f.ins("BGE loop")
	f.label("rest")
	f.ins("ADDS $%d, R0, R0", unroll)
	f.ins("BEQ done")
	t.rest(f)
	f.label("done")
	t.move(f, "y", "FSTPQ (%[1]s), %[2]s")
	f.ret()
}

// move loads or stores the accumulators, two at a time.
func (t neonTile) move(f *function, block, instruction string) {
	f.ins("MOVD %s, R12", f.arg(block))
	if t.rows > 1 {
		f.ins("MOVD %s, R13", f.arg(block+"Stride"))
	}
	for r := range t.rows {
		for v := 0; v < t.vectors(); v += 2 {
			pair := float(t.accumulator(r, v)) + ", " + float(t.accumulator(r, v+1))
			f.ins(instruction, pair, at(v*t.bytes, "R12"))
		}
		if r+1 < t.rows {
			f.ins("ADD R13, R12, R12")
		}
	}
}

// point sets the general registers.
func (t neonTile) point(f *function) {
	f.ins("MOVD %s, R0", f.arg("k"))
	f.ins("MOVD %s, R1", f.arg("x"))
	if t.rows > 1 {
		f.ins("MOVD %s, R7", f.arg("xStride"))
	}
	for r := 1; r < t.rows; r++ {
		f.ins("ADD R7, R%d, R%d", r, r+1)
	}
	f.ins("MOVD %s, R8", f.arg("w"))
	if t.panels > 1 {
		f.ins("MOVD %s, R7", f.arg("wStride"))
	}
	for p := 1; p < t.panels; p++ {
		f.ins("ADD R7, R%d, R%d", 7+p, 8+p)
	}
	if mask := t.mask(); mask != "" {
		f.ins("VMOVI $255, %s.B16", mask)
		f.ins("VSHL $16, %[1]s.S4, %[1]s.S4", mask)
	}
}

// inputs loads 1, 2 or 4 inputs of each row and moves the pointers on.
func (t neonTile) inputs(f *function, count int) {
	load := map[int]string{1: "FMOVS.P", 2: "FMOVD.P", 4: "FMOVQ.P"}[count]
	for r := range t.rows {
		f.ins("%s %d(R%d), %s", load, 4*count, 1+r, float(t.input(r)))
	}
}

// advance moves the pointers to the panels by k inputs.
func (t neonTile) advance(f *function, k int) {
	for p := range t.panels {
		f.ins("ADD $%d, R%d, R%d", k/t.depth*neonPanelVectors*t.bytes, 8+p, 8+p)
	}
}

// rest takes the last inputs, fewer than a turn of the loop takes.
func (t neonTile) rest(f *function) {
	if t.depth == 1 {
		f.label("single")
		t.inputs(f, 1)
		t.step(f, 0, 1)
		t.advance(f, 1)
		f.ins("SUBS $1, R0, R0")
		f.ins("BNE single")
		return
	}
	f.ins("TBZ $1, R0, odd")
	t.inputs(f, 2)
	t.step(f, 0, 2)
	t.advance(f, 2)
	f.label("odd")
	f.ins("TBZ $0, R0, done")
	t.inputs(f, 1)
	t.step(f, 0, 1)
}

// step multiplies the inputs from k on, of those that are loaded, count of
// them, with the weights for them.
func (t neonTile) step(f *function, k, count int) {
	memory := func(v int) string {
		return fmt.Sprintf("%d(R%d)", (k/t.depth*neonPanelVectors+v%neonPanelVectors)*t.bytes, 8+v/neonPanelVectors)
	}
	for v := 0; v < t.vectors(); v += 2 {
		if t.depth > 1 {
			t.pairs(f, k, count, v, memory(v))
			t.pairs(f, k, count, v+1, memory(v+1))
			continue
		}
		a, b := t.temporary(v), t.temporary(v+1)
		f.ins("FLDPQ %s, (%s, %s)", memory(v), float(a), float(b))
		t.multiply(f, k, v, a)
		t.multiply(f, k, v+1, b)
	}
}

// pairs multiplies input k, and k+1 if count is 2, with a vector of pairs of
// bfloat16 weights.
func (t neonTile) pairs(f *function, k, count, vector int, memory string) {
	first, second := t.temporary(2*vector), t.temporary(2*vector+1)
	f.ins("FMOVQ %s, %s", memory, float(second))
	f.ins("VSHL $16, %s.S4, %s.S4", second, first)
	t.multiply(f, k, vector, first)
	if count == 1 {
		return
	}
	if mask := t.mask(); mask != "" {
		f.ins("VAND %[1]s.B16, %[2]s.B16, %[2]s.B16", mask, second)
	} else {
		f.ins("VUSHR $16, %[1]s.S4, %[1]s.S4", second)
		f.ins("VSHL $16, %[1]s.S4, %[1]s.S4", second)
	}
	t.multiply(f, k+1, vector, second)
}

// multiply adds a vector of weights times input k, or group k of 8-bit codes, to
// the accumulators of all rows.
func (t neonTile) multiply(f *function, k, vector int, weights string) {
	for r := range t.rows {
		line := multiplyAddLane
		if t.sum == "int32" {
			line = dotLane
		}
		f.ins("%s", line(t.input(r), k, weights, t.accumulator(r, vector)))
	}
}
