package cpu

import (
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
)

// Config is how a [Backend] loads programs. The zero value means the defaults.
type Config struct {
	// FoldBytes bounds the table of precomputed input parts of one recurrent
	// operation, in bytes. Default 16 MiB; a negative value folds nothing.
	FoldBytes int64
	// MaxStateBytes bounds the arena of one program, in bytes. Default 8 GiB.
	MaxStateBytes int64
	// SplitWork is the least work of a step, in multiplications, that a runner
	// with several threads shares between them. Default 400,000: waking a
	// thread takes about 0.1 ms, in which a core does some 200,000.
	SplitWork int
}

const (
	defaultFoldBytes     = 16 << 20
	defaultMaxStateBytes = 8 << 30
	defaultSplitWork     = 400_000
)

// WithDefaults returns the configuration with zero fields filled in.
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
	return c
}

// Backend computes on the CPU, in pure Go. It implements [cellrt.Backend] and
// is safe for concurrent use.
type Backend struct {
	cfg Config
}

// New returns a backend.
func New(cfg Config) *Backend {
	return &Backend{cfg: cfg.WithDefaults()}
}

// Load packs a program's weights, of which it keeps no reference but to
// embedding tables, and allocates its arena. It fails when the arena would be
// larger than MaxStateBytes.
func (b *Backend) Load(p *cellrt.Program, slots int) (cellrt.Executable, error) {
	size := int64(p.Layout.Size()) * 4
	if slots < 1 || size > 0 && int64(slots) > b.cfg.MaxStateBytes/size {
		return nil, fmt.Errorf("%d slots of %d bytes: want at least one and %d bytes in all at most", slots, size, b.cfg.MaxStateBytes)
	}
	x := &executable{layout: p.Layout, splitWork: b.cfg.SplitWork, arena: make([]float32, slots*p.Layout.Size())}
	c := compiler{layout: p.Layout, foldBytes: b.cfg.FoldBytes, packed: map[packKey]*packedWeights{}}
	for _, cell := range p.Cells {
		compiled, err := c.compile(cell)
		if err != nil {
			return nil, fmt.Errorf("cell %s: %w", cell.Name, err)
		}
		x.cells = append(x.cells, compiled)
	}
	x.weightBytes = c.bytes
	return x, nil
}

// executable is a loaded program.
type executable struct {
	layout      *cellrt.Layout
	arena       []float32
	cells       []*compiledCell // by Cell.Index
	splitWork   int
	weightBytes int64
}

// StateBytes implements [cellrt.Executable].
func (x *executable) StateBytes() int64 { return int64(len(x.arena)) * 4 }

// WeightBytes implements [cellrt.Executable].
func (x *executable) WeightBytes() int64 { return x.weightBytes }

// NewRunner implements [cellrt.Executable].
func (x *executable) NewRunner() cellrt.Runner {
	return &runner{executable: x, batch: batch{
		arena: x.arena, slotSize: x.layout.Size(), splitWork: x.splitWork,
	}}
}
