package cellrt_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/cellmq/cellmq/cellrt"
)

// TestLoadWhileAnExecutorRetires takes an executor away while it is within a
// step, and loads a model before the step ends: the new model has no runner
// for the executor that goes.
func TestLoadWhileAnExecutorRetires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, cellrt.Config{Executors: 2, MaxRows: 1}, 8)
		s.backend.delay = step
		stop := s.start(t)
		mustSubmit(t, s, s.sequence(1, 1, 1, 1)) // two chains: both executors have a step
		time.Sleep(step / 2)
		if err := s.Reshape(cellrt.Shape{Executors: 1, Threads: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(scriptProgram(t), 8); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * step)
		synctest.Wait()
		s.sink.expect(1, nil)
		stop()
	})
}

// TestModelStorm loads and unloads models and changes the shape while all of
// them serve, and wants every sequence to have exactly one end.
func TestModelStorm(t *testing.T) {
	t.Parallel()
	const loaders, rounds, each = 3, 60, 24
	sink := newRecorder(t)
	var ended sync.WaitGroup
	sink.onEnd = func(int32, cellrt.Result) { ended.Done() }
	r, err := cellrt.New(cellrt.Config{Executors: 3, MaxRows: 4}, idleBackend{}, sink)
	if err != nil {
		t.Fatal(err)
	}
	stop := (&stage{Runtime: r}).start(t)
	serving, served := context.WithCancel(t.Context())
	var reshaper, clients sync.WaitGroup
	reshaper.Go(func() {
		random := rand.New(rand.NewPCG(1, 1))
		for serving.Err() == nil {
			if err := r.Reshape(cellrt.Shape{Executors: 1 + random.IntN(6), Threads: 1 + random.IntN(3)}); err != nil {
				t.Error(err)
			}
			runtime.Gosched()
		}
	})
	for client := range int32(loaders) {
		clients.Go(func() {
			for round := range int32(rounds) {
				first := (client*rounds + round) * each
				if err := serveOnce(r, scriptProgram(t), first, each, &ended); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
	served()
	reshaper.Wait()
	ended.Wait()
	if st := r.Stats(); st.Running != 0 || st.Ready != 0 || st.Tenants != 0 || len(st.Models) != 0 ||
		st.Submitted != loaders*rounds*each || st.Submitted != st.Finished+st.Cancelled {
		t.Errorf("inconsistent counters: %+v", st)
	}
	stop()
}

// serveOnce loads a model for sequences numbered from first on, cancels some
// of them, and unloads it when all have ended.
func serveOnce(r *cellrt.Runtime, p *cellrt.Program, first, count int32, ended *sync.WaitGroup) error {
	m, err := r.Load(p, int(count))
	if err != nil {
		return err
	}
	for number := first; number < first+count; number++ {
		g := &walk{cells: p.Cells, number: number, lengths: [3]int32{1 + number%5, 1 + number%3, 1}}
		q := cellrt.NewSequence(m, g, cellrt.SequenceOptions{Owner: number, Tenant: strconv.Itoa(int(number % 7))})
		ended.Add(1)
		if err := r.Submit(q); err != nil {
			return err
		}
		if number%5 == 0 {
			r.Cancel(q, errTest)
		}
	}
	for {
		err := r.Unload(m)
		if !errors.Is(err, cellrt.ErrBusy) {
			return err
		}
		runtime.Gosched() // executors are at work
	}
}

// executableBackend has executables that the garbage collector can tell apart.
type executableBackend struct {
	idleBackend
	loaded weak.Pointer[heavy] // the last one
}

// heavy is an executable that stands for the memory of a model.
type heavy struct {
	idleBackend
	weights [1 << 10]float32
}

// heavyRunner keeps its executable, as the runners of a device do.
type heavyRunner struct {
	idleBackend
	executable *heavy
}

func (b *executableBackend) Load(*cellrt.Program, int) (cellrt.Executable, error) {
	x := &heavy{}
	b.loaded = weak.Make(x)
	return x, nil
}

func (x *heavy) WeightBytes() int64 { return 4 * int64(len(x.weights)) }

func (x *heavy) NewRunner() cellrt.Runner { return &heavyRunner{executable: x} }

// TestUnloadedModelGoes wants the memory of a model to go when it is unloaded,
// though the executors that ran it have nothing else to run.
func TestUnloadedModelGoes(t *testing.T) {
	t.Parallel()
	for _, lookAhead := range []int{1, 4} {
		t.Run(fmt.Sprintf("ahead=%d", lookAhead), func(t *testing.T) {
			t.Parallel()
			backend := &executableBackend{}
			sink := newRecorder(t)
			var ended sync.WaitGroup
			sink.onEnd = func(int32, cellrt.Result) { ended.Done() }
			r, err := cellrt.New(cellrt.Config{Executors: 2, MaxRows: 4}, backend, sink)
			if err != nil {
				t.Fatal(err)
			}
			stop := (&stage{Runtime: r}).start(t)
			defer stop()
			memory := serveAndUnload(t, r, lookAhead, &ended)
			sink.forget() // results name their sequences
			timeout := time.After(10 * time.Second)
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for backend.loaded.Value() != nil || slices.ContainsFunc(memory, func(still func() bool) bool { return still() }) {
				runtime.GC()
				select {
				case <-tick.C:
				case <-timeout:
					t.Fatalf("an unloaded model keeps memory: executable %t", backend.loaded.Value() != nil)
				}
			}
		})
	}
}

// serveAndUnload runs sequences on a model that nobody else knows, and returns
// what tells whether the model and each of its cells are still there.
func serveAndUnload(t *testing.T, r *cellrt.Runtime, lookAhead int, ended *sync.WaitGroup) []func() bool {
	t.Helper()
	p := scriptProgram(t)
	for _, c := range p.Cells[:2] { // the chains; what follows depends on nothing they give
		c.LookAhead = lookAhead
	}
	m, err := r.Load(p, 8)
	if err != nil {
		t.Fatal(err)
	}
	ended.Add(8)
	for number := range int32(8) {
		g := &walk{cells: p.Cells, number: number, lengths: [3]int32{9, 9, 1}}
		if err := r.Submit(cellrt.NewSequence(m, g, cellrt.SequenceOptions{Owner: number})); err != nil {
			t.Fatal(err)
		}
	}
	ended.Wait()
	if err := r.Unload(m); err != nil {
		t.Fatal(err)
	}
	memory := []func() bool{held(m)}
	for _, c := range p.Cells {
		memory = append(memory, held(c))
	}
	return memory
}

func held[T any](x *T) func() bool {
	p := weak.Make(x)
	return func() bool { return p.Value() != nil }
}

// forget drops what came.
func (s *recorder) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.ends)
}
