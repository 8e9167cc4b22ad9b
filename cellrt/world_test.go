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
	tb    testing.TB
	sched *cellrt.Scheduler
	model *cellrt.Model
	worldOptions
	cells [3]*cellrt.Cell // forward, backward, decoder

	scripts    []*script
	ready      []readyNode
	owners     map[int32]*script // of the slots in use
	rounds     []round           // one for each executor there ever was
	passed     [3]int            // decisions for other cells since the cell ran or became ready
	mostPassed int               // of one tenant's decisions
	tenants    map[string]bool   // there ever were
	completing bool
	ends       int
	tally      tally
}

// worldOptions are the sizes of a world.
type worldOptions struct {
	maxRows, slots, executors int
	lookAhead                 int // of the encoder's cells; 0 means 1
}

// readyNode is a node in the world's own list.
type readyNode struct {
	script *script
	node   cellrt.Node
	held   bool // it was pushed while nodes before it were ahead
}

// round is what an executor was given at once.
type round struct {
	flights []flight
	done    int // flights completed
}

// flight is a batch that runs.
type flight struct {
	batch    cellrt.Batch
	scripts  []*script
	advanced map[int]bool // rows whose scripts were advanced ahead
}

func (r *round) running() bool { return r.done < len(r.flights) }

// The cell whose batches are narrower than the scheduler's limit.
const narrowRows = 2

// newWorld returns a world without look-ahead.
func newWorld(tb testing.TB, maxRows, slots, executors int) *world {
	tb.Helper()
	return makeWorld(tb, worldOptions{maxRows: maxRows, slots: slots, executors: executors})
}

func makeWorld(tb testing.TB, o worldOptions) *world {
	tb.Helper()
	w := &world{tb: tb, worldOptions: o, owners: map[int32]*script{}, tenants: map[string]bool{}, mostPassed: o.executors + 1}
	p := scriptProgram(tb)
	copy(w.cells[:], p.Cells)
	w.cells[1].MaxRows = narrowRows
	w.cells[0].LookAhead, w.cells[1].LookAhead = o.lookAhead, o.lookAhead
	var err error
	if w.model, err = cellrt.NewModel(p, o.slots); err != nil {
		tb.Fatal(err)
	}
	w.sched = cellrt.NewScheduler(cellrt.SchedulerConfig{MaxRows: o.maxRows, Executors: o.executors})
	w.sched.Add(w.model)
	w.rounds = make([]round, o.executors)
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
	poison  bool   // fail at the next token
	tenant  string
	every   int // nodes between checkpoints; none with 0
	from    *cellrt.Checkpoint

	next     [3]int // position whose node is out
	ran      [3]int // nodes completed
	where    [3]int // the executor that has the chain's latest node, while it runs
	inFlight int
	ahead    int // nodes in flight that were advanced already
	tokens   int // emitted by the graph
	seen     int // delivered in results
	finished bool
	failed   bool
	ends     int
	cause    error // of a cancellation
	nodes    int   // that ran, while the script was live
	saved    int   // of those, when it was last saved
	due      bool  // it waits for a moment to be saved
	leave    error // of a suspension
	saves    int   // calls of Save
	latest   *cellrt.Checkpoint
	err      error
	reason   cellrt.Reason
}

func (s *script) Start(f *cellrt.Frontier) {
	for i := range s.tokens { // those before a checkpoint
		f.Emit(cellrt.Token{ID: int32(i)})
	}
	for chain := range 2 {
		if s.next[chain] < s.lengths[chain] {
			s.push(f, chain)
		}
	}
	s.decode(f)
}

func (s *script) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	chain, position := int(n.Args[1]), int(n.Args[2])
	if !s.world.completing {
		s.world.advancedAhead(s, chain, position)
	} else if int(out.Token) != position {
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
	case s.poison || position == s.failAt:
		s.finished, s.failed = true, true
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
	s.world.ready = append(s.world.ready, readyNode{script: s, node: n, held: s.ahead > 0 || s.due})
}

// submit submits a script and returns it, or nil when there was no slot.
func (w *world) submit(s script) *script {
	s.world, s.number = w, len(w.scripts)
	s.seq = cellrt.NewSequence(w.model, &s, cellrt.SequenceOptions{Owner: &s, Tenant: s.tenant, CheckpointEvery: s.every, From: s.from})
	w.scripts = append(w.scripts, &s)
	w.tenants[s.tenant] = true
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

// form lets an idle executor take what it is given at once and checks it
// against the model. It reports whether there was something.
func (w *world) form(executor int) bool {
	r := &w.rounds[executor]
	if r.running() || executor >= w.executors {
		return false
	}
	r.flights, r.done = append(r.flights[:0], flight{}), 0
	f := &r.flights[0]
	if !w.sched.Next(executor, &f.batch) {
		r.flights = r.flights[:0]
		if w.free(nil) > 0 {
			w.tb.Fatalf("no batch with %d nodes ready", len(w.ready))
		}
		return false
	}
	w.decided(f.batch.Cell)
	limit := w.maxRows
	if f.batch.Cell.MaxRows > 0 {
		limit = min(limit, f.batch.Cell.MaxRows)
	}
	if want := min(limit, w.free(f.batch.Cell)); len(f.batch.Rows) != want {
		w.tb.Fatalf("batch of %d rows of %s, want %d", len(f.batch.Rows), f.batch.Cell.Name, want)
	}
	w.checkTurns(&f.batch, limit)
	w.taken(executor, f)
	for len(r.flights) < w.lookAhead {
		r.flights = append(r.flights, flight{})
		last := len(r.flights) - 1
		if !w.sched.Follow(&r.flights[last-1].batch, &r.flights[last].batch) {
			r.flights = r.flights[:last]
			break
		}
		if b := &r.flights[last].batch; b.Cell != f.batch.Cell || len(b.Rows) < 2 || len(b.Rows) > limit {
			w.tb.Fatalf("%d rows of %s follow a batch of %s", len(b.Rows), b.Cell.Name, f.batch.Cell.Name)
		}
		w.taken(executor, &r.flights[last])
	}
	return true
}

// free counts the ready nodes, of one cell or of all, that do not wait for a
// node ahead.
func (w *world) free(cell *cellrt.Cell) int {
	n := 0
	for _, r := range w.ready {
		if !r.held && (cell == nil || r.node.Cell == cell) {
			n++
		}
	}
	return n
}

// decided counts for how many decisions each cell was passed over.
func (w *world) decided(cell *cellrt.Cell) {
	limit := w.mostPassed
	if others := len(w.tenants) - 1; others > 0 {
		// Decisions of others before each of the tenant's own: two turns of
		// each, and those in which all pay for a full batch, a row at least at
		// a time; and before each decision as many as there are executors.
		turns := (limit + 1) * (2*others + (others+1)*w.maxRows + 1)
		limit = turns * (1 + len(w.rounds))
	}
	for i, c := range w.cells {
		if w.passed[i]++; c == cell || w.free(c) == 0 {
			w.passed[i] = 0
		}
		if w.passed[i] > limit {
			w.tb.Fatalf("%s was passed over %d times, want at most %d", c.Name, w.passed[i], limit)
		}
	}
}

// checkTurns checks that each tenant's nodes go in order, and that every
// tenant has its turn.
func (w *world) checkTurns(b *cellrt.Batch, limit int) {
	if w.lookAhead > 1 {
		return // held nodes come later than they became ready
	}
	rows, tenants := map[string][]cellrt.Row{}, map[string]int{}
	for _, row := range b.Rows {
		t := w.scripts[row.Args[0]].tenant
		rows[t] = append(rows[t], row)
	}
	for _, n := range w.ready {
		if n.node.Cell != b.Cell || n.held {
			continue
		}
		t := n.script.tenant
		if i := tenants[t]; i < len(rows[t]) && rows[t][i].Args != n.node.Args {
			w.tb.Fatalf("tenant %q has row %v, want %v", t, rows[t][i].Args, n.node.Args)
		}
		tenants[t]++
	}
	for t := range tenants {
		if len(tenants) <= limit && len(rows[t]) == 0 {
			w.tb.Fatalf("tenant %q is not in a batch of %d rows for %d tenants", t, len(b.Rows), len(tenants))
		}
	}
}

// taken checks the rows of a batch and takes them out of the model.
func (w *world) taken(executor int, f *flight) {
	if len(f.batch.Outputs) != len(f.batch.Rows) {
		w.tb.Fatalf("%d outputs for %d rows", len(f.batch.Outputs), len(f.batch.Rows))
	}
	for i, row := range f.batch.Rows {
		if out := f.batch.Outputs[i]; out.Token != 0 || out.LogProb != 0 || out.Values != nil {
			w.tb.Fatalf("row %d begins with output %v of an earlier batch", i, out)
		}
		at := slices.IndexFunc(w.ready, func(n readyNode) bool { return n.node.Args == row.Args })
		if at < 0 || w.ready[at].node.Cell != f.batch.Cell {
			w.tb.Fatalf("row %v of %s is not ready", row.Args, f.batch.Cell.Name)
		}
		s := w.ready[at].script
		w.ready = slices.Delete(w.ready, at, at+1)
		if s.due {
			w.tb.Fatalf("script %d runs a node while it waits to be saved", s.number)
		}
		w.checkOrder(executor, s, int(row.Args[1]), int(row.Args[2]))
		s.inFlight++
		f.scripts = append(f.scripts, s)
		if owner := w.owners[row.Slot]; owner == nil {
			w.owners[row.Slot] = s
		} else if owner != s {
			w.tb.Fatalf("slot %d belongs to script %d and to %d", row.Slot, owner.number, s.number)
		}
	}
	for i, c := range w.cells {
		if w.free(c) == 0 {
			w.passed[i] = 0
		}
	}
}

// checkOrder checks that what a node depends on has run, or runs before it on
// the same executor.
func (w *world) checkOrder(executor int, s *script, chain, position int) {
	if position > 0 && s.ran[chain] < position && s.where[chain] != executor {
		w.tb.Fatalf("script %d chain %d position %d given to executor %d while %d runs the one before", s.number, chain, position, executor, s.where[chain])
	}
	for before := range 2 {
		if chain == 2 && s.ran[before] < s.lengths[before] && s.where[before] != executor {
			w.tb.Fatalf("script %d decodes before chain %d has run", s.number, before)
		}
	}
	s.where[chain] = executor
}

// advancedAhead takes note that a script was advanced while its node is out.
func (w *world) advancedAhead(s *script, chain, position int) {
	if w.lookAhead < 2 || chain == 2 {
		w.tb.Fatalf("script %d chain %d advanced before it ran", s.number, chain)
	}
	for i := range w.rounds {
		for j := range w.rounds[i].flights {
			f := &w.rounds[i].flights[j]
			for k, row := range f.batch.Rows {
				if row.Args[0] == int32(s.number) && int(row.Args[1]) == chain && int(row.Args[2]) == position {
					if f.advanced == nil {
						f.advanced = map[int]bool{}
					}
					f.advanced[k] = true
					s.ahead++
					return
				}
			}
		}
	}
	w.tb.Fatalf("script %d chain %d position %d advanced, but not given out", s.number, chain, position)
}

// complete completes the batch an executor runs, if it has one.
func (w *world) complete(executor int) bool {
	r := &w.rounds[executor]
	if !r.running() {
		return false
	}
	f := &r.flights[r.done]
	r.done++
	for i, row := range f.batch.Rows {
		s := f.scripts[i]
		s.inFlight--
		if chain := row.Args[1]; s.ran[chain] != int(row.Args[2]) {
			w.tb.Fatalf("script %d chain %d ran position %d, want %d", s.number, chain, row.Args[2], s.ran[chain])
		}
		s.ran[row.Args[1]]++
		if f.advanced[i] {
			if s.ahead--; s.ahead == 0 {
				w.release(s)
			}
		}
		f.batch.Outputs[i] = cellrt.Output{Token: row.Args[2], LogProb: -1}
	}
	rows := len(f.batch.Rows)
	w.completing = true
	w.sched.Complete(&f.batch, rows)
	w.completing = false
	f.batch.Rows = f.batch.Rows[:0]
	for _, s := range f.scripts {
		w.count(s)
	}
	w.collect()
	return true
}

// release makes the nodes of a script that were held ready for all.
func (w *world) release(s *script) {
	for i := range w.ready {
		if w.ready[i].script == s {
			w.ready[i].held = s.due
		}
	}
}

// reshape changes the number of executors.
func (w *world) reshape(executors int) {
	w.executors = executors
	w.sched.SetExecutors(executors)
	for len(w.rounds) < executors {
		w.rounds = append(w.rounds, round{})
	}
	w.mostPassed = max(w.mostPassed, executors+1)
}

// cancel cancels a script and checks that its ready nodes are gone at once.
func (w *world) cancel(s *script, cause error) {
	// A graph that goes quiet ahead ends when the last of its nodes completes.
	quiet := s.stall && s.ends == 0
	ended := s.finished && !quiet || s.cause != nil || s.ends > 0
	if !ended {
		if s.due {
			w.tally.cancelledAtBarrier++
		}
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
	for i, c := range w.cells {
		if w.free(c) == 0 {
			w.passed[i] = 0
		}
	}
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
		if r.Checkpoint != nil {
			w.checkpointed(s, r.Checkpoint)
		}
		if !r.Done {
			if len(r.Tokens) == 0 && r.Checkpoint == nil || r.Err != nil || r.Reason != 0 {
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
	if suspended := s.leave != nil && s.cause == nil && errors.Is(r.Err, s.leave); suspended {
		if r.Checkpoint == nil || r.Reason != 0 {
			w.tb.Fatalf("script %d was suspended with result %+v", s.number, r)
		}
		w.tally.suspended++
		return
	}
	if r.Checkpoint != nil {
		w.tb.Fatalf("script %d ended with %v and a checkpoint", s.number, r.Err)
	}
	var want error
	switch {
	case s.cause != nil:
		want = s.cause
	case s.stall:
		want = cellrt.ErrStalled
	case s.failed:
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
		for executor := range w.rounds {
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
	if st.Tenants != 0 {
		w.tb.Fatalf("%d tenants after the end", st.Tenants)
	}
	if st.Running != 0 || st.Ready != 0 || st.Models[0].Free != w.model.Slots() {
		w.tb.Fatalf("after the end: %d running, %d ready, %d of %d slots free", st.Running, st.Ready, st.Models[0].Free, w.model.Slots())
	}
	if got := st.Finished + st.Failed + st.Cancelled; st.Submitted != got || int(st.Submitted) != len(w.scripts) {
		w.tb.Fatalf("%d submitted, %d accounted for, want %d", st.Submitted, got, len(w.scripts))
	}
	var rows, steps, byTier, nodes uint64
	for _, c := range st.Cells {
		rows, steps = rows+c.Rows, steps+c.Steps
		for _, n := range c.Tiers {
			byTier += n
		}
	}
	for _, s := range w.scripts {
		nodes += s.seq.Work().Nodes
	}
	if byTier != steps || nodes != rows || st.Models[0].Ending != 0 {
		w.tb.Fatalf("%d of %d steps by tier, %d of %d rows by sequence, %d slots of ending sequences", byTier, steps, nodes, rows, st.Models[0].Ending)
	}
	if rows != st.Rows || steps != st.Steps || st.PaddedRows != 0 || st.MaxRows > w.maxRows {
		w.tb.Fatalf("inconsistent counters: %s", fmt.Sprintf("%+v", st))
	}
}
