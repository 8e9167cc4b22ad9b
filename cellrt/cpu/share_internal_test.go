package cpu

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// projector is a program whose one cell exposes a row of a table times a
// matrix, with the given first weight.
func projector(t *testing.T, first float32) *cellrt.Program {
	t.Helper()
	const size = 37
	matrix := func(scale float32) *cellrt.Matrix {
		m := &cellrt.Matrix{Name: "m", Rows: size, Cols: size, Data: make([]float32, size*size)}
		for i := range m.Data {
			m.Data[i] = scale * float32(i%19)
		}
		return m
	}
	weight := matrix(0.25)
	weight.Data[0] = first
	layout := &cellrt.Layout{}
	layout.Add("state", 1, 1)
	b := cellrt.NewCell("projector", layout, 1)
	b.Expose(b.Linear(weight, nil, cellrt.None, b.Embed(matrix(0.125), 0)))
	c, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	p, err := cellrt.NewProgram("projector", layout, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// project returns the bits that an executable of a projector exposes for row 3
// of the table.
func project(p *cellrt.Program, x cellrt.Executable) []uint32 {
	out := make([]cellrt.Output, 1)
	x.NewRunner().Run(p.Cells[0], []cellrt.Row{{Args: [cellrt.MaxArgs]int32{3}}}, out)
	var bits []uint32
	for _, v := range out[0].Values {
		bits = append(bits, math.Float32bits(v))
	}
	return bits
}

func (s *shares) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.blocks)
}

// collect runs the garbage collector until so many blocks are left.
func (s *shares) collect(t *testing.T, want int) {
	t.Helper()
	timeout := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.len() != want {
		runtime.GC()
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%d blocks are left, want %d", s.len(), want)
		}
	}
}

// TestSharedOutlivesItsMaker drops the version whose load packed the weights
// that another one shares.
func TestSharedOutlivesItsMaker(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	load := func(p *cellrt.Program) cellrt.Executable {
		x, err := b.Load(p, 1)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	old, next := projector(t, 1), projector(t, 2)
	first := load(old)
	second := load(next)
	want := project(next, second)
	if slices.Equal(project(old, first), want) {
		t.Error("two versions give the same")
	}
	if n := b.shares.len(); n != 4 { // the table, zeros, two matrices
		t.Errorf("%d blocks of both versions, want 4", n)
	}
	runtime.KeepAlive(first)
	b.shares.collect(t, 3) // first is gone
	if !slices.Equal(project(next, second), want) {
		t.Error("a version has other bits since the other one is gone")
	}
	third := load(projector(t, 1)) // packs again what went
	if !slices.Equal(project(old, third), project(old, load(old))) || b.shares.len() != 4 {
		t.Errorf("a version loaded again has other bits, or %d blocks, want 4", b.shares.len())
	}
	runtime.KeepAlive(second)
	runtime.KeepAlive(third)
	b.shares.collect(t, 0)
}

// TestNewBlockStaysInPlaceOfAGoneOne makes a block again before the cleanup of
// the one that is gone has run.
func TestNewBlockStaysInPlaceOfAGoneOne(t *testing.T) {
	t.Parallel()
	var s shares
	key := valuesKey([]float32{1})
	make1 := func() *block { return valuesBlock([]float32{1}) }
	s.get(key, make1)
	gone := s.blocks[key]
	for deadline := time.Now().Add(10 * time.Second); gone.Value() != nil; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("a block that nobody holds stays")
		}
	}
	b := s.get(key, make1)
	s.forget(key, gone)
	if s.get(key, make1) != b {
		t.Error("the entry of a new block went with the old one's")
	}
}

// TestTwoMakersGetOneBlock makes a block while another load makes the same one.
func TestTwoMakersGetOneBlock(t *testing.T) {
	t.Parallel()
	var s shares
	values := []float32{1}
	var other *block
	b := s.get(valuesKey(values), func() *block {
		other = s.get(valuesKey(values), func() *block { return valuesBlock(values) })
		return valuesBlock(values)
	})
	if b != other {
		t.Error("two blocks with one key")
	}
}

func TestKeysTellBlocksApart(t *testing.T) {
	t.Parallel()
	table, err := findTable("purego")
	if err != nil {
		t.Fatal(err)
	}
	p := projector(t, 1)
	plain := p.Cells[0].Ops()[1].(cellrt.Linear).Weight
	seen := map[blockKey]string{}
	add := func(name string, key blockKey) {
		if other, known := seen[key]; known {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[key] = name
	}
	weights := func(k packKey) kernel.Weights {
		return kernel.Weights{Data: k.matrix.Data, Stride: k.matrix.Cols, From: k.from, K: k.k}
	}
	name := func(f kernel.Format, k packKey) string {
		return fmt.Sprintf("%v %dx%d from %d, %d", f, k.matrix.Rows, k.matrix.Cols, k.from, k.k)
	}
	add("values", valuesKey(plain.Data))
	add("fewer values", valuesKey(plain.Data[1:]))
	add("zero", valuesKey([]float32{0}))
	add("minus zero", valuesKey([]float32{float32(math.Copysign(0, -1))}))
	for _, f := range []kernel.Format{kernel.F32, kernel.BF16, kernel.Int8} {
		for _, k := range []packKey{
			{matrix: plain, k: 37},
			{matrix: plain, from: 1, k: 36},
			{matrix: plain, k: 36},
			{matrix: &cellrt.Matrix{Rows: 36, Cols: 37, Data: plain.Data[:36*37]}, k: 37},
			{matrix: &cellrt.Matrix{Rows: 37 * 37, Cols: 1, Data: plain.Data}, k: 1},
			{matrix: &cellrt.Matrix{Rows: 1, Cols: 37 * 37, Data: plain.Data}, k: 37 * 37},
		} {
			add(name(f, k), matrixKey(f, weights(k), table.Plain(k.matrix.Rows)))
		}
		for _, order := range [][]int{{0, 1, 2, 3}, {1, 0, 2, 3}} {
			k := packKey{matrix: &cellrt.Matrix{Rows: 36, Cols: 37, Data: plain.Data[:36*37]}, k: 37}
			add(fmt.Sprint(name(f, k), order), matrixKey(f, weights(k), table.Interleaved(order, 9)))
		}
	}
}
