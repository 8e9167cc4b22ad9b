package cellrt

// turns decides which tenant the next batch is for: the cell is chosen among
// those of which it has nodes (see [cellChoice]), and a node of it comes first
// in the batch (see [fairShare]).
//
// Tenants with ready nodes stand in a line. The first one without debt decides
// and goes to the end, behind those that began to wait meanwhile. A debtor at
// the head is parked until it has been granted what it owes; then it returns
// to the end of the line and decides when it comes up. So a tenant takes one
// turn of the line, of however many cells it has nodes, and after an expensive
// batch the others have the turns that make up for it. A single request beside
// a flood of many cells has every second turn. When all are parked, the one
// with the least to wait for decides: fairness leaves no executor idle.
//
// With several executors and less work ready than they could take at once,
// there is no flood to be protected from, and small batches of whatever cell
// is the tenant's would only make everybody wait: the cell is chosen among all
// then, and the tenant keeps its turn, for at most as many decisions as there
// are executors.
//
// # Why nobody starves
//
// A tenant at the head decides or is parked, once: the rows it is charged for
// in others' batches while it is parked do not keep it there longer, and one
// that returns decides whatever it owes. A debt is at most the cost B of a
// full batch of the most expensive cell. In every decision the tenant it is
// for pays for a row at least, so that what is granted grows, and with T
// tenants waiting the debt is over when T B have been paid (rows taken by a
// tenant whose debt is B already are not). Before and after, each of the
// others may stand in the line ahead once. So between two decisions of a
// tenant without debt the others have at most T-1; of one in debt, at most
// 2 (T-1) and those in which T B are paid. A tenant may yield before each of
// its decisions, with E executors E times.
//
// # Cost
//
// A tenant is looked at when it comes to the head and when it returns. Beside
// the one that decides, each of those looks is paid for by a node that became
// ready or a row since the last, so that a batch looks at no more tenants than
// it has rows, a few times each, however many wait. The parked ones are kept
// in a heap.
type turns struct {
	head, tail *tenant
	length     int // of the line
	parked     []*tenant
	last       *tenant // who decided last, until the next decision
	looks      uint64  // at a tenant, since the beginning
}

// noPlace is the place of a tenant that is not parked; see tenant.parkedAt.
const noPlace = -1

// open returns how many tenants have nodes that may go now.
func (s *turns) open() int { return s.length + len(s.parked) }

// push puts a tenant at the end of the line.
func (s *turns) push(t *tenant) {
	t.prev, t.next = s.tail, nil
	if s.tail != nil {
		s.tail.next = t
	} else {
		s.head = t
	}
	s.tail = t
	s.length++
}

// pull takes a tenant out of the line.
func (s *turns) pull(t *tenant) {
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		s.head = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		s.tail = t.prev
	}
	t.prev, t.next = nil, nil
	s.length--
}

// park puts a tenant that is in no list in the heap, until that much has been
// granted to everybody.
func (s *turns) park(t *tenant, until int64) {
	t.until, t.parkedAt = until, len(s.parked)
	s.parked = append(s.parked, t)
	s.up(t.parkedAt)
}

// unpark takes a tenant out of the heap.
func (s *turns) unpark(t *tenant) {
	i, last := t.parkedAt, len(s.parked)-1
	s.swap(i, last)
	s.parked[last] = nil
	s.parked = s.parked[:last]
	t.parkedAt = noPlace
	if i < last {
		s.down(i)
		s.up(i)
	}
}

func (s *turns) swap(i, j int) {
	p := s.parked
	p[i], p[j] = p[j], p[i]
	p[i].parkedAt, p[j].parkedAt = i, j
}

func (s *turns) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if s.parked[parent].until <= s.parked[i].until {
			return
		}
		s.swap(i, parent)
		i = parent
	}
}

func (s *turns) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(s.parked); child++ {
			if s.parked[child].until < s.parked[least].until {
				least = child
			}
		}
		if least == i {
			return
		}
		s.swap(i, least)
		i = least
	}
}

// opens takes note that a tenant has one more node that may go now.
func (s *fairShare) opens(t *tenant) {
	if t.open == 0 {
		s.turns.push(t)
	}
	t.open++
}

// closes takes note that a tenant has one node less that may go now.
func (s *fairShare) closes(t *tenant) {
	t.open--
	if t.open > 0 {
		return
	}
	t.redeemed, t.yielded = false, 0
	if s.turns.last == t {
		s.turns.last = nil
	}
	if t.parkedAt != noPlace {
		s.turns.unpark(t)
	} else {
		s.turns.pull(t)
	}
}

// turn returns the tenant that decides now, or nil when none has nodes.
func (s *fairShare) turn() *tenant {
	l := &s.turns
	if t := l.last; t != nil {
		t.redeemed, t.yielded = false, 0
		l.pull(t)
		l.push(t)
	}
	for len(l.parked) > 0 && l.parked[0].until <= s.granted {
		l.redeem(l.parked[0])
	}
	for l.head != nil && !s.solvent(l.head) {
		t := l.head
		l.pull(t)
		l.park(t, s.granted-t.balance)
	}
	if l.head == nil && len(l.parked) > 0 {
		l.redeem(l.parked[0])
	}
	l.last = l.head
	return l.last
}

// yields takes note that the tenant whose turn it was let others go first. It
// stays at the head of the line, and will not be parked before it decides.
func (s *fairShare) yields(t *tenant) {
	t.yielded++
	t.redeemed = true
	s.turns.last = nil
}

// redeem returns a parked tenant to the line.
func (s *turns) redeem(t *tenant) {
	s.looks++
	s.unpark(t)
	s.push(t)
	t.redeemed = true
}

// solvent reports whether a tenant in the line may decide. Less than what
// dividing a grant left over is not a debt.
func (s *fairShare) solvent(t *tenant) bool {
	s.turns.looks++
	return s.credit(t) > -int64(s.backlogged) || t.redeemed || s.turns.open() == 1
}

// others reports whether a tenant other than t has nodes that may go now, and
// none of them of a queue's cell.
func (s *fairShare) others(t *tenant, q *readyQueue) bool {
	n := s.turns.open() - q.flows.length
	if t.open > 0 && !t.has(q) {
		n--
	}
	return n > 0
}

// has reports whether a tenant has ready nodes of a queue's cell.
func (t *tenant) has(q *readyQueue) bool {
	sh := t.share(q.model)
	return sh != nil && sh.flow(q.cell).nodes.head != nil
}

// share returns a tenant's part in a model, or nil.
func (t *tenant) share(m *Model) *share {
	for _, sh := range t.shares {
		if sh.model == m {
			return sh
		}
	}
	return nil
}

// queues appends the queues in which a tenant has ready nodes to a list, those
// of one model in the order of its program.
func (t *tenant) queues(list []*readyQueue) []*readyQueue {
	for _, sh := range t.shares {
		for i := range sh.flows {
			if sh.flows[i].nodes.head != nil {
				list = append(list, sh.model.queues[i])
			}
		}
	}
	return list
}
