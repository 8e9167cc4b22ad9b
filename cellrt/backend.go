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
	Load(p *Program, slots int) (Executable, error)
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
	// WeightBytes returns the size of the packed weights in bytes.
	WeightBytes() int64
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
