package cellrt

// lookAhead lets an executor be given several batches of a cell at once
// (BatchMaker's MaxTasksToSubmit): the successors of a batch's nodes count as
// ready when it is given out, because an executor runs its batches in order.
// That saves a round through the lock, or through a queue, for each batch but
// the first. It is for cells without outputs: what comes after a node must not
// depend on its results, or it could not be known yet.
//
// # What keeps the order
//
// A node that was given out and whose graph has been advanced already is
// called ahead. While a sequence has nodes ahead,
//
//   - all of them are with one executor: another one's nodes of the sequence
//     are advanced when they complete;
//   - the nodes it pushes are held for that executor: only a batch that
//     follows there can take them, and what did not go becomes ready for all
//     when the last node ahead has completed.
//
// What a sequence at the [barrier] pushes is held there instead.
//
// So no node starts before those it depends on have run. The bound: a newcomer
// waits for at most Cell.LookAhead batches of an executor. And batches ahead
// count as decisions against the cells that wait: where the next decision would
// be for an overdue one, or another tenant has ready nodes and none of this
// cell, there is no batch ahead, so that looking ahead takes nobody's turn.
// Tenants that have some of this cell go along.
type lookAhead struct {
	lanes []*nodeList // the held nodes, by executor
}

// leastAhead is the smallest batch worth giving out ahead of its turn: a
// request alone gains nothing and would keep newcomers waiting.
const leastAhead = 2

// lane returns the held nodes of an executor.
func (l *lookAhead) lane(executor int) *nodeList {
	for executor >= len(l.lanes) {
		l.lanes = append(l.lanes, &nodeList{links: inOrder})
	}
	return l.lanes[executor]
}

// Follow forms in b the batch that the executor of prev runs right after it,
// and reports whether there is one. Prev, in which the executor's latest batch
// was formed, must not have completed. Batches complete in the order in which
// they were formed.
func (s *Scheduler) Follow(prev, b *Batch) bool {
	q := prev.Model.queue(prev.Cell)
	if prev.depth+1 >= q.lookAhead || len(prev.Rows) < leastAhead || s.choice.owes(s.queues, q, prev.depth) || s.fair.others(prev.tenant, q) {
		return false
	}
	s.advanceAhead(prev)
	lane := s.ahead.lane(prev.executor)
	ready := q.length
	for n := lane.head; n != nil && ready < leastAhead; n = lane.next(n) {
		if n.queue == q {
			ready++
		}
	}
	if ready < leastAhead {
		return false
	}
	s.begin(b, q, prev.executor, prev.depth+1)
	b.tenant = prev.tenant
	s.fill(b, q)
	for n := lane.head; n != nil && len(b.Rows) < q.maxRows; {
		next := lane.next(n)
		if n.queue == q {
			s.take(b, n)
		}
		n = next
	}
	s.finish(b)
	return true
}

// advanceAhead advances the graphs of a batch that has not run yet.
func (s *Scheduler) advanceAhead(b *Batch) {
	for i, q := range b.sequences {
		if q.phase != live || q.ahead > 0 && q.lane != b.executor {
			continue
		}
		b.ahead[i] = true
		q.ahead++
		q.lane = b.executor
		s.advance(q, Node{Cell: b.Cell, Args: b.Rows[i].Args}, Output{})
	}
}

// returned takes note that a node that was ahead has completed.
func (s *Scheduler) returned(q *Sequence) {
	q.ahead--
	if q.ahead > 0 {
		return
	}
	for n := q.ready.head; n != nil && !q.progress.due; n = q.ready.next(n) {
		if n.held != nil {
			n.held.remove(n)
			n.held = nil
			s.open(n)
		}
	}
	s.checkStalled(q)
}
