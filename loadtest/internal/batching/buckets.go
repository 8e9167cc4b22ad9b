package batching

import "github.com/cellmq/cellmq/cellrt/sim"

// buckets are the requests that wait, by the length of their source. Bucket i
// has the lengths from i x width + 1 to (i+1) x width.
type buckets struct {
	width  int
	order  sim.Order
	queues [][]*answer
	turn   int // the bucket that is looked at first
}

func (b *buckets) push(a *answer) {
	i := (len(a.request.source) - 1) / b.width
	for len(b.queues) <= i {
		b.queues = append(b.queues, nil)
	}
	b.queues[i] = append(b.queues[i], a)
}

// take appends the next batch, at most so many requests of one bucket in the
// order of arrival, and returns the longest that a source of the bucket can be.
// It appends nothing when nobody waits.
func (b *buckets) take(most int, batch []*answer) (_ []*answer, upper int) {
	i := b.choose()
	if i < 0 {
		return batch, 0
	}
	q := b.queues[i]
	n := min(most, len(q))
	batch = append(batch, q[:n]...)
	clear(q[:n])
	if b.queues[i] = q[n:]; n == len(q) {
		b.queues[i] = q[:0]
	}
	return batch, (i + 1) * b.width
}

// choose returns the bucket to serve, -1 when all are empty.
func (b *buckets) choose() int {
	best := -1
	for k := range b.queues {
		i := (b.turn + k) % len(b.queues)
		n := len(b.queues[i])
		if n == 0 {
			continue
		}
		if b.order == sim.RoundRobin {
			b.turn = i + 1
			return i
		}
		if best < 0 || n > len(b.queues[best]) {
			best = i
		}
	}
	return best
}
