package cellrt

// phase is where a sequence stands.
//
//	created --Submit--> live --end decided--> ending --last node back--> ended
//
// A sequence with nothing in flight passes through ending at once.
type phase uint8

const (
	created phase = iota
	live
	ending
	ended
)

// Sequence is the runtime's state of one request: its graph, its slot while it
// is live, and the nodes it waits for. It is submitted once and ends once; its
// last [Result] has Done set. After that it is garbage.
//
// The exported methods are safe for concurrent use. Everything else belongs to
// the scheduler.
type Sequence struct {
	model  *Model
	graph  Graph
	owner  any
	tenant string

	phase      phase
	reason     Reason
	err        error
	cancelled  bool
	stamp      uint64 // place in the order of submission
	slot       int32
	generation uint32
	share      *share   // its tenant's, while the sequence has not ended
	inFlight   int      // nodes in batches that have not completed
	ahead      int      // those of them whose successors are known already
	lane       int      // the executor that has the nodes ahead
	ready      nodeList // nodes that wait
	progress   progress // towards checkpoints
	work       work
	prev, next *Sequence // the scheduler's list of sequences that have not ended
}

// SequenceOptions are what a sequence has beside its model and graph.
type SequenceOptions struct {
	// Owner is the caller's own and comes back through [Sequence.Owner], so
	// that a [Sink] finds whom a result is for without a lookup.
	Owner any
	// Tenant names whose share of the compute the sequence uses. Sequences
	// without a name share one.
	Tenant string
	// CheckpointEvery is after how many nodes the sequence reports a
	// [Checkpoint], as far as its graph is [Resumable]; about as many, where
	// several of them run at the same time. The smallest interval is 1. Zero
	// is never, and [Scheduler.Suspend] has none to report then.
	CheckpointEvery int
	// CheckpointBytes is how large a checkpoint may be, its state and what the
	// graph wrote together; a larger one is not made. Zero means
	// [DefaultCheckpointBytes].
	CheckpointBytes int
	// From is the checkpoint that the sequence goes on from, and the graph one
	// that was restored from [Checkpoint.Graph]. Both must come from the same
	// request and a program with the same weights. The sequence keeps the
	// checkpoint until it is submitted and does not change it. Nil is the
	// beginning.
	From *Checkpoint
}

// DefaultCheckpointBytes is what a checkpoint may have without
// CheckpointBytes.
const DefaultCheckpointBytes = 256 << 10

// NewSequence returns a sequence that will run g on m.
func NewSequence(m *Model, g Graph, opts SequenceOptions) *Sequence {
	return &Sequence{
		model: m, graph: g, owner: opts.Owner, tenant: opts.Tenant, ready: nodeList{links: inSequence},
		progress: newProgress(g, &opts),
	}
}

// Owner returns what the sequence was made with.
func (s *Sequence) Owner() any { return s.owner }

// Model returns the model the sequence runs on.
func (s *Sequence) Model() *Model { return s.model }
