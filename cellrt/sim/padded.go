package sim

import (
	"fmt"
	"time"
)

// Padded is the batching of graph frameworks: requests wait in buckets by the
// length of their first stage, an idle executor takes up to MaxRows requests of
// one bucket, in the order of arrival, and runs them to the end together. The
// first stage is padded to the bucket's upper bound, or to the batch's longest;
// later stages, whose length nobody knew, run until the longest is done.
// Everybody's result is there when the batch ends.
//
// It runs chains whose stages are of the same cells.
type Padded struct {
	// Width is how many lengths share a bucket, at least 1.
	Width int
	// Order is which bucket an idle executor takes.
	Order Order
	// Tight pads to the longest request of the batch instead of the bucket's
	// upper bound, as frameworks with dynamic shapes can.
	Tight bool
}

// Order is the order in which [Padded] serves its buckets.
type Order uint8

// The orders.
const (
	// RoundRobin takes the buckets in turn.
	RoundRobin Order = iota
	// LongestQueue takes the bucket with the most requests.
	LongestQueue
)

func (p Padded) begin(m Machine, trace []Request, c *clock) (state, error) {
	if p.Width < 1 {
		return nil, fmt.Errorf("padded Width %d: want 1 or more", p.Width)
	}
	if p.Order > LongestQueue {
		return nil, fmt.Errorf("padded Order %d: unknown", p.Order)
	}
	var like Chain
	for i := range trace {
		chain, ok := trace[i].Shape.(Chain)
		if !ok {
			return nil, fmt.Errorf("padded: request %d is not a chain", i)
		}
		if like == nil {
			like = chain
		}
		if !sameCells(like, chain) {
			return nil, fmt.Errorf("padded: request %d has other stages than request 0", i)
		}
	}
	return &padded{clock: c, policy: p, machine: m, trace: trace, flights: make([][]int32, m.Executors)}, nil
}

func sameCells(a, b Chain) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Cell != b[i].Cell || a[i].Emits != b[i].Emits {
			return false
		}
	}
	return true
}

// padded is the state of a [Padded] run.
type padded struct {
	*clock
	policy  Padded
	machine Machine
	trace   []Request
	buckets []queue
	turn    int       // the bucket that is looked at first
	flights [][]int32 // one batch for each executor
}

func (s *padded) chain(request int32) Chain { return s.trace[request].Shape.(Chain) }

func (s *padded) arrive(request int) error {
	bucket := (s.chain(int32(request))[0].Steps - 1) / s.policy.Width
	for len(s.buckets) <= bucket {
		s.buckets = append(s.buckets, queue{})
	}
	s.buckets[bucket].push(request)
	return nil
}

func (s *padded) next(executor int, steps []step) []step {
	bucket := s.choose()
	if bucket < 0 {
		return steps
	}
	q := &s.buckets[bucket]
	first := s.chain(int32(q.first()))
	batch := q.take(s.machine.Cells[first[0].Cell].MaxRows, s.flights[executor][:0])
	s.flights[executor] = batch

	whole := step{requests: batch}
	for stage := range first {
		longest, nodes := 0, 0
		for _, request := range batch {
			n := s.chain(request)[stage].Steps
			longest = max(longest, n)
			nodes += n
		}
		if stage == 0 && !s.policy.Tight {
			longest = (bucket + 1) * s.policy.Width
		}
		s.add(&whole, first[stage].Cell, longest, nodes, len(batch))
	}
	return append(steps, whole)
}

// add adds length steps of one cell for all rows of a batch to a whole batch,
// in pieces where the cell takes fewer rows at once.
func (s *padded) add(whole *step, cell, length, nodes, rows int) {
	for left := rows; left > 0; {
		piece := min(left, s.machine.Cells[cell].MaxRows)
		left -= piece
		whole.cost += time.Duration(length) * s.machine.Cost(cell, piece)
		whole.batches += length
	}
	whole.rows += nodes
	whole.padded += length*rows - nodes
}

// choose returns the bucket to serve, -1 when all are empty.
func (s *padded) choose() int {
	best := -1
	for i := range s.buckets {
		bucket := (s.turn + i) % len(s.buckets)
		n := s.buckets[bucket].len()
		if n == 0 {
			continue
		}
		if s.policy.Order == RoundRobin {
			s.turn = bucket + 1
			return bucket
		}
		if best < 0 || n > s.buckets[best].len() {
			best = bucket
		}
	}
	return best
}

func (s *padded) complete(executor int) error {
	for _, request := range s.flights[executor] {
		t := &s.report.Requests[request]
		if emits(s.chain(request)) {
			s.emit(t)
		}
		s.end(t)
	}
	return nil
}

// emits reports whether a chain emits tokens.
func emits(c Chain) bool {
	for _, stage := range c {
		if stage.Emits {
			return true
		}
	}
	return false
}
