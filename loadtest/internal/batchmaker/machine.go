package batchmaker

import (
	_ "embed" // the table of costs
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// The networks.
const (
	lstm    = "lstm"
	seq2seq = "seq2seq"
	tree    = "tree"
)

// hardware is a device that networks run on.
type hardware struct {
	// key is in names of files.
	key, title string
	networks   map[string][]sim.Cell
	// round and step are the overheads of a machine.
	round, step time.Duration
	// rows are the sizes of batches that are compared.
	rows []int
	// slowRound is what a slow scheduler spends on a round.
	slowRound time.Duration
	// busy is how many times as many requests a run has as on the slowest
	// machine. The more rows a batch has, the longer it takes to see what happens
	// in the long run.
	busy int
}

// machine returns so many executors with the cells of a network.
func (h *hardware) machine(network string, executors int) sim.Machine {
	return sim.Machine{
		Executors: executors, RoundOverhead: h.round, StepOverhead: h.step,
		Cells: append([]sim.Cell(nil), h.networks[network]...),
	}
}

// limit returns the machine with batches of at most so many rows.
func limit(m sim.Machine, rows int) sim.Machine {
	m.Cells = append([]sim.Cell(nil), m.Cells...)
	for i := range m.Cells {
		m.Cells[i].MaxRows = rows
	}
	return m
}

// hardwares returns what is simulated.
func hardwares() ([]*hardware, error) {
	c, err := newCore()
	if err != nil {
		return nil, err
	}
	return []*hardware{c, newAccelerator()}, nil
}

// coreCosts is what steps of a network with hidden size 512 take on one core.
//
//go:embed core.csv
var coreCosts string

// coreRound is what scheduling a step takes on a core. Gathering and scattering
// states is part of the measured steps.
const coreRound = 2 * time.Microsecond

// newCore returns one core, whose costs were measured.
func newCore() (*hardware, error) {
	h := &hardware{
		key: "core", title: "One core", networks: map[string][]sim.Cell{}, round: coreRound,
		rows: []int{1, 2, 4, 8, 12, 16, 32, 64}, slowRound: 40 * time.Microsecond, busy: 1,
	}
	for number, line := range strings.Split(strings.TrimSpace(coreCosts), "\n")[1:] {
		fields := strings.Split(line, ",")
		if len(fields) != 4 {
			return nil, fmt.Errorf("core.csv line %d: %d fields, want 4", number+2, len(fields))
		}
		rows, err := strconv.Atoi(fields[2])
		if err != nil {
			return nil, fmt.Errorf("core.csv line %d: rows: %w", number+2, err)
		}
		ns, err := strconv.ParseInt(fields[3], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("core.csv line %d: ns: %w", number+2, err)
		}
		cells := h.networks[fields[0]]
		if len(cells) == 0 || cells[len(cells)-1].Name != fields[1] {
			cells = append(cells, sim.Cell{Name: fields[1]})
		}
		last := &cells[len(cells)-1]
		last.Measured = append(last.Measured, sim.Cost{Rows: rows, Time: time.Duration(ns)})
		h.networks[fields[0]] = cells
	}
	for _, cells := range h.networks {
		most := 0
		for i := range cells {
			most = max(most, profitable(cells[i].Measured))
		}
		for i := range cells {
			cells[i].MaxRows = most
		}
	}
	return h, nil
}

// leastRows is how few rows a batch is limited to at most.
const leastRows = 8

// profitable returns the smallest batch within a tenth of the most rows a
// second, as the profile of the runtime chooses it.
func profitable(costs []sim.Cost) int {
	rate := func(c sim.Cost) float64 { return float64(c.Rows) / float64(c.Time) }
	best := 0.0
	for _, c := range costs {
		best = max(best, rate(c))
	}
	for _, c := range costs {
		if rate(c) >= 0.9*best {
			return max(leastRows, c.Rows)
		}
	}
	return leastRows
}

// The accelerator's step of an LSTM with hidden size 1024: 185 us with 64 rows
// and 784 us with 512, and a straight line through both.
const (
	acceleratorFixed = 99_429 * time.Nanosecond
	acceleratorRow   = 1337 * time.Nanosecond
)

// newAccelerator returns an accelerator as the paper's was, as far as is
// remembered: what an LSTM step takes. The other cells have the fixed cost of
// an LSTM step, the decoder twice that for its second product, and rows that
// cost as much more as they have multiplications: per unit of state the LSTM
// has 8 x 1024, a decoder with 30,000 tokens 30,000 more, a leaf 3 x 1024 and an
// inner node 10 x 1024.
func newAccelerator() *hardware {
	cell := func(name string, fixed, row time.Duration, rows int) sim.Cell {
		return sim.Cell{Name: name, Fixed: fixed, Row: row, MaxRows: rows}
	}
	const fixed, row = acceleratorFixed, acceleratorRow
	return &hardware{
		key: "accelerator", title: "Accelerator", round: fixed / 20, step: fixed / 20,
		networks: map[string][]sim.Cell{
			lstm: {cell("encoder", fixed, row, 512)},
			seq2seq: {
				sim.Encoder: cell("encoder", fixed, row, 512),
				sim.Decoder: cell("decoder", 2*fixed, row*(8*1024+30_000)/(8*1024), 256),
			},
			tree: {sim.Leaf: cell("leaf", fixed, row*3/8, 64), sim.Inner: cell("inner", fixed, row*10/8, 64)},
		},
		rows: []int{16, 32, 64, 128, 256, 512}, slowRound: fixed / 2, busy: 2,
	}
}
