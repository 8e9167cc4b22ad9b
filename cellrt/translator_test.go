package cellrt_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

// translator is a program with an encoder in two directions and a decoder that
// reads what they stored by attention, with random weights.
type translator struct {
	program                    *cellrt.Program
	forward, backward, decoder *cellrt.Cell
}

const (
	translatorVocabulary = 23
	translatorLength     = 12 // of a source at most
)

func newTranslator(tb testing.TB, hidden, lookAhead int) *translator {
	tb.Helper()
	const input = 7
	r := rand.New(rand.NewPCG(3, uint64(hidden)))
	matrix := func(rows, cols int) *cellrt.Matrix {
		m := &cellrt.Matrix{Name: "m", Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
		for i := range m.Data {
			m.Data[i] = float32(r.NormFloat64()) * 0.4
		}
		return m
	}
	l := &cellrt.Layout{}
	memory := l.Add("memory", translatorLength, 2*hidden)
	var states [2][2]cellrt.FieldID
	for d, name := range []string{"forward", "backward"} {
		states[d] = [2]cellrt.FieldID{l.Add(name+" h", 1, hidden), l.Add(name+" c", 1, hidden)}
	}
	h, c := l.Add("decoder h", 1, hidden), l.Add("decoder c", 1, hidden)
	table := matrix(translatorVocabulary, input)
	step := func(b *cellrt.CellBuilder, h, c cellrt.FieldID) cellrt.Value {
		outH, outC := b.LSTM(matrix(4*hidden, input), matrix(4*hidden, hidden), matrix(1, 4*hidden).Data,
			b.Embed(table, 0), b.Load(h, 1), b.Load(c, 1))
		b.Store(h, cellrt.Zero, 0, outH)
		b.Store(c, cellrt.Zero, 0, outC)
		return outH
	}
	// Arguments: token, index of the state (-1 to begin with), position.
	encoder := func(name string, d int) *cellrt.Cell {
		b := cellrt.NewCell(name, l, 3)
		b.Store(memory, 2, d*hidden, step(b, states[d][0], states[d][1]))
		return build(tb, b, lookAhead)
	}
	t := &translator{forward: encoder("forward", 0), backward: encoder("backward", 1)}
	// Arguments: token, index of the state, length of the source.
	b := cellrt.NewCell("decoder", l, 3)
	y := step(b, h, c)
	context := b.Attend(b.Linear(matrix(2*hidden, hidden), nil, cellrt.None, y), memory, 2)
	b.Greedy(b.Linear(matrix(translatorVocabulary, 3*hidden), nil, cellrt.None, y, context))
	t.decoder = build(tb, b, lookAhead) // it has outputs: no look-ahead whatever it says
	var err error
	if t.program, err = cellrt.NewProgram("translator", l, t.forward, t.backward, t.decoder); err != nil {
		tb.Fatal(err)
	}
	return t
}

func build(tb testing.TB, b *cellrt.CellBuilder, lookAhead int) *cellrt.Cell {
	tb.Helper()
	c, err := b.Build()
	if err != nil {
		tb.Fatal(err)
	}
	c.LookAhead = lookAhead
	return c
}

// translation is the graph of one source: both directions, then a number of
// tokens. Its numbers vary with its seed.
type translation struct {
	*translator
	source []int32
	tokens int

	left    [2]int
	decoded int
}

func (t *translator) translation(seed uint64) *translation {
	r := rand.New(rand.NewPCG(seed, 5))
	g := &translation{translator: t, source: make([]int32, 1+r.IntN(translatorLength)), tokens: 1 + r.IntN(9)}
	for i := range g.source {
		g.source[i] = r.Int32N(translatorVocabulary)
	}
	return g
}

func (g *translation) Start(f *cellrt.Frontier) {
	g.left = [2]int{len(g.source), len(g.source)}
	g.encode(f, 0)
	g.encode(f, 1)
}

func (g *translation) encode(f *cellrt.Frontier, direction int) {
	position, cell := len(g.source)-g.left[0], g.forward
	if direction == 1 {
		position, cell = g.left[1]-1, g.backward
	}
	state := int32(0)
	if g.left[direction] == len(g.source) {
		state = -1
	}
	f.Push(cellrt.Node{Cell: cell, Args: [cellrt.MaxArgs]int32{g.source[position], state, int32(position)}})
}

func (g *translation) Advance(n cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	next := cellrt.Node{Cell: g.decoder, Args: [cellrt.MaxArgs]int32{0, -1, int32(len(g.source))}}
	if n.Cell == g.decoder {
		f.Emit(cellrt.Token{ID: out.Token, LogProb: out.LogProb})
		if g.decoded++; g.decoded == g.tokens {
			f.Finish(cellrt.Length)
			return
		}
		next.Args[0], next.Args[1] = out.Token, 0
		f.Push(next)
		return
	}
	direction := 0
	if n.Cell == g.backward {
		direction = 1
	}
	if g.left[direction]--; g.left[direction] > 0 {
		g.encode(f, direction)
	} else if g.left[1-direction] == 0 {
		f.Push(next)
	}
}

// gatherer is a sink that keeps each sequence's tokens. A sequence's owner is
// its number; those without one do not count.
type gatherer struct {
	tb    testing.TB
	ended sync.WaitGroup
	freed chan struct{} // has a value when a sequence has ended lately

	mu     sync.Mutex
	tokens map[int][]cellrt.Token
}

// submit submits a sequence as soon as there is a slot.
func (s *gatherer) submit(r *cellrt.Runtime, q *cellrt.Sequence) {
	s.ended.Add(1)
	for {
		err := r.Submit(q)
		if err == nil {
			return
		}
		if !errors.Is(err, cellrt.ErrNoSlot) {
			s.tb.Error(err)
			s.ended.Done()
			return
		}
		<-s.freed
	}
}

func (s *gatherer) Deliver(results []cellrt.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range results {
		if r.Done {
			select {
			case s.freed <- struct{}{}:
			default:
			}
		}
		number, ok := r.Sequence.Owner().(int)
		if !ok {
			continue
		}
		s.tokens[number] = append(s.tokens[number], r.Tokens...)
		if !r.Done {
			continue
		}
		if r.Err != nil {
			s.tb.Errorf("sequence %d: %v", number, r.Err)
		}
		s.ended.Done()
	}
}
