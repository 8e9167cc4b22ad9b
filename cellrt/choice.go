package cellrt

// cellChoice decides which cell the next batch is of. It looks at the cells in
// which the tenant whose turn it is (see [turns]) has ready nodes and takes one of the first of these tiers that is not empty
// (after BatchMaker, EuroSys'18, Algorithm 1):
//
//  1. Overdue: the last decision for the cell is at least as many decisions
//     ago as there are executors.
//  2. Full: enough nodes are ready for the largest batch worth running.
//  3. Idle: no executor runs the cell. Only with several executors, and only
//     while less work is ready than they could take at once: beyond that a
//     small batch of an idle cell costs more than it brings.
//  4. Anything.
//
// Inside a tier the cell comes first whose longest waiting node belongs to the
// oldest request; between two nodes of one request, the cell later in the
// program, which is nearer to the end of the request. Of the overdue cells,
// the one passed over most comes first.
//
// # Why nobody starves
//
// With E executors and C cells of which a tenant has ready nodes, at most
// E+C-2 of its decisions are for other cells between two for one of them
// (C >= 2). Each makes the cell's last decision one more ago, so after E of
// them it is overdue; from then on only cells whose own is at least as long ago
// come before it. One that had its turn begins again at zero and cannot catch
// up, and the cell of the E-th decision is one of those, which leaves C-2 cells
// with one turn each. Other tenants' decisions in between make every cell but
// their own more overdue: they shorten the wait, counted in the tenant's own
// decisions, and keep the order of those they do not serve. A cell in which a first node becomes ready has waited for longer, as
// far as this is concerned, so a newcomer is not behind anybody.
//
// # Why oldest, and why so soon
//
// A fixed priority of decoders over encoders keeps newcomers out as long as
// anything decodes: on one executor at 60 % load that triples the latency of
// the slowest tenth of the requests. Always taking the oldest request's cell
// still adds half to it. Letting cells take turns - which is what
// the first tier does on one executor - fills the batches of all of them. With
// more executors it comes into play later and later, and the other tiers
// decide.
type cellChoice struct {
	executors int
}

// Tier says why a batch was of its cell. The first four are those among which
// a scheduler chooses, the first one to be preferred.
type Tier uint8

// The tiers.
const (
	// TierOverdue: the cell had been passed over for long enough.
	TierOverdue Tier = iota
	// TierFull: enough nodes were ready for the largest batch of the cell.
	TierFull
	// TierIdle: no executor ran the cell, and there was little to do.
	TierIdle
	// TierAny: none of these.
	TierAny
	// TierAhead: the batch followed one of the same cell on its executor, see
	// [Scheduler.Follow]. Nothing was chosen.
	TierAhead
	// Tiers is how many there are.
	Tiers = iota
)

// String returns the tier's name: one word in lower case.
func (t Tier) String() string {
	if int(t) >= Tiers {
		return "unknown"
	}
	return [Tiers]string{"overdue", "full", "idle", "any", "ahead"}[t]
}

// fullBatch is a full batch of work in fixed point.
const fullBatch = 1 << 16

// choose returns the one of some of the queues that the next batch is to be
// taken from and takes note of those it passed over, of all queues. It returns
// nil when nothing is ready in any of the some. Programs have
// few cells, so that looking at all of them costs less than keeping an order.
func (c *cellChoice) choose(queues, some []*readyQueue) *readyQueue {
	spread := c.spread(queues)
	var best *readyQueue
	bestTier := Tier(Tiers)
	for _, q := range some {
		if q.length == 0 {
			continue
		}
		if tier := c.tier(q, spread); tier < bestTier || tier == bestTier && before(q, best, tier) {
			best, bestTier = q, tier
		}
	}
	if best == nil {
		return nil
	}
	for _, q := range queues {
		q.passed++
	}
	best.passed, best.tier = 0, bestTier
	return best
}

// spread reports whether there are several executors and less work is ready
// than they could take at once.
func (c *cellChoice) spread(queues []*readyQueue) bool {
	if c.executors == 1 {
		return false
	}
	work := 0
	for _, q := range queues {
		work += q.length * fullBatch / q.maxRows
	}
	return work < c.executors*fullBatch
}

// owes reports whether a cell other than q would be overdue after a batch of q
// ahead, the depth-th: the turn is that cell's then.
func (c *cellChoice) owes(queues []*readyQueue, q *readyQueue, depth int) bool {
	for _, other := range queues {
		if other != q && other.length > 0 && other.passed+depth >= c.executors {
			return true
		}
	}
	return false
}

func (c *cellChoice) tier(q *readyQueue, spread bool) Tier {
	switch {
	case q.passed >= c.executors:
		return TierOverdue
	case q.length >= q.maxRows:
		return TierFull
	case spread && q.running == 0:
		return TierIdle
	default:
		return TierAny
	}
}

// before tells whether q comes before r, an earlier queue of the same tier.
func before(q, r *readyQueue, tier Tier) bool {
	if tier == TierOverdue && q.passed != r.passed {
		return q.passed > r.passed
	}
	return q.age() <= r.age()
}
