package cellrt

// readyNode is a node waiting for its step. It hangs in lists by links of its
// own, so that the end of a sequence takes its nodes out of all of them in time
// proportional to their number.
type readyNode struct {
	node  Node
	seq   *Sequence
	queue *readyQueue // its cell's
	held  *nodeList   // set while the node waits for a node that was given out ahead
	links [3]nodeLinks
}

// nodeLinks are a node's neighbours in one list.
type nodeLinks struct{ prev, next *readyNode }

// The lists a node is in at the same time.
const (
	inOrder    = iota // all nodes of a cell, or all held ones of an executor
	inFlow            // a tenant's nodes of a cell
	inSequence        // a sequence's nodes
)

// nodeList is a list of nodes in the order in which they became ready. One of
// the constants above says which links of its nodes it uses.
type nodeList struct {
	links      uint8
	head, tail *readyNode
}

func (l *nodeList) push(n *readyNode) {
	n.links[l.links] = nodeLinks{prev: l.tail}
	if l.tail != nil {
		l.tail.links[l.links].next = n
	} else {
		l.head = n
	}
	l.tail = n
}

func (l *nodeList) remove(n *readyNode) {
	at := n.links[l.links]
	if at.prev != nil {
		at.prev.links[l.links].next = at.next
	} else {
		l.head = at.next
	}
	if at.next != nil {
		at.next.links[l.links].prev = at.prev
	} else {
		l.tail = at.prev
	}
	n.links[l.links] = nodeLinks{}
}

// next returns the node after n.
func (l *nodeList) next(n *readyNode) *readyNode { return n.links[l.links].next }

// nodePool recycles readyNodes, so that a steady flow of nodes allocates
// nothing. It never holds more than were ready at one moment.
type nodePool struct{ free *readyNode }

func (p *nodePool) get() *readyNode {
	n := p.free
	if n == nil {
		return &readyNode{}
	}
	p.free = n.links[inOrder].next
	return n
}

func (p *nodePool) put(n *readyNode) {
	*n = readyNode{}
	n.links[inOrder].next = p.free
	p.free = n
}
