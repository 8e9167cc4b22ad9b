package cpu_test

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// change makes the weights of a program of [decoder] another version's, in the
// given tensors: "projection", "recurrent" or "embedding".
func change(p *cellrt.Program, tensors ...string) *cellrt.Program {
	for _, tensor := range tensors {
		for _, op := range p.Cells[0].Ops() {
			switch op := op.(type) {
			case cellrt.Linear:
				if tensor == "projection" {
					op.Weight.Data[0]++
				}
			case cellrt.LSTM:
				if tensor == "recurrent" {
					op.Recurrent.Data[0]++
				}
			case cellrt.Embed:
				if tensor == "embedding" {
					op.Table.Data[0]++
				}
			}
		}
	}
	return p
}

// TestSizeEqualsLoad compares what Size says with what Load takes. The programs
// have no equal tensors.
func TestSizeEqualsLoad(t *testing.T) {
	t.Parallel()
	for _, c := range backendCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, kind := range []string{"lstm", "gru"} {
				for _, s := range [][3]int{{2, 1, 1}, {29, 11, 35}, {64, 32, 32}} {
					p := decoder(t, kind, s[0], s[1], s[2]).WithWeights(c.weights)
					b := cpu.New(c.cfg)
					weights, state, err := b.Size(p, 3)
					if err != nil {
						t.Fatal(err)
					}
					x, err := b.Load(p, 3)
					if err != nil {
						t.Fatal(err)
					}
					if weights != x.WeightBytes() || state != x.StateBytes() {
						t.Errorf("%s %v: size %d and %d, loaded %d and %d", kind, s, weights, state, x.WeightBytes(), x.StateBytes())
					}
				}
			}
		})
	}
}

func TestSizeFailsWhereLoadWould(t *testing.T) {
	t.Parallel()
	p := decoder(t, "lstm", 4, 2, 2)
	for _, tc := range []struct {
		name    string
		cfg     cpu.Config
		program *cellrt.Program
		slots   int
	}{
		{"no slots", cpu.Config{}, p, 0},
		{"large arena", cpu.Config{MaxStateBytes: 160}, p, 11},
		{"unknown tier", cpu.Config{ISA: "abacus"}, p, 1},
		{"unknown weights", cpu.Config{}, p.WithWeights(9), 1},
	} {
		b := cpu.New(tc.cfg)
		_, want := b.Load(tc.program, tc.slots)
		if _, _, err := b.Size(tc.program, tc.slots); err == nil || want == nil || err.Error() != want.Error() {
			t.Errorf("%s: error %v, of Load %v", tc.name, err, want)
		}
	}
}

// TestFootprintCountsOnce loads three versions of a model and compares the
// footprint of each set of them with the sizes of the different tensors.
func TestFootprintCountsOnce(t *testing.T) {
	t.Parallel()
	const vocabulary, size, slots = 64, 32, 3 // whole panels in every tier
	// By the tensors' names and versions.
	bytes := map[string]int64{
		"embedding": vocabulary * size * 4, "input": 4 * size * size * 4, "recurrent": 4 * size * size * 4,
		"bias": 4 * size * 4, "projection": vocabulary * size * 4, "projection bias": vocabulary * 4,
	}
	changed := [][]string{nil, {"projection"}, {"projection", "recurrent"}}
	rt, err := cellrt.New(cellrt.Config{}, cpu.New(cpu.Config{FoldBytes: -1}), nil)
	if err != nil {
		t.Fatal(err)
	}
	var versions []*cellrt.Model
	for i, tensors := range changed {
		p := decoder(t, "lstm", vocabulary, size, size)
		for range i { // the third version's projection is not the second's
			change(p, tensors...)
		}
		m, err := rt.Load(p, slots)
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, m)
	}
	for set := range 1 << len(versions) {
		var some []*cellrt.Model
		var want int64
		counted := map[string]bool{}
		for i, m := range versions {
			if set>>i&1 == 0 {
				continue
			}
			some = append(some, m)
			want += slots * 2 * size * 4
			version := map[string]int{}
			for _, tensor := range changed[i] {
				version[tensor] = i
			}
			for name, n := range bytes {
				if key := fmt.Sprint(name, version[name]); !counted[key] {
					counted[key] = true
					want += n
				}
			}
		}
		if got := cellrt.Footprint(some...); got != want {
			t.Errorf("versions %03b: %d bytes, want %d", set, got, want)
		}
	}
}

// heap returns the bytes in use that are not garbage.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// TestEqualTensorsAreHeldOnce loads a version that differs in one matrix beside
// another, and wants the heap to grow by that matrix.
func TestEqualTensorsAreHeldOnce(t *testing.T) { // not parallel: it measures the heap
	for _, fold := range []int64{0, -1} {
		const vocabulary, size = 1024, 256
		b := cpu.New(cpu.Config{FoldBytes: fold})
		old, next := decoder(t, "lstm", vocabulary, size, size), change(decoder(t, "lstm", vocabulary, size, size), "projection")
		first, err := b.Load(old, 1)
		if err != nil {
			t.Fatal(err)
		}
		before := heap()
		second, err := b.Load(next, 1)
		if err != nil {
			t.Fatal(err)
		}
		grown := heap() - before
		const projection = vocabulary * size * 4
		if grown < projection || grown > projection*11/10 {
			t.Errorf("fold %d: the heap grew by %d bytes, want the %d of the projection; a version has %d", fold, grown, projection, first.WeightBytes())
		}
		runtime.KeepAlive([]any{first, second, old, next})
	}
}

// TestConcurrentLoads loads two versions of a model many times at once on one
// backend, while the garbage collector takes those away that are done, and
// wants each to compute its own bits and to share what is equal.
func TestConcurrentLoads(t *testing.T) {
	t.Parallel()
	b := cpu.New(cpu.Config{})
	programs := make([]*cellrt.Program, 2)
	want := make([][]cellrt.Output, 2)
	for i := range programs {
		programs[i] = decoder(t, "lstm", 29, 11, 35)
	}
	change(programs[1], "projection")
	for i, p := range programs {
		want[i] = decode(t, cpu.Config{}, p, 5, 10)
	}
	var mu sync.Mutex
	ids := map[any]bool{}
	var kept []cellrt.Executable
	var loads sync.WaitGroup
	for worker := range 8 {
		loads.Go(func() {
			for round := range 6 {
				version := (worker + round) % 2
				x, err := b.Load(programs[version], 5)
				if err != nil {
					t.Error(err)
					return
				}
				if round == 5 {
					mu.Lock()
					kept = append(kept, x)
					for id := range x.Blocks {
						ids[id] = true
					}
					mu.Unlock()
				}
				runtime.GC()
				sameTokens(t, decodeOn(x, programs[version], 5, 10), want[version])
			}
		})
	}
	loads.Wait()
	// Table, recurrent weights and projection's bias are common; there are two projections.
	if len(ids) != 5 {
		t.Errorf("%d executables of two versions have %d blocks in all, want 5", len(kept), len(ids))
	}
	runtime.KeepAlive(kept)
}

func sameTokens(t *testing.T, got, want []cellrt.Output) {
	t.Helper()
	for i := range want {
		if got[i].Token != want[i].Token || math.Float32bits(got[i].LogProb) != math.Float32bits(want[i].LogProb) {
			t.Errorf("output %d: %v, want %v", i, got[i], want[i])
			return
		}
	}
}
