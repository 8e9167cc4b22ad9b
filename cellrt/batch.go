package cellrt

import "time"

// Batch is the nodes of one step. The scheduler fills it; the caller computes
// Outputs, one for each row, and returns it. The slices belong to the batch
// and are reused when the batch is.
type Batch struct {
	Model   *Model
	Cell    *Cell
	Rows    []Row
	Outputs []Output

	tenant    *tenant // whose turn it is for
	executor  int
	depth     int // batches before this one since the executor's last decision
	tier      Tier
	took      time.Duration // that the backend took, if the caller measures it
	sequences []*Sequence
	ahead     []bool // rows whose graphs have been advanced already
}

// Result is a piece of one sequence's output.
type Result struct {
	Sequence *Sequence
	// Tokens are new tokens, in order. They are valid until the [Sink] returns.
	Tokens []Token
	// Proposal, if not empty, is the whole output of a search as it looks now;
	// it takes the place of the proposal before. Valid as Tokens are.
	Proposal []Token
	// Checkpoint, if not nil, holds the sequence's progress up to and with this
	// result. It belongs to the receiver. The last result has one only when the
	// sequence was suspended.
	Checkpoint *Checkpoint
	// Done is set in the last result of a sequence, and only there.
	Done bool
	// Reason says why a sequence ended by itself; zero if it failed.
	Reason Reason
	// Err is why a sequence failed or was cancelled; nil if it ended by itself.
	Err error
}
