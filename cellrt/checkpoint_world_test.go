package cellrt_test

import (
	"slices"

	"github.com/cellmq/cellmq/cellrt"
)

// The part of a world that knows when checkpoints are due.

var _ cellrt.Resumable = (*script)(nil)

// tally counts what happened in a world.
type tally struct{ holds, saves, suspended, resumed, cancelledAtBarrier int }

func (t *tally) add(o tally) {
	t.holds += o.holds
	t.saves += o.saves
	t.suspended += o.suspended
	t.resumed += o.resumed
	t.cancelledAtBarrier += o.cancelledAtBarrier
}

// Record does nothing: a script keeps all it needs.
func (s *script) Record() {
	if s.every == 0 {
		s.world.tb.Fatalf("script %d is to record, but has no checkpoints", s.number)
	}
}

// Save checks the moment and writes the positions down.
func (s *script) Save(dst []byte, spans []cellrt.Span) ([]byte, []cellrt.Span, bool) {
	if s.inFlight > 0 || s.ran != s.next || s.finished || s.cause != nil {
		s.world.tb.Fatalf("script %d saved with %d nodes in flight, at %v of %v", s.number, s.inFlight, s.next, s.lengths)
	}
	s.saves++
	if s.leave != nil {
		s.world.forget(s)
	} else if s.due {
		s.due = false
		s.world.reopen(s)
	}
	return append(dst, byte(s.next[0]), byte(s.next[1]), byte(s.next[2]), byte(s.tokens)), spans, true
}

// reopen lets the nodes of a script go, behind all others.
func (w *world) reopen(s *script) {
	var nodes []readyNode
	for _, n := range w.ready {
		if n.script == s {
			n.held = false
			nodes = append(nodes, n)
		}
	}
	w.ready = slices.DeleteFunc(w.ready, func(n readyNode) bool { return n.script == s })
	w.ready = append(w.ready, nodes...)
}

// hold keeps the nodes of a script from going until it is saved.
func (w *world) hold(s *script) {
	s.due = true
	w.tally.holds++
	w.release(s)
	for i, c := range w.cells {
		if w.free(c) == 0 {
			w.passed[i] = 0
		}
	}
}

// count takes note that a node of a script has run, and checks that a script
// was saved when, and only when, it was due.
func (w *world) count(s *script) {
	saves := s.saves
	s.saves = 0
	if s.every == 0 || s.finished || s.cause != nil {
		if saves > 0 {
			w.tb.Fatalf("script %d saved out of place", s.number)
		}
		return
	}
	s.nodes++
	want := 0
	if s.leave != nil || s.due || s.nodes-s.saved >= s.every {
		if s.inFlight == 0 {
			want = 1
			s.saved = s.nodes
		} else if !s.due {
			w.hold(s)
		}
	}
	if saves != want {
		w.tb.Fatalf("script %d saved %d times after node %d, want %d", s.number, saves, s.nodes, want)
	}
}

// checkpointed takes a script's checkpoint.
func (w *world) checkpointed(s *script, c *cellrt.Checkpoint) {
	ran := s.ran[0] + s.ran[1] + s.ran[2]
	if int(c.Nodes) != ran || len(c.Graph) != 4 || int(c.Graph[3]) != s.seen {
		w.tb.Fatalf("script %d has checkpoint %+v after %d nodes and %d tokens", s.number, c, ran, s.seen)
	}
	s.latest = c
	w.tally.saves++
}

// resume submits a script that goes on from another one's latest checkpoint.
func (w *world) resume(s *script) *script {
	c := s.latest
	next := [3]int{int(c.Graph[0]), int(c.Graph[1]), int(c.Graph[2])}
	resumed := w.submit(script{
		lengths: s.lengths, failAt: s.failAt, stall: s.stall, tenant: s.tenant, every: s.every,
		from: c, next: next, ran: next, tokens: int(c.Graph[3]), nodes: int(c.Nodes), saved: int(c.Nodes),
	})
	if resumed != nil {
		w.tally.resumed++
	}
	return resumed
}

// suspend suspends a script.
func (w *world) suspend(s *script, cause error) {
	quiet := s.stall && s.ends == 0
	want := (!s.finished || quiet) && s.cause == nil && s.leave == nil && s.ends == 0
	if want && s.every == 0 {
		s.cause = cause
		w.forget(s)
	} else if want {
		s.leave = cause
		if s.inFlight > 0 && !s.due {
			w.hold(s)
		}
	}
	if got := w.sched.Suspend(s.seq, cause); got != want {
		w.tb.Fatalf("suspension of script %d reported %t, want %t", s.number, got, want)
	}
	s.saves = 0
	w.collect()
}
