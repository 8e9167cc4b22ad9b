package cellrt

// MaxArgs is the largest number of integer arguments a node can have.
const MaxArgs = 4

// Node is one use of a cell in a request's graph. Args are the integers its
// operations refer to: token ids, positions, lengths.
type Node struct {
	Cell *Cell
	Args [MaxArgs]int32
}

// Output is what a node reports beside the state it stored.
type Output struct {
	// Token and LogProb come from a [Greedy] operation: the most probable
	// token and its log-probability. Zero without that operation.
	Token   int32
	LogProb float32
	// Values comes from an [Expose] operation. It is the backend's memory and
	// valid only until the graph's Advance returns. Nil without that operation.
	Values []float32
}

// LogProbOf returns the log-probability of a token, for a cell that has both
// operations on the same logits. It counts from the most probable token, whose
// own value is LogProb, so that likely tokens lose nothing to the magnitude of
// the logits.
func (o *Output) LogProbOf(token int32) float32 {
	return o.Values[token] - o.Values[o.Token] + o.LogProb
}

// Token is one emitted token.
type Token struct {
	ID      int32
	LogProb float32
	// Break marks the first token after a segment boundary, for models that
	// treat an input as several segments. It matters to the text made of the
	// tokens, not to the runtime.
	Break bool
	// Top are the most probable tokens at this place, best first, when the
	// request asked for them. The graph that emits the token must not change
	// the slice any more.
	Top []Candidate
}

// Candidate is a token that could have been emitted.
type Candidate struct {
	ID      int32
	LogProb float32
}

// Reason says why a sequence ended by itself.
type Reason uint8

// The reasons.
const (
	// Stopped: the model ended its output.
	Stopped Reason = iota + 1
	// Length: the output reached its bound.
	Length
)

// String is the reason's word: stop, length, or none for a sequence that did not
// end by itself. Clients and golden outputs have the same.
func (r Reason) String() string {
	switch r {
	case Stopped:
		return "stop"
	case Length:
		return "length"
	default:
		return "none"
	}
}

// Graph is one request's graph of cells, unfolded as far as it is known. The
// scheduler calls it while it holds its lock, one call at a time, and never
// again after the frontier was finished or failed. Calls must be short and
// must not block, allocate in the steady state, or call the runtime.
//
// A node of a cell with look-ahead (see [Cell]) can be said to have run when it
// was only given to an executor: what the graph pushes then runs after it.
//
// At any moment of an unfinished graph at least one node is pushed and not yet
// advanced; a graph that goes quiet without finishing is failed with
// [ErrStalled].
type Graph interface {
	// Start pushes the nodes that are ready at the beginning.
	Start(f *Frontier)
	// Advance is told that node n ran with the given output, and pushes the
	// nodes that this made ready.
	Advance(n Node, out Output, f *Frontier)
}

// Frontier collects what a [Graph] reports from one call. It belongs to the
// scheduler and must not be kept.
type Frontier struct {
	nodes    []Node
	tokens   []Token
	proposal []Token
	reason   Reason
	err      error
}

// Push adds a node whose inputs all exist.
func (f *Frontier) Push(n Node) { f.nodes = append(f.nodes, n) }

// Emit adds a token to the sequence's output.
func (f *Frontier) Emit(t Token) { f.tokens = append(f.tokens, t) }

// Propose says what the output would be if the search ended now: the tokens of
// the best hypothesis from the beginning. It takes the place of the last
// proposal. The tokens are copied.
func (f *Frontier) Propose(tokens []Token) { f.proposal = append(f.proposal[:0], tokens...) }

// Finish ends the sequence. Nodes still waiting are dropped.
func (f *Frontier) Finish(r Reason) { f.reason = r }

// Fail ends the sequence with an error. Nodes still waiting are dropped.
func (f *Frontier) Fail(err error) { f.err = err }

// Nodes returns the nodes pushed so far; the slice is the frontier's own. It
// lets a graph be tested, or run by hand, without a runtime.
func (f *Frontier) Nodes() []Node { return f.nodes }

// Tokens returns the tokens emitted so far; the slice is the frontier's own.
func (f *Frontier) Tokens() []Token { return f.tokens }

// Proposal returns the proposal of this call, empty without one; the slice is
// the frontier's own.
func (f *Frontier) Proposal() []Token { return f.proposal }

// Done returns the reason and the error the graph ended with, both zero while
// it goes on.
func (f *Frontier) Done() (Reason, error) { return f.reason, f.err }

// Reset empties the frontier for the next call and keeps its memory.
func (f *Frontier) Reset() {
	*f = Frontier{nodes: f.nodes[:0], tokens: f.tokens[:0], proposal: f.proposal[:0]}
}
