package cellrt_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cellmq/cellmq/cellrt"
)

// fakeBackend is a device without kernels that looks closely at the rows it is
// given. A node's arguments are its sequence's number, its chain and its
// position, as [walk] makes them; the token of a row is its position.
type fakeBackend struct {
	tb    testing.TB
	sink  *recorder
	delay time.Duration // of each step, for tests in a bubble

	mu     sync.Mutex
	slots  int
	owners map[int32]int32   // the sequence last seen in a slot
	busy   map[[2]int32]bool // slot and chain of the rows running now
	ran    map[[3]int32]bool // sequence, chain and position of the nodes run
	runner []*fakeRunner
}

func newFakeBackend(tb testing.TB, sink *recorder) *fakeBackend {
	tb.Helper()
	return &fakeBackend{tb: tb, sink: sink, owners: map[int32]int32{}, busy: map[[2]int32]bool{}, ran: map[[3]int32]bool{}}
}

func (b *fakeBackend) Load(_ *cellrt.Program, slots int) (cellrt.Executable, error) {
	if slots == 13 {
		return nil, errTest
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slots = slots
	return b, nil
}

func (b *fakeBackend) NewRunner() cellrt.Runner {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &fakeRunner{backend: b, threads: 1}
	b.runner = append(b.runner, r)
	return r
}

func (b *fakeBackend) StateBytes() int64  { return 1 }
func (b *fakeBackend) WeightBytes() int64 { return 2 }

func (b *fakeBackend) Blocks(yield func(any, int64) bool) { yield(b, 2) }

// started tells whether a node of a sequence has been given to a runner.
func (b *fakeBackend) started(number int32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ran[[3]int32{number, 0, 0}] || b.ran[[3]int32{number, 1, 0}]
}

// threads returns the largest number of threads a runner has.
func (b *fakeBackend) threads() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := 0
	for _, r := range b.runner {
		most = max(most, r.threads)
	}
	return most
}

type fakeRunner struct {
	backend *fakeBackend
	threads int
}

func (r *fakeRunner) SetThreads(n int) {
	r.backend.mu.Lock()
	defer r.backend.mu.Unlock()
	r.threads = n
}

func (r *fakeRunner) Run(_ *cellrt.Cell, rows []cellrt.Row, out []cellrt.Output) int {
	b := r.backend
	b.mu.Lock()
	for i, row := range rows {
		number, chain, position := row.Args[0], row.Args[1], row.Args[2]
		out[i] = cellrt.Output{Token: position}
		if row.Slot < 0 || int(row.Slot) >= b.slots {
			b.tb.Errorf("slot %d of %d", row.Slot, b.slots)
		}
		if last, ok := b.owners[row.Slot]; ok && last != number && !b.sink.ended(last) {
			b.tb.Errorf("slot %d has sequence %d before the end of %d", row.Slot, number, last)
		}
		b.owners[row.Slot] = number
		if b.busy[[2]int32{row.Slot, chain}] {
			b.tb.Errorf("slot %d chain %d runs twice at the same time", row.Slot, chain)
		}
		b.busy[[2]int32{row.Slot, chain}] = true
		if node := [3]int32{number, chain, position}; b.ran[node] {
			b.tb.Errorf("node %v ran twice", node)
		} else {
			b.ran[node] = true
		}
	}
	b.mu.Unlock()
	if b.delay > 0 {
		<-time.After(b.delay) // in a bubble
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, row := range rows {
		delete(b.busy, [2]int32{row.Slot, row.Args[1]})
	}
	return len(rows) + 1 // as if the device padded
}

// walk is a graph with two independent chains, then a decoder that emits its
// positions as tokens.
type walk struct {
	cells   []*cellrt.Cell
	number  int32
	lengths [3]int32
	left    [2]int32
}

func (g *walk) Start(f *cellrt.Frontier) {
	g.left = [2]int32{g.lengths[0], g.lengths[1]}
	g.push(f, 0, 0)
	g.push(f, 1, 0)
}

func (g *walk) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	chain, next := n.Args[1], n.Args[2]+1
	if chain == 2 {
		f.Emit(cellrt.Token{ID: out.Token})
		if next == g.lengths[2] {
			f.Finish(cellrt.Stopped)
			return
		}
		g.push(f, 2, next)
		return
	}
	g.left[chain]--
	if g.left[chain] > 0 {
		g.push(f, chain, next)
	} else if g.left[1-chain] == 0 {
		g.push(f, 2, 0)
	}
}

func (g *walk) push(f *cellrt.Frontier, chain, position int32) {
	f.Push(cellrt.Node{Cell: g.cells[chain], Args: [cellrt.MaxArgs]int32{g.number, chain, position}})
}

// recorder is a sink that checks the order of tokens and ends. A sequence's
// owner is its number.
type recorder struct {
	tb    testing.TB
	onEnd func(number int32, r cellrt.Result) // called with the lock held

	mu     sync.Mutex
	tokens map[int32]int32
	ends   map[int32]cellrt.Result // without tokens
}

func newRecorder(tb testing.TB) *recorder {
	tb.Helper()
	return &recorder{tb: tb, tokens: map[int32]int32{}, ends: map[int32]cellrt.Result{}}
}

func (s *recorder) Deliver(results []cellrt.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range results {
		number := r.Sequence.Owner().(int32)
		if _, ok := s.ends[number]; ok {
			s.tb.Errorf("sequence %d has a result after its last", number)
		}
		for _, token := range r.Tokens {
			if token.ID != s.tokens[number] {
				s.tb.Errorf("sequence %d token %d, want %d", number, token.ID, s.tokens[number])
			}
			s.tokens[number]++
		}
		if r.Done {
			r.Tokens = nil
			s.ends[number] = r
			if s.onEnd != nil {
				s.onEnd(number, r)
			}
		}
	}
}

func (s *recorder) ended(number int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ends[number]
	return ok
}

// expect checks how a sequence ended.
func (s *recorder) expect(number int32, want error) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.ends[number]
	if !ok {
		s.tb.Errorf("sequence %d has not ended", number)
	} else if !errors.Is(r.Err, want) {
		s.tb.Errorf("sequence %d ended with %v, want %v", number, r.Err, want)
	}
}
