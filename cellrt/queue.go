package cellrt

// readyNode is a node waiting for its step. It hangs in two lists: its cell's
// queue, in the order in which nodes became ready, and its sequence's, so that
// the end of a sequence takes its nodes out of every queue at once, in time
// proportional to their number.
type readyNode struct {
	node  Node
	seq   *Sequence
	queue *readyQueue
	stamp uint64 // the scheduler's counter when the node became ready

	prev, next       *readyNode // in the queue; next also links the free list
	seqPrev, seqNext *readyNode // in the sequence
}

// readyQueue holds the ready nodes of one cell, oldest first, and the cell's
// counters.
type readyQueue struct {
	model   *Model
	cell    *Cell
	maxRows int

	head, tail *readyNode
	length     int

	steps, rows uint64
}

func (q *readyQueue) push(n *readyNode) {
	n.queue, n.prev, n.next = q, q.tail, nil
	if q.tail != nil {
		q.tail.next = n
	} else {
		q.head = n
	}
	q.tail = n
	q.length++

	s := n.seq
	n.seqPrev, n.seqNext = nil, s.ready
	if s.ready != nil {
		s.ready.seqPrev = n
	}
	s.ready = n
}

// remove takes n out of both its lists.
func (q *readyQueue) remove(n *readyNode) {
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		q.head = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	} else {
		q.tail = n.prev
	}
	q.length--

	if n.seqPrev != nil {
		n.seqPrev.seqNext = n.seqNext
	} else {
		n.seq.ready = n.seqNext
	}
	if n.seqNext != nil {
		n.seqNext.seqPrev = n.seqPrev
	}
}

// nodePool recycles readyNodes, so that a steady flow of nodes allocates
// nothing. It never holds more than were ready at one moment.
type nodePool struct{ free *readyNode }

func (p *nodePool) get() *readyNode {
	n := p.free
	if n == nil {
		return &readyNode{}
	}
	p.free = n.next
	return n
}

func (p *nodePool) put(n *readyNode) {
	*n = readyNode{next: p.free}
	p.free = n
}
