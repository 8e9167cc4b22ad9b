package cpu

import (
	"fmt"
	"math"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// Config is how a [Backend] loads and runs programs. The zero value means the
// defaults.
type Config struct {
	// ISA is the instruction tier of the kernels, one of [Tiers]. Default: the
	// value of the environment variable CELLMQ_ISA, and without it the fastest
	// tier there is. Results do not depend on it.
	ISA string
	// FoldBytes bounds the table of precomputed input parts of one recurrent
	// operation, in bytes. Default 16 MiB; a negative value folds nothing.
	FoldBytes int64
	// MaxStateBytes bounds the arena of one program, in bytes. Default 8 GiB.
	MaxStateBytes int64
	// SplitWork is the least work of a batch that a runner with several threads
	// shares between those that are awake, in multiplications at the speed of
	// the vector tiers (one of the portable tier counts as 50, and a batch of
	// less than 4 rows as 4, because its weights take that long to arrive).
	// Default 400,000, which take a core about 10 microseconds. Threads that
	// have parked are worth waking for 15 times as much.
	SplitWork int
	// Spin is how long the threads of a runner stay awake after a batch.
	// Default 100 microseconds, what it takes to wake them. A negative value
	// parks them at once, which suits a container with a processor quota. Within
	// a batch that they share, threads stay awake whatever the value is, also
	// while they have nothing to do.
	Spin time.Duration
}

const (
	defaultFoldBytes     = 16 << 20
	defaultMaxStateBytes = 8 << 30
	defaultSplitWork     = 400_000
	defaultSpin          = 100 * time.Microsecond
)

// WithDefaults returns the configuration with zero fields filled in, except
// ISA, which depends on the machine.
func (c Config) WithDefaults() Config {
	if c.FoldBytes == 0 {
		c.FoldBytes = defaultFoldBytes
	}
	if c.MaxStateBytes == 0 {
		c.MaxStateBytes = defaultMaxStateBytes
	}
	if c.SplitWork == 0 {
		c.SplitWork = defaultSplitWork
	}
	if c.Spin == 0 {
		c.Spin = defaultSpin
	}
	return c
}

// Backend computes on the CPU, without C libraries. Programs that it has loaded
// share what is equal of their weights. It implements [cellrt.Backend] and
// [cellrt.Sizer] and is safe for concurrent use.
type Backend struct {
	cfg    Config
	table  *kernel.Table
	failed error // why there is no table
	shares shares
}

// New returns a backend. A tier that this build or machine lacks is reported by
// [Backend.Load].
func New(cfg Config) *Backend {
	b := &Backend{cfg: cfg.WithDefaults()}
	b.table, b.failed = findTable(cfg.ISA)
	return b
}

// ISA returns the name of the instruction tier in use, empty when there is none
// of the name that was asked for.
func (b *Backend) ISA() string {
	if b.table == nil {
		return ""
	}
	return b.table.Name
}

// Load packs a program's weights, of which it keeps no reference, and allocates
// its arena. Weights that a loaded program has already are not packed again. It
// fails when the arena would be larger than MaxStateBytes, when the configured
// tier is not available, and when 8-bit weights are asked for and a matrix has
// more inputs than 131,072 (2^17), whose sum would not fit.
func (b *Backend) Load(p *cellrt.Program, slots int) (cellrt.Executable, error) {
	format, err := b.check(p, slots)
	if err != nil {
		return nil, err
	}
	c := newCompiler(b, format, p.Layout)
	c.shares = &b.shares
	x := &executable{cfg: b.cfg, table: b.table, format: format, layout: p.Layout}
	if x.cells, err = c.compileAll(p.Cells); err != nil {
		return nil, err
	}
	x.arena = make([]float32, slots*p.Layout.Size())
	x.weightBytes, x.blocks = c.bytes, c.blocks
	return x, nil
}

// Size implements [cellrt.Sizer]: it compiles the program without packing.
func (b *Backend) Size(p *cellrt.Program, slots int) (weights, state int64, err error) {
	format, err := b.check(p, slots)
	if err != nil {
		return 0, 0, err
	}
	c := newCompiler(b, format, p.Layout)
	if _, err := c.compileAll(p.Cells); err != nil {
		return 0, 0, err
	}
	return c.bytes, int64(slots) * int64(p.Layout.Size()) * 4, nil
}

// check returns the format of a program's weights, if the backend has it and
// the arena is not too large.
func (b *Backend) check(p *cellrt.Program, slots int) (kernel.Format, error) {
	if b.failed != nil {
		return 0, b.failed
	}
	size := int64(p.Layout.Size()) * 4
	most := min(b.cfg.MaxStateBytes, math.MaxInt)
	if slots < 1 || size > 0 && int64(slots) > most/size {
		return 0, fmt.Errorf("%d slots of %d bytes: want at least one and %d bytes in all at most", slots, size, most)
	}
	return formatOf(p.Weights)
}

// formatOf returns the kernels' name of a weight type.
func formatOf(w cellrt.Weights) (kernel.Format, error) {
	switch w {
	case cellrt.F32:
		return kernel.F32, nil
	case cellrt.BF16:
		return kernel.BF16, nil
	case cellrt.Int8:
		return kernel.Int8, nil
	}
	return 0, fmt.Errorf("weight type %v is not known to the CPU backend", w)
}

// executable is a loaded program.
type executable struct {
	cfg         Config
	table       *kernel.Table
	format      kernel.Format
	layout      *cellrt.Layout
	arena       []float32
	cells       []*compiledCell // by Cell.Index
	blocks      []*block        // each one once
	weightBytes int64           // of the blocks
}

// StateBytes implements [cellrt.Executable].
func (x *executable) StateBytes() int64 { return int64(len(x.arena)) * 4 }

// WeightBytes implements [cellrt.Executable].
func (x *executable) WeightBytes() int64 { return x.weightBytes }

// Blocks implements [cellrt.Executable].
func (x *executable) Blocks(yield func(id any, bytes int64) bool) {
	for _, b := range x.blocks {
		if !yield(b, b.bytes) {
			return
		}
	}
}

// NewRunner implements [cellrt.Executable].
func (x *executable) NewRunner() cellrt.Runner {
	return &runner{executable: x, batch: batch{
		arena: x.arena, slotSize: x.layout.Size(), table: x.table, format: x.format,
		team: team{spin: x.cfg.Spin}, split: newSplit(x.cfg.SplitWork, x.table),
	}}
}
