package sim

// queue is a first-in, first-out queue of requests.
type queue struct {
	requests []int32
	head     int
}

func (q *queue) push(request int) {
	if q.head > 64 && q.head > len(q.requests)/2 {
		q.requests = q.requests[:copy(q.requests, q.requests[q.head:])]
		q.head = 0
	}
	q.requests = append(q.requests, int32(request))
}

func (q *queue) len() int    { return len(q.requests) - q.head }
func (q *queue) empty() bool { return q.len() == 0 }

// first returns the request that has waited longest.
func (q *queue) first() int { return int(q.requests[q.head]) }

func (q *queue) pop() { q.head++ }

// take moves up to n requests to the end of to.
func (q *queue) take(n int, to []int32) []int32 {
	n = min(n, q.len())
	to = append(to, q.requests[q.head:q.head+n]...)
	q.head += n
	return to
}
