package cellrt

import (
	"fmt"
	"slices"
)

// Scheduler decides which nodes run together. It is a state machine driven by
// a few events - a submission, a cancellation, an executor that asks for its
// next batch, a batch's completion - and knows no clock, no goroutine and no
// device, so that the same code runs under a [Runtime] and under a virtual
// clock. It is not safe for concurrent use.
//
// Four decisions are made here, each by a type of its own: which tenant the
// next batch is for (turns), which of its cells (cellChoice), whose nodes the
// batch is made of (fairShare), and how many batches of the cell are given out
// at once (lookAhead). Together they bound how long a ready node waits. With E
// executors and C cells of which the node's tenant has ready nodes, at most
// E+C-2 of the tenant's decisions are for other cells before one is for the
// node's, and that one takes the tenant's oldest node first. Between two of
// the tenant's decisions, with T tenants that have ready nodes, the others
// have one each if the tenant is not in debt, and else two each and those in
// which they pay for T full batches of the most expensive cell, and for each
// of these E more may come, while there is little to do. Each of all these
// decisions is for at most K batches, the cell's look-ahead. Beside that,
// every batch of the node's cell takes the oldest node of all tenants that
// have some there, or of as many of them in turn as it has rows. A node that was
// held back for a checkpoint (see [Checkpoint]) waits from when it is let go.
type Scheduler struct {
	maxRows int
	models  []*Model
	queues  []*readyQueue
	pool    nodePool
	ready   int
	live    *Sequence // list of the sequences that have not ended

	choice  cellChoice
	fair    fairShare
	ahead   lookAhead
	barrier barrier

	candidates []*readyQueue // of one decision

	frontier Frontier
	tokens   []Token
	results  []Result
	counters counters
}

// SchedulerConfig is how a [Scheduler] works. Both fields are positive.
type SchedulerConfig struct {
	// MaxRows is the largest number of rows in a batch.
	MaxRows int
	// Executors is how many batches may run at the same time.
	Executors int
}

// NewScheduler returns a scheduler without models.
func NewScheduler(cfg SchedulerConfig) *Scheduler {
	if cfg.MaxRows < 1 || cfg.Executors < 1 {
		panic(fmt.Sprintf("cellrt: scheduler for batches of %d rows on %d executors", cfg.MaxRows, cfg.Executors))
	}
	return &Scheduler{
		maxRows: cfg.MaxRows, choice: cellChoice{executors: cfg.Executors}, fair: fairShare{tenants: map[string]*tenant{}},
		barrier: barrier{held: nodeList{links: inOrder}},
	}
}

// SetExecutors changes how many batches may run at the same time. Those that
// run complete as they would have.
func (s *Scheduler) SetExecutors(n int) { s.choice.executors = n }

// Add makes a model known.
func (s *Scheduler) Add(m *Model) {
	for _, q := range m.queues {
		q.prepare(s.maxRows)
		s.fair.add(q)
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
	s.candidates = nil // it may name the model's queues
	m.loaded = false
	return nil
}

// Submit gives the sequence a slot, restores the state of the checkpoint that
// it goes on from, if there is one, and makes its first nodes ready. It fails
// with [ErrNoSlot], [ErrUnloaded] or [ErrCheckpoint] and changes nothing then.
// Submitting a sequence twice is a programmer's error.
func (s *Scheduler) Submit(q *Sequence) error {
	if q.phase != created {
		panic("cellrt: sequence submitted twice")
	}
	if !q.model.loaded {
		return ErrUnloaded
	}
	if !q.restorable() {
		return ErrCheckpoint
	}
	slot, generation, ok := q.model.arena.acquire()
	if !ok {
		return ErrNoSlot
	}
	q.phase, q.slot, q.generation = live, slot, generation
	q.stamp = s.counters.submitted
	q.model.sequences++
	s.counters.submitted++
	s.fair.join(q)
	s.link(q)
	q.restore()
	if q.progress.graph != nil {
		q.progress.graph.Record()
	}

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

// Ready returns how many nodes wait for a batch.
func (s *Scheduler) Ready() int { return s.ready }

// Next forms the next batch of an idle executor in b and reports whether there
// is one. Executors are numbered from 0.
func (s *Scheduler) Next(executor int, b *Batch) bool {
	t := s.fair.turn()
	if t == nil {
		return false
	}
	q := s.chooseFor(t)
	if t.has(q) {
		q.flows.lead(t.share(q.model).flow(q.cell))
	} else {
		s.fair.yields(t)
		t = q.flows.head.tenant
	}
	s.begin(b, q, executor, 0)
	b.tenant = t
	s.fill(b, q)
	s.finish(b)
	return true
}

// chooseFor returns the queue for a tenant's turn: one in which it has nodes,
// or any while the executors find little to do, see [turns].
func (s *Scheduler) chooseFor(t *tenant) *readyQueue {
	if t.yielded < s.choice.executors && s.choice.spread(s.queues) {
		return s.choice.choose(s.queues, s.queues)
	}
	s.candidates = t.queues(s.candidates[:0])
	return s.choice.choose(s.queues, s.candidates)
}

// begin empties a batch for nodes of a queue.
func (s *Scheduler) begin(b *Batch, q *readyQueue, executor, depth int) {
	b.Model, b.Cell, b.executor, b.depth = q.model, q.cell, executor, depth
	b.tier, b.took = q.tier, 0
	if depth > 0 {
		b.tier = TierAhead
	}
	b.Rows, b.sequences = b.Rows[:0], b.sequences[:0]
	q.running++
}

// fill adds the queue's ready nodes to a batch.
func (s *Scheduler) fill(b *Batch, q *readyQueue) {
	d := s.fair.deal(q, q.maxRows)
	for len(b.Rows) < q.maxRows {
		n := d.next()
		if n == nil {
			break
		}
		s.take(b, n)
	}
	d.end()
}

// take adds one node to a batch.
func (s *Scheduler) take(b *Batch, n *readyNode) {
	b.Rows = append(b.Rows, Row{Slot: n.seq.slot, Args: n.node.Args})
	b.sequences = append(b.sequences, n.seq)
	s.fair.charge(n.seq.share.tenant, n.queue.cost)
	n.seq.inFlight++
	s.drop(n)
}

// finish makes a batch ready to run.
func (s *Scheduler) finish(b *Batch) {
	rows := len(b.Rows)
	if rows == b.Model.queue(b.Cell).maxRows {
		s.fair.grant(b.tenant)
	} else {
		s.fair.grant(nil)
	}
	b.Outputs = slices.Grow(b.Outputs[:0], rows)[:rows]
	b.ahead = slices.Grow(b.ahead[:0], rows)[:rows]
	clear(b.Outputs)
	clear(b.ahead)
}

// Complete tells that a batch ran and how many rows were computed for it, and
// advances its sequences' graphs.
func (s *Scheduler) Complete(b *Batch, computed int) {
	s.counters.step(b, computed)
	b.Model.queue(b.Cell).running--
	for i, q := range b.sequences {
		q.inFlight--
		q.work.add(s.counters.steps, b)
		switch {
		case q.phase != live:
			s.release(q)
		case b.ahead[i]:
			s.returned(q)
		default:
			s.advance(q, Node{Cell: b.Cell, Args: b.Rows[i].Args}, b.Outputs[i])
		}
		if q.progress.graph != nil && q.phase == live {
			s.ran(q)
		}
	}
	// An idle executor's batch keeps neither sequences alive nor scratch.
	clear(b.sequences)
	clear(b.Outputs)
	b.tenant = nil
}

// advance tells a sequence's graph that a node ran.
func (s *Scheduler) advance(q *Sequence, n Node, out Output) {
	s.frontier.Reset()
	q.graph.Advance(n, out, &s.frontier)
	s.settle(q)
}

// Results returns what happened to sequences since the last [Scheduler.Clear].
func (s *Scheduler) Results() []Result { return s.results }

// Clear empties the results and keeps their memory.
func (s *Scheduler) Clear() {
	clear(s.results)
	s.results, s.tokens = s.results[:0], s.tokens[:0]
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
	s.checkStalled(q)
}

// checkStalled fails a live sequence that nothing will advance any more.
func (s *Scheduler) checkStalled(q *Sequence) {
	if q.inFlight == 0 && q.ready.head == nil {
		s.end(q, 0, ErrStalled)
	}
}

// keep copies tokens to where they stay until the results are cleared.
func (s *Scheduler) keep(tokens []Token) []Token {
	first := len(s.tokens)
	s.tokens = append(s.tokens, tokens...)
	return s.tokens[first:len(s.tokens):len(s.tokens)]
}

// push makes a node ready, or holds it while the sequence is at the barrier or
// nodes before it are ahead.
func (s *Scheduler) push(q *Sequence, node *Node) {
	n := s.pool.get()
	n.node, n.seq, n.queue = *node, q, q.model.queue(node.Cell)
	q.ready.push(n)
	s.ready++
	s.fair.waits(q.share.tenant)
	switch {
	case q.progress.due:
		n.held = &s.barrier.held
	case q.ahead > 0:
		n.held = s.ahead.lane(q.lane)
	default:
		s.open(n)
		return
	}
	n.held.push(n)
}

// open makes a node that is ready one that may go now.
func (s *Scheduler) open(n *readyNode) {
	n.queue.push(n)
	s.fair.opens(n.seq.share.tenant)
}

// close takes back that a node may go now.
func (s *Scheduler) close(n *readyNode) {
	n.queue.remove(n)
	s.fair.closes(n.seq.share.tenant)
}

// drop takes a ready node out of its lists.
func (s *Scheduler) drop(n *readyNode) {
	n.seq.ready.remove(n)
	if n.held != nil {
		n.held.remove(n)
	} else {
		s.close(n)
	}
	s.fair.goes(n.seq.share.tenant)
	s.pool.put(n)
	s.ready--
}

// end decides the end of a live sequence.
func (s *Scheduler) end(q *Sequence, reason Reason, err error) {
	q.phase, q.reason, q.err = ending, reason, err
	q.model.ending++
	for q.ready.head != nil {
		s.drop(q.ready.head)
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
	q.model.ending--
	q.model.arena.release(q.slot, q.generation)
	q.model.sequences--
	s.fair.leave(q)
	s.unlink(q)
	s.counters.end(q)
	if n := len(s.results); n > 0 && s.results[n-1].Sequence == q {
		last := &s.results[n-1]
		last.Done, last.Reason, last.Err = true, q.reason, q.err
		if !q.progress.left {
			last.Checkpoint = nil // out of date
		}
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
