package cellrt_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// idleBackend computes nothing.
type idleBackend struct{}

func (b idleBackend) Load(*cellrt.Program, int) (cellrt.Executable, error) { return b, nil }
func (b idleBackend) NewRunner() cellrt.Runner                             { return b }
func (idleBackend) StateBytes() int64                                      { return 0 }
func (idleBackend) SetThreads(int)                                         {}
func (idleBackend) WeightBytes() int64                                     { return 0 }
func (idleBackend) Blocks(func(any, int64) bool)                           {}
func (idleBackend) Run(_ *cellrt.Cell, rows []cellrt.Row, _ []cellrt.Output) int {
	return len(rows)
}

// discard is a sink that only counts.
type discard struct{ tokens int }

func (d *discard) Deliver(results []cellrt.Result) {
	for _, r := range results {
		d.tokens += len(r.Tokens)
	}
}

// startLoop runs a full house of endless sequences and returns a channel that
// lets one step pass for each value received.
func startLoop(tb testing.TB, cfg cellrt.Config, b cellrt.Backend, p *cellrt.Program, graph func() cellrt.Graph, rows int) <-chan struct{} {
	tb.Helper()
	steps, quit := make(chan struct{}), make(chan struct{})
	cfg.MaxRows = rows
	cfg.Trace.Step = func(cellrt.StepTrace) {
		select {
		case steps <- struct{}{}:
		case <-quit:
		}
	}
	s := &stage{}
	var err error
	if s.Runtime, err = cellrt.New(cfg, b, &discard{}); err != nil {
		tb.Fatal(err)
	}
	m, err := s.Load(p, rows)
	if err != nil {
		tb.Fatal(err)
	}
	for range rows {
		if err := s.Submit(cellrt.NewSequence(m, graph(), cellrt.SequenceOptions{})); err != nil {
			tb.Fatal(err)
		}
	}
	stop := s.start(tb)
	tb.Cleanup(func() {
		close(quit)
		stop()
	})
	return steps
}

// babbleGraph feeds its tokens back for ever.
type babbleGraph struct{ cell *cellrt.Cell }

func (g *babbleGraph) Start(f *cellrt.Frontier) {
	f.Push(cellrt.Node{Cell: g.cell, Args: [cellrt.MaxArgs]int32{0, -1}})
}

func (g *babbleGraph) Advance(_ cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	f.Emit(cellrt.Token{ID: out.Token, LogProb: out.LogProb})
	f.Push(cellrt.Node{Cell: g.cell, Args: [cellrt.MaxArgs]int32{out.Token, 0}})
}

// babbler is a language model with random weights: arguments are the token and
// the index of the state, -1 at the start.
func babbler(tb testing.TB, vocabulary, input, hidden int) *cellrt.Program {
	tb.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	matrix := func(rows, cols int) *cellrt.Matrix {
		m := &cellrt.Matrix{Name: "m", Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
		for i := range m.Data {
			m.Data[i] = float32(r.NormFloat64()) * 0.1
		}
		return m
	}
	layout := &cellrt.Layout{}
	hf, cf := layout.Add("h", 1, hidden), layout.Add("c", 1, hidden)
	b := cellrt.NewCell("step", layout, 2)
	h, c := b.LSTM(matrix(4*hidden, input), matrix(4*hidden, hidden), make([]float32, 4*hidden),
		b.Embed(matrix(vocabulary, input), 0), b.Load(hf, 1), b.Load(cf, 1))
	b.Store(hf, cellrt.Zero, 0, h)
	b.Store(cf, cellrt.Zero, 0, c)
	b.Greedy(b.Linear(matrix(vocabulary, hidden), nil, cellrt.None, h))
	cell, err := b.Build()
	if err != nil {
		tb.Fatal(err)
	}
	p, err := cellrt.NewProgram("babbler", layout, cell)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestLoopDoesNotAllocate(t *testing.T) { // not parallel: it counts allocations
	small := babbler(t, 11, 5, 9)
	script, translated := scriptProgram(t), newTranslator(t, 5, 4)
	for _, tc := range []struct {
		name    string
		cfg     cellrt.Config
		backend cellrt.Backend
		program *cellrt.Program
		graph   func() cellrt.Graph
	}{
		{"idle backend", cellrt.Config{}, idleBackend{}, script, func() cellrt.Graph { return endlessGraph{script.Cells[0]} }},
		{"cpu backend", cellrt.Config{}, cpu.New(cpu.Config{}), small, func() cellrt.Graph { return &babbleGraph{small.Cells[0]} }},
		{
			"executors and threads",
			cellrt.Config{Executors: 2, Threads: 2},
			cpu.New(cpu.Config{SplitWork: 1}), small,
			func() cellrt.Graph { return &babbleGraph{small.Cells[0]} },
		},
		{
			"look-ahead",
			cellrt.Config{},
			cpu.New(cpu.Config{}), translated.program,
			func() cellrt.Graph { return silentGraph{translated.forward} },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			steps := startLoop(t, tc.cfg, tc.backend, tc.program, tc.graph, 8)
			for range 3 {
				<-steps
			}
			if n := testing.AllocsPerRun(300, func() { <-steps }); n != 0 {
				t.Errorf("%g allocations a step, want none", n)
			}
		})
	}
}

// BenchmarkLoop measures whole steps of a decoder of the given sizes: gather,
// LSTM, projection, choice, scatter, scheduling, delivery.
func BenchmarkLoop(b *testing.B) {
	const vocabulary, input, hidden = 87, 128, 384
	p := babbler(b, vocabulary, input, hidden)
	for _, fold := range []struct {
		name  string
		bytes int64
	}{{"folded", 0}, {"plain", -1}} {
		for _, rows := range []int{1, 4, 16, 32} {
			b.Run(fmt.Sprintf("%s/rows=%d", fold.name, rows), func(b *testing.B) {
				backend := cpu.New(cpu.Config{FoldBytes: fold.bytes})
				steps := startLoop(b, cellrt.Config{}, backend, p, func() cellrt.Graph { return &babbleGraph{p.Cells[0]} }, rows)
				<-steps
				b.ReportAllocs()
				for b.Loop() {
					<-steps
				}
				seconds := b.Elapsed().Seconds()
				flop := 2 * float64(rows) * (4*hidden*(input+hidden) + vocabulary*hidden) * float64(b.N)
				b.ReportMetric(flop/seconds/1e9, "GFLOP/s")
				b.ReportMetric(float64(rows*b.N)/seconds, "tokens/s")
			})
		}
	}
}

// countGraph runs a number of nodes, each of which gives a token.
type countGraph struct {
	cell *cellrt.Cell
	left int
}

func (g *countGraph) Start(f *cellrt.Frontier) { f.Push(cellrt.Node{Cell: g.cell}) }

func (g *countGraph) Advance(n cellrt.Node, _ cellrt.Output, f *cellrt.Frontier) {
	f.Emit(cellrt.Token{})
	if g.left--; g.left <= 0 {
		f.Finish(cellrt.Stopped)
		return
	}
	f.Push(n)
}

// closing is a sink that closes a channel at the end of the last sequence.
type closing struct {
	left int
	done chan struct{}
}

func (c *closing) Deliver(results []cellrt.Result) {
	for _, r := range results {
		if r.Done {
			c.left--
		}
	}
	if c.left == 0 {
		close(c.done)
	}
}

// BenchmarkFreeLoop measures what a step costs beside its arithmetic, with
// nobody who waits for it: one row that computes nothing and gives one token.
func BenchmarkFreeLoop(b *testing.B) {
	sink := &closing{left: 1, done: make(chan struct{})}
	s := &stage{}
	var err error
	if s.Runtime, err = cellrt.New(cellrt.Config{}, idleBackend{}, sink); err != nil {
		b.Fatal(err)
	}
	p := scriptProgram(b)
	m, err := s.Load(p, 1)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	if err := s.Submit(cellrt.NewSequence(m, &countGraph{cell: p.Cells[0], left: b.N}, cellrt.SequenceOptions{})); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	stop := s.start(b)
	<-sink.done
	b.StopTimer()
	stop()
}
