package cellrt_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

// world drives a scheduler by hand, the way executors would, and compares what
// it does with a plain model of it: one list of ready nodes in the order in
// which they became ready.
type world struct {
	tb      testing.TB
	sched   *cellrt.Scheduler
	model   *cellrt.Model
	maxRows int
	cells   [3]*cellrt.Cell // forward, backward, decoder

	scripts []*script
	ready   []readyNode
	owners  map[int32]*script // of the slots in use
	batches []flight          // one for each executor
	ends    int
}

// readyNode is a node in the world's own list.
type readyNode struct {
	script *script
	node   cellrt.Node
}

// flight is an executor's batch.
type flight struct {
	batch   cellrt.Batch
	running bool
}

// The cell whose batches are narrower than the scheduler's limit.
const narrowRows = 2

func newWorld(tb testing.TB, maxRows, slots, executors int) *world {
	tb.Helper()
	w := &world{tb: tb, maxRows: maxRows, owners: map[int32]*script{}, batches: make([]flight, executors)}
	p := scriptProgram(tb)
	copy(w.cells[:], p.Cells)
	w.cells[1].MaxRows = narrowRows
	var err error
	if w.model, err = cellrt.NewModel(p, slots); err != nil {
		tb.Fatal(err)
	}
	w.sched = cellrt.NewScheduler(maxRows)
	w.sched.Add(w.model)
	return w
}

// scriptProgram returns a program of three cells that compute nothing of
// interest.
func scriptProgram(tb testing.TB) *cellrt.Program {
	tb.Helper()
	layout := &cellrt.Layout{}
	state := layout.Add("state", 1, 1)
	var cells []*cellrt.Cell
	for _, name := range []string{"forward", "backward", "decoder"} {
		b := cellrt.NewCell(name, layout, cellrt.MaxArgs)
		b.Store(state, cellrt.Zero, 0, b.Load(state, cellrt.Zero))
		c, err := b.Build()
		if err != nil {
			tb.Fatal(err)
		}
		cells = append(cells, c)
	}
	p, err := cellrt.NewProgram("script", layout, cells...)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// script is a graph with the shape of a bidirectional encoder and a decoder:
// two chains of nodes that run independently, then one that emits tokens.
// Every node's arguments are the script's number, its chain and its position.
type script struct {
	world   *world
	seq     *cellrt.Sequence
	number  int
	lengths [3]int // of the chains
	failAt  int    // position of the decoder that fails; negative for none
	stall   bool   // go quiet after the encoder

	next     [3]int // position whose node is out
	inFlight int
	tokens   int // emitted by the graph
	seen     int // delivered in results
	finished bool
	ends     int
	cause    error // of a cancellation
	err      error
	reason   cellrt.Reason
}

func (s *script) Start(f *cellrt.Frontier) {
	for chain := range 2 {
		if s.lengths[chain] > 0 {
			s.push(f, chain)
		}
	}
	s.decode(f)
}

func (s *script) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	chain, position := int(n.Args[1]), int(n.Args[2])
	if int(out.Token) != position {
		s.world.tb.Fatalf("script %d got another row's output at position %d: %v", s.number, position, out)
	}
	if s.finished || s.cause != nil {
		s.world.tb.Fatalf("script %d advanced after its end", s.number)
	}
	if int(n.Args[0]) != s.number || position != s.next[chain] || n.Cell != s.world.cells[chain] {
		s.world.tb.Fatalf("script %d advanced with node %v of cell %s, expects position %d", s.number, n.Args, n.Cell.Name, s.next[chain])
	}
	s.next[chain]++
	if chain < 2 {
		if s.next[chain] < s.lengths[chain] {
			s.push(f, chain)
			return
		}
		s.decode(f)
		return
	}
	f.Emit(cellrt.Token{ID: int32(s.tokens)})
	s.tokens++
	switch {
	case position == s.failAt:
		s.finished = true
		f.Fail(cellrt.ErrNumerical)
	case s.next[chain] == s.lengths[chain]:
		s.finished = true
		f.Push(cellrt.Node{Cell: s.world.cells[0]}) // dropped: the graph is done
		f.Finish(cellrt.Stopped)
	default:
		s.push(f, chain)
	}
}

// decode starts the decoder when both encoder chains are done.
func (s *script) decode(f *cellrt.Frontier) {
	if s.next[0] < s.lengths[0] || s.next[1] < s.lengths[1] {
		return
	}
	switch {
	case s.stall:
		s.finished = true
	case s.lengths[2] == 0:
		s.finished = true
		f.Finish(cellrt.Length)
	default:
		s.push(f, 2)
	}
}

func (s *script) push(f *cellrt.Frontier, chain int) {
	n := cellrt.Node{Cell: s.world.cells[chain], Args: [cellrt.MaxArgs]int32{int32(s.number), int32(chain), int32(s.next[chain])}}
	f.Push(n)
	s.world.ready = append(s.world.ready, readyNode{script: s, node: n})
}

// submit submits a script and returns it, or nil when there was no slot.
func (w *world) submit(s script) *script {
	s.world, s.number = w, len(w.scripts)
	s.seq = cellrt.NewSequence(w.model, &s, cellrt.SequenceOptions{Owner: &s})
	w.scripts = append(w.scripts, &s)
	err := w.sched.Submit(s.seq)
	if used := len(w.scripts) - 1 - w.ends; errors.Is(err, cellrt.ErrNoSlot) {
		if used < w.model.Slots() {
			w.tb.Fatalf("no slot with %d of %d in use", used, w.model.Slots())
		}
		w.scripts = w.scripts[:len(w.scripts)-1]
		return nil
	} else if err != nil {
		w.tb.Fatal(err)
	}
	w.collect()
	return &s
}

// form lets an idle executor take a batch and checks it against the model. It
// reports whether there was one.
func (w *world) form(executor int) bool {
	f := &w.batches[executor]
	if f.running {
		return false
	}
	ok := w.sched.Next(&f.batch)
	if !ok {
		if len(w.ready) > 0 {
			w.tb.Fatalf("no batch with %d nodes ready", len(w.ready))
		}
		return false
	}
	f.running = true
	if len(w.ready) == 0 {
		w.tb.Fatal("a batch with nothing ready")
	}
	// The cell of the oldest node of all, its oldest nodes first.
	cell, limit := w.ready[0].node.Cell, w.maxRows
	if cell.MaxRows > 0 {
		limit = min(limit, cell.MaxRows)
	}
	var want []readyNode
	w.ready = slices.DeleteFunc(w.ready, func(n readyNode) bool {
		take := n.node.Cell == cell && len(want) < limit
		if take {
			want = append(want, n)
		}
		return take
	})
	if f.batch.Cell != cell || len(f.batch.Rows) != len(want) || len(f.batch.Outputs) != len(want) {
		w.tb.Fatalf("batch of %d rows of %s, want %d of %s", len(f.batch.Rows), f.batch.Cell.Name, len(want), cell.Name)
	}
	for i, row := range f.batch.Rows {
		if row.Args != want[i].node.Args {
			w.tb.Fatalf("row %d is %v, want %v", i, row.Args, want[i].node.Args)
		}
		if out := f.batch.Outputs[i]; out.Token != 0 || out.LogProb != 0 || out.Values != nil {
			w.tb.Fatalf("row %d begins with output %v of an earlier batch", i, out)
		}
		s := want[i].script
		s.inFlight++
		if owner := w.owners[row.Slot]; owner == nil {
			w.owners[row.Slot] = s
		} else if owner != s {
			w.tb.Fatalf("slot %d belongs to script %d and to %d", row.Slot, owner.number, s.number)
		}
	}
	return true
}

// complete completes an executor's batch, if it has one.
func (w *world) complete(executor int) bool {
	f := &w.batches[executor]
	if !f.running {
		return false
	}
	f.running = false
	for i, row := range f.batch.Rows {
		w.scripts[row.Args[0]].inFlight--
		f.batch.Outputs[i] = cellrt.Output{Token: row.Args[2], LogProb: -1}
	}
	w.sched.Complete(&f.batch, len(f.batch.Rows))
	w.collect()
	return true
}

// cancel cancels a script and checks that its ready nodes are gone at once.
func (w *world) cancel(s *script, cause error) {
	ended := s.finished || s.cause != nil
	if !ended {
		s.cause = cause
		w.forget(s)
	}
	if got := w.sched.Cancel(s.seq, cause); got == ended {
		w.tb.Fatalf("cancel of script %d reported %t, ended before: %t", s.number, got, ended)
	}
	w.collect()
}

// forget drops a script's nodes from the model.
func (w *world) forget(s *script) {
	w.ready = slices.DeleteFunc(w.ready, func(n readyNode) bool { return n.script == s })
}

// collect checks the results since the last time.
func (w *world) collect() {
	for _, r := range w.sched.Results() {
		s := r.Sequence.Owner().(*script)
		if s.ends > 0 {
			w.tb.Fatalf("script %d has a result after its last", s.number)
		}
		for _, token := range r.Tokens {
			if int(token.ID) != s.seen {
				w.tb.Fatalf("script %d delivered token %d, want %d", s.number, token.ID, s.seen)
			}
			s.seen++
		}
		if !r.Done {
			if len(r.Tokens) == 0 || r.Err != nil || r.Reason != 0 {
				w.tb.Fatalf("script %d has result %+v", s.number, r)
			}
			continue
		}
		w.end(s, r)
	}
	w.sched.Clear()
	if got := w.sched.Ready(); got != len(w.ready) {
		w.tb.Fatalf("%d nodes ready, want %d", got, len(w.ready))
	}
}

// end checks the last result of a script.
func (w *world) end(s *script, r cellrt.Result) {
	s.ends, s.err, s.reason = s.ends+1, r.Err, r.Reason
	w.ends++
	if s.inFlight > 0 {
		w.tb.Fatalf("script %d ended with %d nodes in flight", s.number, s.inFlight)
	}
	for slot, owner := range w.owners {
		if owner == s {
			delete(w.owners, slot)
		}
	}
	var want error
	switch {
	case s.cause != nil:
		want = s.cause
	case s.stall:
		want = cellrt.ErrStalled
	case s.failAt >= 0 && s.failAt < s.lengths[2]:
		want = cellrt.ErrNumerical
	}
	if !errors.Is(r.Err, want) || (r.Reason == 0) != (want != nil) {
		w.tb.Fatalf("script %d ended with reason %d and error %v, want error %v", s.number, r.Reason, r.Err, want)
	}
	if want == nil && s.seen != s.lengths[2] {
		w.tb.Fatalf("script %d delivered %d tokens, want %d", s.number, s.seen, s.lengths[2])
	}
}

// drain runs until nothing is left and checks the books.
func (w *world) drain() {
	for {
		moved := false
		for executor := range w.batches {
			moved = w.form(executor) || moved
			moved = w.complete(executor) || moved
		}
		if !moved {
			break
		}
	}
	if w.ends != len(w.scripts) {
		w.tb.Fatalf("%d of %d scripts ended", w.ends, len(w.scripts))
	}
	st := w.sched.Stats()
	if st.Running != 0 || st.Ready != 0 || st.Models[0].Free != w.model.Slots() {
		w.tb.Fatalf("after the end: %d running, %d ready, %d of %d slots free", st.Running, st.Ready, st.Models[0].Free, w.model.Slots())
	}
	if got := st.Finished + st.Failed + st.Cancelled; st.Submitted != got || int(st.Submitted) != len(w.scripts) {
		w.tb.Fatalf("%d submitted, %d accounted for, want %d", st.Submitted, got, len(w.scripts))
	}
	var rows, steps uint64
	for _, c := range st.Cells {
		rows, steps = rows+c.Rows, steps+c.Steps
	}
	if rows != st.Rows || steps != st.Steps || st.PaddedRows != 0 || st.MaxRows > w.maxRows {
		w.tb.Fatalf("inconsistent counters: %s", fmt.Sprintf("%+v", st))
	}
}
