package cellrt

// Span names entries of a field of the state: From, inclusive, to To,
// exclusive.
type Span struct {
	Field    FieldID
	From, To int
}

// Resumable is a [Graph] whose progress can be written down, so that another
// graph of the same request can go on from there, in this process or in
// another one. The scheduler calls it as it calls Graph.
type Resumable interface {
	Graph
	// Record is called before Start when [Resumable.Save] may be called later.
	// A graph need not keep what only Save needs without it.
	Record()
	// Save appends the progress to dst and says which entries of the state
	// belong to it. It is called while no node is in flight: every node that
	// was pushed either ran, and the graph was advanced, or waits. It reports
	// false when this request cannot be saved; it is then not asked again.
	// What it appends is the graph's own business: it is what the graph of the
	// restored sequence was made of.
	Save(dst []byte, spans []Span) ([]byte, []Span, bool)
}

// States is an [Executable] whose arena can be read and written by the host,
// which checkpoints need. An offset counts float32 values from the beginning of
// a slot. Neither method may run at the same time as a batch that has the slot.
type States interface {
	ReadState(slot int32, offset int, dst []float32)
	WriteState(slot int32, offset int, src []float32)
}

// Checkpoint is the progress of a sequence between two of its nodes. It holds
// what the graph delivered before it, so that a sequence that goes on from it
// delivers all tokens again, from the first one. It belongs to who received it
// and names nothing of the runtime.
type Checkpoint struct {
	// Graph is what [Resumable.Save] wrote.
	Graph []byte
	// Spans are the entries of the state that belong to it, and State their
	// values, one span after the other.
	Spans []Span
	State []float32
	// Nodes is how many nodes of the request have run, those before an earlier
	// checkpoint included. Of two checkpoints of a request, the one with more
	// is further.
	Nodes uint64
}

// valueSize is the number of bytes in a value of the state.
const valueSize = 4

// barrier takes checkpoints of sequences. A checkpoint needs a moment at which
// none of a sequence's nodes is in flight: then the state in its slot and the
// graph agree. A sequence with one node at a time has such a moment after each
// node. Others are brought to it: from the time when the checkpoint is due, the
// sequence's ready nodes are held back, until the last one in flight has come
// back. They open again when the checkpoint was taken, behind what other
// sequences have ready. Nobody else waits: rows of a batch never depend on each
// other.
//
// Held nodes are those of look-ahead to the rest of the scheduler: ready, in no
// queue, and on their tenant's account as waiting but not as open. No batch
// that is formed meanwhile contains them, so the moment comes after the batches
// that have been given out, at most Cell.LookAhead of each executor.
type barrier struct {
	held  nodeList
	taken uint64
}

// progress is what a sequence that asks for checkpoints has beside the rest.
type progress struct {
	graph Resumable   // nil: no checkpoints
	from  *Checkpoint // until the submission
	every int
	limit int // bytes in a checkpoint
	nodes uint64
	saved uint64 // nodes in the latest checkpoint
	due   bool   // at the barrier
	leave error  // the cause of a suspension
	left  bool   // it ended the sequence
}

func newProgress(g Graph, opts *SequenceOptions) progress {
	p := progress{from: opts.From, every: opts.CheckpointEvery, limit: opts.CheckpointBytes}
	if p.limit <= 0 {
		p.limit = DefaultCheckpointBytes
	}
	if p.from != nil {
		p.nodes, p.saved = p.from.Nodes, p.from.Nodes
	}
	if p.every > 0 {
		p.graph, _ = g.(Resumable)
	}
	return p
}

// restorable reports whether the sequence begins at its beginning or at a
// checkpoint that fits its model.
func (q *Sequence) restorable() bool {
	c := q.progress.from
	if c == nil {
		return true
	}
	layout, size := q.model.program.Layout, 0
	for _, s := range c.Spans {
		if s.Field < 0 || int(s.Field) >= layout.Fields() {
			return false
		}
		f := layout.Field(s.Field)
		if s.From < 0 || s.To <= s.From || s.To > f.Count {
			return false
		}
		size += (s.To - s.From) * f.Width
	}
	return size == len(c.State) && (size == 0 || q.model.states != nil)
}

// restore brings a checkpoint's values into the sequence's slot.
func (q *Sequence) restore() {
	c := q.progress.from
	if c == nil {
		return
	}
	q.progress.from = nil
	rest := c.State
	for _, s := range c.Spans {
		offset, size := q.model.program.Layout.entries(s)
		q.model.states.WriteState(q.slot, offset, rest[:size])
		rest = rest[size:]
	}
}

// save returns a checkpoint of a sequence without nodes in flight, nil when the
// graph cannot be saved or the checkpoint would be too large.
func (q *Sequence) save() *Checkpoint {
	p := &q.progress
	c := &Checkpoint{Nodes: p.nodes}
	var ok bool
	if c.Graph, c.Spans, ok = p.graph.Save(nil, nil); !ok {
		p.graph = nil
		return nil
	}
	size := 0
	for _, s := range c.Spans {
		_, n := q.model.program.Layout.entries(s)
		size += n
	}
	if len(c.Graph)+valueSize*size > p.limit || size > 0 && q.model.states == nil {
		return nil
	}
	c.State = make([]float32, size)
	rest := c.State
	for _, s := range c.Spans {
		offset, n := q.model.program.Layout.entries(s)
		q.model.states.ReadState(q.slot, offset, rest[:n])
		rest = rest[n:]
	}
	return c
}

// Suspend ends the sequence with the given cause as [Scheduler.Cancel] does,
// but with a checkpoint in its last result: nodes in flight complete, and what
// comes of them is delivered, before the sequence ends. One whose graph ends by
// itself until then ends as if it had not been suspended. A sequence without
// checkpoints, or whose graph cannot be saved, is cancelled. It reports false,
// and does nothing, when the end of the sequence was decided before or the
// sequence was never submitted or is being suspended. It can still be
// cancelled.
func (s *Scheduler) Suspend(q *Sequence, cause error) bool {
	p := &q.progress
	switch {
	case q.phase != live || p.leave != nil:
		return false
	case p.graph == nil || cause == nil:
		return s.Cancel(q, cause)
	}
	p.leave = cause
	s.pass(q)
	return true
}

// ran takes note that a node of a live sequence has run and its graph was
// advanced.
func (s *Scheduler) ran(q *Sequence) {
	p := &q.progress
	p.nodes++
	if p.due || p.nodes-p.saved >= uint64(p.every) {
		s.pass(q)
	}
}

// pass takes the checkpoint that is due, or sees to it that there comes a
// moment for it.
func (s *Scheduler) pass(q *Sequence) {
	p := &q.progress
	if q.inFlight > 0 {
		if !p.due {
			p.due = true
			s.hold(q)
		}
		return
	}
	p.saved = p.nodes
	c := q.save()
	if c != nil {
		s.barrier.taken++
		s.report(q, c)
	}
	if p.leave != nil {
		q.cancelled, p.left = true, true
		s.end(q, 0, p.leave)
		return
	}
	if p.due {
		p.due = false
		s.unhold(q)
	}
}

// report puts a checkpoint in the sequence's latest result, if that is the last
// one, or in one of its own.
func (s *Scheduler) report(q *Sequence, c *Checkpoint) {
	if n := len(s.results); n > 0 && s.results[n-1].Sequence == q {
		s.results[n-1].Checkpoint = c
		return
	}
	s.results = append(s.results, Result{Sequence: q, Checkpoint: c})
}

// hold keeps a sequence's ready nodes from going.
func (s *Scheduler) hold(q *Sequence) {
	for n := q.ready.head; n != nil; n = q.ready.next(n) {
		if n.held != nil {
			n.held.remove(n)
		} else {
			s.close(n)
		}
		n.held = &s.barrier.held
		n.held.push(n)
	}
}

// unhold lets them go again.
func (s *Scheduler) unhold(q *Sequence) {
	for n := q.ready.head; n != nil; n = q.ready.next(n) {
		n.held.remove(n)
		n.held = nil
		s.open(n)
	}
}
