package cellrt

import (
	"fmt"
	"slices"
)

// Scheduler decides which nodes run together. It is a state machine driven by
// four events - a submission, a cancellation, a request for the next batch, a
// batch's completion - and knows no clock, no goroutine and no device, so that
// the same code runs under a [Runtime] and under a virtual clock. It is not
// safe for concurrent use.
//
// # Policy
//
// Each node is stamped when it becomes ready, from one counter for all cells.
// The next batch belongs to the cell whose oldest node has the lowest stamp,
// and takes that cell's nodes oldest first, up to the row limit. No node
// starves: every batch contains the oldest ready node of all, whoever it
// belongs to, so a node runs after at most as many batches as there were ready
// nodes older than itself, and a later node can never overtake it in this
// count.
type Scheduler struct {
	maxRows int
	models  []*Model
	queues  []*readyQueue
	pool    nodePool
	stamp   uint64
	ready   int
	live    *Sequence // list of the sequences that have not ended

	frontier Frontier
	tokens   []Token
	results  []Result
	counters counters
}

// Batch is the nodes of one step. The scheduler fills it; the caller computes
// Outputs, one for each row, and returns it. The slices belong to the batch
// and are reused when the batch is.
type Batch struct {
	Model   *Model
	Cell    *Cell
	Rows    []Row
	Outputs []Output

	sequences []*Sequence
}

// Result is a piece of one sequence's output.
type Result struct {
	Sequence *Sequence
	// Tokens are new tokens, in order. They are valid until the [Sink] returns.
	Tokens []Token
	// Proposal, if not empty, is the whole output of a search as it looks now;
	// it takes the place of the proposal before. Valid as Tokens are.
	Proposal []Token
	// Done is set in the last result of a sequence, and only there.
	Done bool
	// Reason says why a sequence ended by itself; zero if it failed.
	Reason Reason
	// Err is why a sequence failed or was cancelled; nil if it ended by itself.
	Err error
}

// NewScheduler returns a scheduler without models whose batches have at most
// maxRows rows.
func NewScheduler(maxRows int) *Scheduler {
	return &Scheduler{maxRows: maxRows}
}

// Add makes a model known.
func (s *Scheduler) Add(m *Model) {
	for _, q := range m.queues {
		q.maxRows = s.maxRows
		if limit := q.cell.MaxRows; limit > 0 {
			q.maxRows = min(limit, s.maxRows)
		}
	}
	m.loaded = true
	s.models = append(s.models, m)
	s.queues = append(s.queues, m.queues...)
}

// Remove forgets a model. It fails with [ErrBusy] while sequences of the model
// are live and with [ErrUnloaded] when it is not known.
func (s *Scheduler) Remove(m *Model) error {
	i := slices.Index(s.models, m)
	if i < 0 {
		return ErrUnloaded
	}
	if m.sequences > 0 {
		return fmt.Errorf("unload %s, %d sequences live: %w", m.program.Name, m.sequences, ErrBusy)
	}
	s.models = slices.Delete(s.models, i, i+1)
	s.queues = slices.DeleteFunc(s.queues, func(q *readyQueue) bool { return q.model == m })
	m.loaded = false
	return nil
}

// Submit gives the sequence a slot and makes its first nodes ready. It fails
// with [ErrNoSlot] or [ErrUnloaded] and changes nothing then. Submitting a
// sequence twice is a programmer's error.
func (s *Scheduler) Submit(q *Sequence) error {
	if q.phase != created {
		panic("cellrt: sequence submitted twice")
	}
	if !q.model.loaded {
		return ErrUnloaded
	}
	slot, generation, ok := q.model.arena.acquire()
	if !ok {
		return ErrNoSlot
	}
	q.phase, q.slot, q.generation = live, slot, generation
	q.model.sequences++
	s.counters.submitted++
	s.link(q)

	s.frontier.Reset()
	q.graph.Start(&s.frontier)
	s.settle(q)
	return nil
}

// Cancel ends the sequence with the given cause: its ready nodes leave their
// queues now, nodes in flight are dropped when their batch completes, and only
// then is the slot free and the last result there. It reports false, and does
// nothing, when the end of the sequence was decided before or the sequence was
// never submitted.
func (s *Scheduler) Cancel(q *Sequence, cause error) bool {
	if q.phase != live {
		return false
	}
	q.cancelled = true
	s.end(q, 0, cause)
	return true
}

// CancelAll cancels every live sequence.
func (s *Scheduler) CancelAll(cause error) {
	for q := s.live; q != nil; {
		next := q.next // q leaves the list when it ends
		s.Cancel(q, cause)
		q = next
	}
}

// Ready returns how many nodes are ready.
func (s *Scheduler) Ready() int { return s.ready }

// Next forms the next batch in b and reports whether there is one.
func (s *Scheduler) Next(b *Batch) bool {
	q := s.oldest()
	if q == nil {
		return false
	}
	b.Model, b.Cell = q.model, q.cell
	b.Rows, b.sequences = b.Rows[:0], b.sequences[:0]
	for len(b.Rows) < q.maxRows && q.head != nil {
		n := q.head
		b.Rows = append(b.Rows, Row{Slot: n.seq.slot, Args: n.node.Args})
		b.sequences = append(b.sequences, n.seq)
		n.seq.inFlight++
		s.drop(n)
	}
	b.Outputs = slices.Grow(b.Outputs[:0], len(b.Rows))[:len(b.Rows)]
	clear(b.Outputs)
	return true
}

// Complete tells that a batch ran and how many rows were computed for it, and
// advances its sequences' graphs.
func (s *Scheduler) Complete(b *Batch, computed int) {
	s.counters.step(b, computed)
	for i, q := range b.sequences {
		q.inFlight--
		if q.phase != live {
			s.release(q)
			continue
		}
		s.frontier.Reset()
		q.graph.Advance(Node{Cell: b.Cell, Args: b.Rows[i].Args}, b.Outputs[i], &s.frontier)
		s.settle(q)
	}
	clear(b.sequences) // an idle executor's batch keeps no sequence alive
}

// Results returns what happened to sequences since the last [Scheduler.Clear].
func (s *Scheduler) Results() []Result { return s.results }

// Clear empties the results and keeps their memory.
func (s *Scheduler) Clear() {
	clear(s.results)
	s.results, s.tokens = s.results[:0], s.tokens[:0]
}

// oldest returns the queue whose head has been ready longest. Programs have
// few cells, so that looking at all of them costs less than keeping an order.
func (s *Scheduler) oldest() *readyQueue {
	var best *readyQueue
	for _, q := range s.queues {
		if q.head != nil && (best == nil || q.head.stamp < best.head.stamp) {
			best = q
		}
	}
	return best
}

// settle takes over what a graph reported to the frontier.
func (s *Scheduler) settle(q *Sequence) {
	f := &s.frontier
	if len(f.tokens)+len(f.proposal) > 0 {
		s.counters.tokens += uint64(len(f.tokens))
		s.results = append(s.results, Result{Sequence: q, Tokens: s.keep(f.tokens), Proposal: s.keep(f.proposal)})
	}
	if f.err != nil {
		s.end(q, 0, f.err)
		return
	}
	if f.reason != 0 {
		s.end(q, f.reason, nil)
		return
	}
	for i := range f.nodes {
		s.push(q, &f.nodes[i])
	}
	if q.inFlight == 0 && q.ready == nil {
		s.end(q, 0, ErrStalled)
	}
}

// keep copies tokens to where they stay until the results are cleared.
func (s *Scheduler) keep(tokens []Token) []Token {
	first := len(s.tokens)
	s.tokens = append(s.tokens, tokens...)
	return s.tokens[first:len(s.tokens):len(s.tokens)]
}

// push makes a node ready.
func (s *Scheduler) push(q *Sequence, node *Node) {
	n := s.pool.get()
	n.node, n.seq, n.stamp = *node, q, s.stamp
	s.stamp++
	s.ready++
	q.model.queue(node.Cell).push(n)
}

// drop takes a ready node out of its queue.
func (s *Scheduler) drop(n *readyNode) {
	n.queue.remove(n)
	s.pool.put(n)
	s.ready--
}

// end decides the end of a live sequence.
func (s *Scheduler) end(q *Sequence, reason Reason, err error) {
	q.phase, q.reason, q.err = ending, reason, err
	for q.ready != nil {
		s.drop(q.ready)
	}
	s.release(q)
}

// release lets an ending sequence go once nothing of it is in flight: while
// its state is read or written its slot must not be another's.
func (s *Scheduler) release(q *Sequence) {
	if q.inFlight > 0 {
		return
	}
	q.phase = ended
	q.model.arena.release(q.slot, q.generation)
	q.model.sequences--
	s.unlink(q)
	s.counters.end(q)
	if n := len(s.results); n > 0 && s.results[n-1].Sequence == q {
		last := &s.results[n-1]
		last.Done, last.Reason, last.Err = true, q.reason, q.err
		return
	}
	s.results = append(s.results, Result{Sequence: q, Done: true, Reason: q.reason, Err: q.err})
}

func (s *Scheduler) link(q *Sequence) {
	q.next = s.live
	if s.live != nil {
		s.live.prev = q
	}
	s.live = q
}

func (s *Scheduler) unlink(q *Sequence) {
	if q.prev != nil {
		q.prev.next = q.next
	} else {
		s.live = q.next
	}
	if q.next != nil {
		q.next.prev = q.prev
	}
	q.prev, q.next = nil, nil
}
