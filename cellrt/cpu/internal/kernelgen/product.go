package main

import (
	"fmt"
	"strings"
)

// format is how the weights of a product are stored.
type format struct {
	name   string // as it stands in names of functions
	goType string
	depth  int // inputs that one vector of weights covers: 1, or 2 for pairs of bfloat16

	input, sum string // Go types of an input and of an accumulator
}

func formatF32() format {
	return format{name: "F32", goType: "float32", depth: 1, input: "float32", sum: "float32"}
}

func formatBF16() format {
	return format{name: "BF16", goType: "uint16", depth: 2, input: "float32", sum: "float32"}
}

const (
	// panelVectors is how many vectors a panel is wide.
	panelVectors = 2
	// unroll is how many inputs a turn of a product's loop takes.
	unroll = 4
	// maxPanels is how many panels one tile spans at most.
	maxPanels = 4
)

// tile is a routine that computes rows x panels outputs: all of its
// accumulators stay in registers over the whole range of inputs. The
// accumulator of a row and a vector of weights is register row*vectors()+vector;
// after them come the held operands, then the temporaries, and the mask of
// bfloat16 is last. A tile that prefetches has one panel, and two parameters
// more.
type tile struct {
	isa
	format
	rows, panels int
	prefetch     bool
}

// routine returns the name of the tile's function.
func (t tile) routine() string {
	suffix := ""
	if t.prefetch {
		suffix = "Ahead"
	}
	return fmt.Sprintf("tile%s%sx%dx%d%s", t.format.name, t.isa.name, t.rows, t.panels, suffix)
}

// vectors returns how many vectors of weights the tile spans.
func (t tile) vectors() int { return t.panels * panelVectors }

// holdsWeights says whether a step keeps its weights in registers and goes
// through the rows, or keeps the inputs and goes through the weights: whatever
// takes fewer registers.
func (t tile) holdsWeights() bool { return t.vectors() <= t.rows }

func (t tile) accumulator(row, vector int) string { return t.reg(row*t.vectors() + vector) }

// held returns the register of a held operand.
func (t tile) held(n int) string { return t.reg(t.rows*t.vectors() + n) }

// temporary returns the n-th temporary register, in turns.
func (t tile) temporary(n int) string {
	return t.reg(t.rows*t.vectors() + min(t.vectors(), t.rows) + n%min(t.temporaries(), 4))
}

func (t tile) mask() string { return t.reg(t.registers - 1) }

// temporaries returns how many registers are left to cycle through.
func (t tile) temporaries() int {
	left := t.registers - t.rows*t.vectors() - min(t.vectors(), t.rows)
	if t.depth > 1 {
		left--
	}
	return left
}

// fits says whether the registers suffice.
func (t tile) fits() bool { return t.temporaries() > 0 }

// productUnit returns the tiles of one instruction set and format, and the
// function that fills a table with them. A tile of one panel has at most rows
// rows, and from aheadFrom on a version that prefetches.
func productUnit(name string, i isa, f format, rows, aheadFrom int) *unit {
	u := &unit{name: name, arch: amd64}
	list := "nil"
	add := func(t tile) {
		t.write(u)
		list += ", " + t.routine()
	}
	text := fmt.Sprintf("\n// fill%[1]s%[2]s sets the tiles of %[2]s.\nfunc fill%[1]s%[2]s(t *tiling[%[3]s]) {\n", f.name, i.name, f.goType)
	for panels := 1; panels <= maxPanels; panels++ {
		list = "nil"
		for t := (tile{isa: i, format: f, rows: 1, panels: panels}); t.fits() && t.rows <= rows; t.rows++ {
			add(t)
		}
		text += fmt.Sprintf("\tt.tiles[%d] = []tile[%s]{%s}\n", panels, f.goType, list)
	}
	list = ""
	for t := (tile{isa: i, format: f, rows: aheadFrom, panels: 1, prefetch: true}); t.fits() && t.rows <= rows; t.rows++ {
		add(t)
	}
	list = strings.TrimPrefix(list, ", ")
	text += fmt.Sprintf("\tt.ahead, t.aheadFrom = []aheadTile[%s]{%s}, %d\n}\n", f.goType, list, aheadFrom)
	u.stubs.WriteString(text)
	return u
}
