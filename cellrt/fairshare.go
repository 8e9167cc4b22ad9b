package cellrt

import "slices"

// fairShare decides whose nodes make up a batch, and keeps the accounts by
// which tenants take turns at choosing its cell (see [turns]). What a turn
// costs is accounted for (after deficit round robin, Shreedhar and Varghese
// 1996), for all cells together: rows of a large cell cost more than
// rows of a small one.
//
// A batch is dealt in three passes over the tenants that have nodes of its
// cell, each tenant's nodes in the order in which they became ready:
//
//  1. One row for each tenant, first the one whose turn it is. With no more
//     tenants than rows, everybody is in every batch: however many nodes one
//     tenant has ready, another tenant's oldest node goes with the next batch
//     of its cell. With more tenants, the next batch goes on where this one
//     ended.
//  2. Row by row for those with credit left.
//  3. Row by row for all: credit decides who goes first, never that a row
//     stays empty.
//
// # Credit
//
// Rows are paid for, and what was paid is granted, after each batch, in equal
// parts to the tenants that had nodes waiting, of whatever cell. A tenant
// without any left is granted nothing. It keeps its debt, so that nobody gets
// rid of one by waiting for its own batches, and loses what it has to the
// others: what it did not use is not saved. There is one exception, the tenant
// whose turn was a full batch. It does not want less than its share, and to
// let it have a few full batches in a row costs no throughput, as batches of
// one row would. With its last sequence the account is closed. So the balances
// always add up to nothing, and of those who want more than their share, the
// ones who had less go first.
//
// A balance is kept between plus and minus the cost of one full batch of the
// most expensive cell: who took what others could not use, because they wait
// for other cells, does not pay for it for long.
//
// A row costs a few comparisons; a batch looks at no more tenants than it has
// rows; nothing is allocated but when a tenant's first sequence begins.
type fairShare struct {
	tenants    map[string]*tenant
	backlogged int       // tenants with nodes waiting
	granted    int64     // to each of them since the beginning
	paid       int64     // and not granted yet
	bound      int64     // of a balance
	emptied    []*tenant // that may have no nodes waiting any more
	turns      turns
}

// tenant is an account. It exists while sequences of the tenant are live.
type tenant struct {
	name    string
	live    int  // sequences
	waiting int  // nodes
	open    int  // those of them that may go now
	active  bool // counted among those with nodes waiting
	emptied bool // in the list of that name
	balance int64
	seen    int64 // what had been granted when the balance was last looked at
	shares  []*share

	prev, next *tenant // in the line of turns
	parkedAt   int     // place in its heap, or noPlace
	until      int64   // parked, until that much has been granted
	redeemed   bool    // returned from there, and has not decided since
	yielded    int     // turns since it last decided or began to wait
}

// share is a tenant's part in one model.
type share struct {
	tenant *tenant
	model  *Model
	live   int    // sequences
	flows  []flow // by Cell.Index
}

// flow is the ready nodes that a tenant has of one cell.
type flow struct {
	tenant     *tenant
	nodes      nodeList
	prev, next *flow // in the cell's list of flows
}

func (s *share) flow(c *Cell) *flow { return &s.flows[c.index] }

// flowList is the flows of a cell, in the order of their turns.
type flowList struct {
	head, tail *flow
	length     int
}

func (l *flowList) push(f *flow) {
	f.prev, f.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = f
	} else {
		l.head = f
	}
	l.tail = f
	l.length++
}

// lead puts a flow first.
func (l *flowList) lead(f *flow) {
	if l.head == f {
		return
	}
	l.remove(f)
	f.next = l.head
	l.head.prev = f
	l.head = f
	l.length++
}

func (l *flowList) remove(f *flow) {
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		l.head = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	} else {
		l.tail = f.prev
	}
	f.prev, f.next = nil, nil
	l.length--
}

// add makes a cell's costs known.
func (s *fairShare) add(q *readyQueue) {
	s.bound = max(s.bound, q.cost*int64(q.maxRows))
}

// join gives a sequence its tenant's share in its model.
func (s *fairShare) join(q *Sequence) {
	t := s.tenants[q.tenant]
	if t == nil {
		t = &tenant{name: q.tenant, parkedAt: noPlace}
		s.tenants[q.tenant] = t
	}
	t.live++
	i := slices.IndexFunc(t.shares, func(sh *share) bool { return sh.model == q.model })
	if i < 0 {
		i = len(t.shares)
		sh := &share{tenant: t, model: q.model, flows: make([]flow, len(q.model.queues))}
		for c := range sh.flows {
			sh.flows[c] = flow{tenant: t, nodes: nodeList{links: inFlow}}
		}
		t.shares = append(t.shares, sh)
	}
	q.share = t.shares[i]
	q.share.live++
}

// leave takes a sequence's part in its share back.
func (s *fairShare) leave(q *Sequence) {
	t := q.share.tenant
	if q.share.live--; q.share.live == 0 {
		t.shares = slices.DeleteFunc(t.shares, func(sh *share) bool { return sh == q.share })
	}
	if t.live--; t.live == 0 {
		if t.active {
			s.rest(t)
		}
		s.paid += t.balance
		t.balance = 0
		delete(s.tenants, t.name)
	}
	q.share = nil
}

// waits takes note that a tenant has one more node waiting.
func (s *fairShare) waits(t *tenant) {
	if !t.active {
		t.active, t.seen = true, s.granted
		s.backlogged++
	}
	t.waiting++
}

// goes takes note that a tenant has one node less waiting.
func (s *fairShare) goes(t *tenant) {
	t.waiting--
	if t.waiting == 0 && !t.emptied {
		t.emptied = true
		s.emptied = append(s.emptied, t)
	}
}

// rest takes a tenant without nodes waiting out of those that are granted
// something.
func (s *fairShare) rest(t *tenant) {
	s.credit(t)
	t.active = false
	s.backlogged--
}

// forfeit gives what a tenant has, and is not going to use, to the others. A
// debt stays.
func (s *fairShare) forfeit(t *tenant) {
	if t.balance > 0 {
		s.paid += t.balance
		t.balance = 0
	}
}

// credit returns the balance of a tenant with nodes waiting.
func (s *fairShare) credit(t *tenant) int64 {
	balance := t.balance + s.granted - t.seen
	t.balance, t.seen = min(max(balance, -s.bound), s.bound), s.granted
	s.paid += balance - t.balance
	return t.balance
}

// charge makes a tenant pay for a row.
func (s *fairShare) charge(t *tenant, cost int64) {
	s.credit(t)
	t.balance -= cost
	s.paid += cost
}

// grant gives out what was paid: first to all who had nodes waiting, those
// included whose last ones were paid for, then what these leave to the rest. A
// tenant, which may be nil, keeps what it has even so.
func (s *fairShare) grant(keeps *tenant) {
	s.distribute()
	for _, t := range s.emptied {
		t.emptied = false
		if t.active && t.waiting == 0 {
			s.rest(t)
			if t != keeps {
				s.forfeit(t)
			}
		}
	}
	clear(s.emptied)
	s.emptied = s.emptied[:0]
	s.distribute()
}

func (s *fairShare) distribute() {
	if n := int64(s.backlogged); n > 0 {
		s.granted += s.paid / n
		s.paid %= n
	}
}

// dealer deals the rows of one batch.
type dealer struct {
	share *fairShare
	queue *readyQueue
	// first is how many tenants have not had a row yet of those who get one
	// whatever their credit.
	first int
	// broke are the flows set aside for want of credit; all tells that there
	// is nobody else left.
	broke flowList
	all   bool
}

// deal begins a batch of at most rows rows.
func (s *fairShare) deal(q *readyQueue, rows int) dealer {
	return dealer{share: s, queue: q, first: min(q.flows.length, rows)}
}

// next returns the node of the next row, or nil when none is left. The caller
// takes it out of the queue and charges its tenant.
func (d *dealer) next() *readyNode {
	flows := &d.queue.flows
	for {
		f := flows.head
		if f == nil {
			if d.broke.head == nil {
				return nil
			}
			*flows, d.broke, d.all = d.broke, flowList{}, true
			continue
		}
		flows.remove(f)
		if d.first == 0 && !d.all && d.share.credit(f.tenant) <= 0 {
			d.broke.push(f)
			continue
		}
		d.first = max(0, d.first-1)
		flows.push(f)
		return f.nodes.head
	}
}

// end ends the dealing.
func (d *dealer) end() {
	for f := d.broke.head; f != nil; f = d.broke.head {
		d.broke.remove(f)
		d.queue.flows.push(f)
	}
}
