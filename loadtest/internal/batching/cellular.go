package batching

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cellmq/cellmq/cellrt"
)

const (
	// profileTime is how long the cells of a network are measured.
	profileTime = time.Second
	// profiledRows bounds the batches that are measured.
	profiledRows = 64
	// leastSlots is how many requests are live at once at least; more wait.
	leastSlots = 256
	// slotsPerRow is how many there are for each row of the largest batch.
	slotsPerRow = 4
)

// cellular serves with a [cellrt.Runtime].
type cellular struct {
	network *network
	runtime *cellrt.Runtime
	model   *cellrt.Model
	freed   chan struct{} // a slot is free; has room for one, for one generator
}

// newCellular loads a network, and measures its cells unless rows says how
// large batches are.
func newCellular(n *network, b cellrt.Backend, shape cellrt.Shape, rows int) (*cellular, error) {
	cfg := cellrt.Config{MaxRows: rows, Executors: shape.Executors, Threads: shape.Threads}
	if rows == 0 {
		cfg.MaxRows, cfg.Profile = profiledRows, profileTime
	}
	s := &cellular{network: n, freed: make(chan struct{}, 1)}
	var err error
	if s.runtime, err = cellrt.New(cfg, b, s); err != nil {
		return nil, err
	}
	if s.model, err = s.runtime.Load(n.program, max(leastSlots, slotsPerRow*cfg.MaxRows)); err != nil {
		return nil, err
	}
	return s, nil
}

// run serves until ctx ends.
func (s *cellular) run(ctx context.Context) error { return s.runtime.Run(ctx) }

// submit implements [server].
func (s *cellular) submit(ctx context.Context, arrived []answer) error {
	for i := range arrived {
		a := &arrived[i]
		g := newGraph(s.network, a.request)
		sequence := cellrt.NewSequence(s.model, g, cellrt.SequenceOptions{Owner: owner{answer: a, graph: g}})
		for {
			err := s.runtime.Submit(sequence)
			if err == nil {
				break
			}
			if !errors.Is(err, cellrt.ErrNoSlot) {
				return fmt.Errorf("cellular: %w", err)
			}
			select {
			case <-s.freed:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// Deliver implements [cellrt.Sink].
func (s *cellular) Deliver(results []cellrt.Result) {
	now := time.Now()
	for _, r := range results {
		if !r.Done {
			continue
		}
		o := r.Sequence.Owner().(owner)
		o.answer.end(now, o.graph.sum(), r.Err)
		select {
		case s.freed <- struct{}{}:
		default:
		}
	}
}

// counts implements [server].
func (s *cellular) counts() counts {
	stats := s.runtime.Stats()
	return counts{steps: stats.Steps, rows: stats.Rows, padded: stats.PaddedRows}
}

// cells returns what is known about the cells.
func (s *cellular) cells() []Cell {
	var cells []Cell
	for _, c := range s.runtime.Stats().Cells {
		cells = append(cells, Cell{Name: c.Cell, MaxRows: c.MaxRows, RowMicroseconds: float64(c.RowCost) / 1000})
	}
	return cells
}

// owner is whom a sequence is for.
type owner struct {
	answer *answer
	graph  graph
}

// graph is what a request computes, as the runtime takes it.
type graph interface {
	cellrt.Graph
	// sum returns the digest of the output.
	sum() uint64
}

func newGraph(n *network, r *request) graph {
	if r.children != nil || n.leaf != nil {
		return &treeGraph{treeWalk: newTreeWalk(n, r)}
	}
	return &chainGraph{walk: newWalk(n, r)}
}

// chainGraph is a walk that the runtime takes. It implements [graph].
type chainGraph struct{ walk }

// Start implements [cellrt.Graph].
func (g *chainGraph) Start(f *cellrt.Frontier) { g.push(f) }

// Advance implements [cellrt.Graph].
func (g *chainGraph) Advance(_ cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	if g.take(&out) {
		f.Emit(cellrt.Token{ID: out.Token, LogProb: out.LogProb})
	}
	g.push(f)
}

func (g *chainGraph) push(f *cellrt.Frontier) {
	if n, ok := g.next(); ok {
		f.Push(n)
		return
	}
	f.Finish(cellrt.Stopped)
}
