package cellrt

// Row is a node as a backend sees it: the slot its sequence owns and the
// node's arguments.
type Row struct {
	Slot int32
	Args [MaxArgs]int32
}

// Backend is the kernels and the memory of a device.
type Backend interface {
	// Load packs the program's weights and allocates an arena of slots
	// sequence states. It fails when the program uses what the device lacks.
	// The executable keeps nothing of the program's weights: their memory may
	// go, or hold something else, once Load has returned.
	Load(p *Program, slots int) (Executable, error)
}

// Sizer is a [Backend] that knows what a program takes before it is loaded.
type Sizer interface {
	// Size returns how many bytes of packed weights and of arena Load(p, slots)
	// would take at most: exactly that many where the backend holds no equal
	// weights yet, and where no two tensors of the program are equal. What runners
	// and the loading itself need for a while is not in it. It packs nothing, and
	// fails where Load would.
	Size(p *Program, slots int) (weights, state int64, err error)
}

// Executable is a program loaded on a device, together with the arena that
// holds its sequences' states. It is safe for concurrent use. One that also
// implements [States] can have its sequences' states saved and restored.
type Executable interface {
	// NewRunner returns a runner with scratch memory of its own. Each executor
	// has one.
	NewRunner() Runner
	// StateBytes returns the size of the arena in bytes.
	StateBytes() int64
	// WeightBytes returns the size of the packed weights in bytes, the sum of
	// the blocks'.
	WeightBytes() int64
	// Blocks yields each piece of the packed weights once, with its size in
	// bytes. An executable may share a block with others of its backend: the
	// block has the same id, a comparable value, in all of them, and no two
	// blocks have the same. An id that is kept may keep the block's memory.
	Blocks(yield func(id any, bytes int64) bool)
}

// Runner runs batches, one at a time.
type Runner interface {
	// Run executes one batch: it gathers the rows' states, computes the cell,
	// scatters the results, and fills out, which is as long as rows, when the
	// cell has an output. It returns how many rows it computed, which is
	// len(rows) unless the device pads. No two rows running at the same moment
	// write the same state. Run allocates nothing once its scratch memory has
	// grown to the largest batch.
	//
	// A row's results depend on that row alone: not on the other rows, their
	// number or its place among them.
	Run(c *Cell, rows []Row, out []Output) (computed int)
	// SetThreads says how many threads Run may use, its caller's included; a
	// new runner uses one. Results do not depend on it. A runner with one
	// thread is left to the garbage collector; one with more is brought back
	// to one first. SetThreads is not called while Run runs.
	SetThreads(n int)
}
