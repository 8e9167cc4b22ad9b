package cellrt_test

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// translate runs translations with the given numbers and returns their tokens.
// While they run, it calls meanwhile before each submission; extra makes a
// sequence whose results nobody looks at.
func translate(t *testing.T, lookAhead, slots, count int, cfg cellrt.Config, meanwhile func(i int, r *cellrt.Runtime, extra func() *cellrt.Sequence)) map[int][]cellrt.Token {
	t.Helper()
	// SplitWork 1: the threads take part in every step, small as it is.
	sink := &gatherer{tb: t, freed: make(chan struct{}, 1), tokens: map[int][]cellrt.Token{}}
	s := &stage{}
	var err error
	if s.Runtime, err = cellrt.New(cfg, cpu.New(cpu.Config{SplitWork: 1}), sink); err != nil {
		t.Fatal(err)
	}
	tr := newTranslator(t, 37, lookAhead)
	m, err := s.Load(tr.program, slots)
	if err != nil {
		t.Fatal(err)
	}
	stop := s.start(t)
	defer stop()
	for i := range count {
		if meanwhile != nil {
			meanwhile(i, s.Runtime, func() *cellrt.Sequence {
				return cellrt.NewSequence(m, tr.translation(uint64(1000+i)), cellrt.SequenceOptions{})
			})
		}
		q := cellrt.NewSequence(m, tr.translation(uint64(i)), cellrt.SequenceOptions{Owner: i, Tenant: strconv.Itoa(i % 3)})
		sink.submit(s.Runtime, q)
	}
	sink.ended.Wait()
	return sink.tokens
}

func sameTokens(t *testing.T, got, want map[int][]cellrt.Token) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d sequences, want %d", len(got), len(want))
	}
	for i, tokens := range want {
		if len(got[i]) != len(tokens) {
			t.Fatalf("sequence %d has %d tokens, want %d", i, len(got[i]), len(tokens))
		}
		for j, token := range tokens {
			if g := got[i][j]; g.ID != token.ID || math.Float32bits(g.LogProb) != math.Float32bits(token.LogProb) {
				t.Fatalf("sequence %d token %d is %v, alone %v", i, j, g, token)
			}
		}
	}
}

func TestShapesKeepBits(t *testing.T) {
	t.Parallel()
	const count = 60
	alone := translate(t, 1, 1, count, cellrt.Config{MaxRows: 1}, nil)
	for _, lookAhead := range []int{1, 4} {
		for _, executors := range []int{1, 2, 4} {
			for _, threads := range []int{1, 2} {
				t.Run(fmt.Sprintf("ahead=%d/executors=%d/threads=%d", lookAhead, executors, threads), func(t *testing.T) {
					t.Parallel()
					cfg := cellrt.Config{MaxRows: 9, Executors: executors, Threads: threads}
					sameTokens(t, translate(t, lookAhead, 20, count, cfg, nil), alone)
				})
			}
		}
	}
}

func TestReshapeUnderLoadKeepsBits(t *testing.T) {
	t.Parallel()
	const count = 150
	alone := translate(t, 1, 1, count, cellrt.Config{MaxRows: 1}, nil)
	shapes := []cellrt.Shape{{2, 1}, {1, 2}, {4, 2}, {1, 1}, {3, 1}, {2, 2}}
	got := translate(t, 3, 16, count, cellrt.Config{MaxRows: 5}, func(i int, r *cellrt.Runtime, _ func() *cellrt.Sequence) {
		if err := r.Reshape(shapes[i%len(shapes)]); err != nil {
			t.Error(err)
		}
	})
	sameTokens(t, got, alone)
}

func TestCancelStormKeepsBits(t *testing.T) {
	t.Parallel()
	const count = 100
	alone := translate(t, 1, 1, count, cellrt.Config{MaxRows: 1}, nil)
	var storm sync.WaitGroup
	cfg := cellrt.Config{MaxRows: 7, Executors: 2, Threads: 2}
	got := translate(t, 4, 24, count, cfg, func(_ int, r *cellrt.Runtime, extra func() *cellrt.Sequence) {
		for range 3 {
			if q := extra(); r.Submit(q) == nil {
				storm.Go(func() { r.Cancel(q, errTest) })
			}
		}
	})
	storm.Wait()
	sameTokens(t, got, alone)
}

func TestReshape(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, cellrt.Config{}, 8)
		s.backend.delay = step
		if err := s.Reshape(cellrt.Shape{Executors: 2, Threads: 3}); err != nil { // before Run
			t.Fatal(err)
		}
		stop := s.start(t)
		began := time.Now()
		var took time.Duration
		s.sink.onEnd = func(int32, cellrt.Result) { took = time.Since(began) }
		mustSubmit(t, s, s.sequence(1, 20, 20, 1))
		time.Sleep(100 * step)
		synctest.Wait()
		if took != 21*step {
			t.Errorf("took %v on two executors, want %v", took, 21*step)
		}
		if got := s.backend.threads(); got != 3 {
			t.Errorf("runners have %d threads, want 3", got)
		}
		for _, executors := range []int{1, 3, 1, 2} { // the last one in force is 2
			if err := s.Reshape(cellrt.Shape{Executors: executors, Threads: 1}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		began = time.Now()
		mustSubmit(t, s, s.sequence(2, 20, 20, 1))
		time.Sleep(5*step + step/2)
		if err := s.Reshape(cellrt.Shape{Executors: 1, Threads: 2}); err != nil { // within a step
			t.Fatal(err)
		}
		time.Sleep(100 * step)
		synctest.Wait()
		if want := (6 + 28 + 1) * step; took != want {
			t.Errorf("took %v on two executors, then one, want %v", took, want)
		}
		if got := s.Stats().Shape; got != (cellrt.Shape{Executors: 1, Threads: 2}) || s.Shape() != got {
			t.Errorf("shape %+v", got)
		}
		for _, bad := range []cellrt.Shape{{}, {0, 1}, {1, 0}, {257, 1}, {1, 257}} {
			if err := s.Reshape(bad); err == nil {
				t.Errorf("shape %+v accepted", bad)
			}
		}
		stop()
		if err := s.Reshape(cellrt.Shape{Executors: 1, Threads: 1}); !errors.Is(err, cellrt.ErrStopped) {
			t.Errorf("reshape after the end: %v", err)
		}
		if st := s.Stats(); int(st.Rows) != len(s.backend.ran) || st.Running != 0 {
			t.Errorf("%d rows counted, %d run, %d sequences left", st.Rows, len(s.backend.ran), st.Running)
		}
		if got := s.backend.threads(); got != 1 {
			t.Errorf("runners are left with %d threads", got)
		}
		synctest.Wait() // every executor has gone, or the bubble would not end
	})
}

// TestReshapeHandsOver takes an executor away again and again while one runs a
// sequence and the other one sleeps. Sooner or later it is the one that runs:
// then the other one has to wake up for what becomes ready.
func TestReshapeHandsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, cellrt.Config{}, 8)
		s.backend.delay = step
		stop := s.start(t)
		for i := range int32(20) {
			if err := s.Reshape(cellrt.Shape{Executors: 2, Threads: 1}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			mustSubmit(t, s, s.sequence(i, 10, 10, 20))
			time.Sleep(20*step + step/2) // both have run something, one goes on
			if err := s.Reshape(cellrt.Shape{Executors: 1, Threads: 1}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * step)
			synctest.Wait()
			s.sink.expect(i, nil)
		}
		stop()
	})
}
