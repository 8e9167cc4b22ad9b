package cellrt

// readyQueue holds the ready nodes of one cell and the cell's counters. Each
// node is in two orders: that of all nodes of the cell, whose first one tells
// how urgent the cell is (see [cellChoice]), and that of its tenant, from
// which batches are dealt (see [fairShare]).
type readyQueue struct {
	model     *Model
	cell      *Cell
	maxRows   int
	lookAhead int   // batches that may be given out at once
	cost      int64 // of a row, in nanoseconds, measured or estimated

	order  nodeList
	flows  flowList // of the tenants that have nodes here
	length int

	measured measurement // zero without a profile

	passed  int // decisions for other cells since the last one for this
	running int // batches that have not completed

	tier Tier // of the latest decision for this

	steps [Tiers]uint64
	rows  uint64
}

// workPerNanosecond is how much of [Cell.Work] a core is guessed to do.
const workPerNanosecond = 2

func newReadyQueue(m *Model, c *Cell) *readyQueue {
	return &readyQueue{model: m, cell: c, order: nodeList{links: inOrder}, cost: 1, lookAhead: 1}
}

// prepare takes over what the cell says about its batches and, if nothing was
// measured, estimates what a row costs.
func (q *readyQueue) prepare(maxRows int) {
	q.maxRows = maxRows
	for _, limit := range []int{q.cell.MaxRows, q.measured.rows} {
		if limit > 0 {
			q.maxRows = min(limit, q.maxRows)
		}
	}
	if ahead := q.cell.LookAhead; ahead > 1 && !q.cell.hasOutput() {
		q.lookAhead = ahead
	}
	q.cost = q.measured.rowCost
	if q.cost == 0 {
		q.cost = max(1, q.cell.Work()/workPerNanosecond)
	}
}

func (q *readyQueue) push(n *readyNode) {
	q.length++
	q.order.push(n)
	f := n.seq.share.flow(q.cell)
	if f.nodes.head == nil {
		q.flows.push(f)
	}
	f.nodes.push(n)
}

func (q *readyQueue) remove(n *readyNode) {
	q.length--
	q.order.remove(n)
	f := n.seq.share.flow(q.cell)
	f.nodes.remove(n)
	if f.nodes.head == nil {
		q.flows.remove(f)
	}
}

// age is the place of the request that has a node waiting longest here in the
// order of submission: the lower, the older. The queue is not empty.
func (q *readyQueue) age() uint64 { return q.order.head.seq.stamp }
