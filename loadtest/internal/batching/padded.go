package batching

import (
	"context"
	"fmt"
	"time"

	"github.com/cellmq/cellmq/cellrt"
)

// padded serves whole batches out of buckets: an executor that is free takes
// requests of one bucket and runs them together to the end. Sources are padded
// to the bucket's upper bound or to the batch's longest; the decoder runs until
// the longest target is done. Everybody's answer is there when the batch ends.
type padded struct {
	network *network
	loaded  cellrt.Executable
	shape   cellrt.Shape
	rows    int // of the largest batch
	tight   bool

	pool
	buckets buckets // the pool's mu guards them
}

// newPadded loads a network for batches of at most rows requests.
func newPadded(n *network, b cellrt.Backend, shape cellrt.Shape, rows, width int, baseline Baseline) (*padded, error) {
	loaded, err := b.Load(n.program, rows*shape.Executors)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", n.name, err)
	}
	s := &padded{
		network: n, loaded: loaded, shape: shape, rows: rows, tight: baseline.Tight,
		buckets: buckets{width: width, order: baseline.Order},
	}
	s.wake.L = &s.mu
	return s, nil
}

// run serves until ctx ends. What waits then gets no answer.
func (s *padded) run(ctx context.Context) error {
	var executors []func()
	for i := range s.shape.Executors {
		executors = append(executors, newPaddedExecutor(s, i).run)
	}
	return s.serve(ctx, executors)
}

// submit implements [server].
func (s *padded) submit(_ context.Context, arrived []answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range arrived {
		s.buckets.push(&arrived[i])
	}
	s.wake.Broadcast()
	return nil
}

// paddedExecutor runs one batch after the other, on slots of its own.
type paddedExecutor struct {
	server *padded
	runner cellrt.Runner

	batch  []*answer
	walks  []walk
	rows   []cellrt.Row
	out    []cellrt.Output
	live   []bool // rows that are a node
	counts counts // of the batch
}

func newPaddedExecutor(s *padded, number int) *paddedExecutor {
	e := &paddedExecutor{
		server: s, runner: s.loaded.NewRunner(), batch: make([]*answer, 0, s.rows), walks: make([]walk, 0, s.rows),
		rows: make([]cellrt.Row, s.rows), out: make([]cellrt.Output, s.rows), live: make([]bool, s.rows),
	}
	for i := range e.rows {
		e.rows[i].Slot = int32(number*s.rows + i)
	}
	return e
}

func (e *paddedExecutor) run() {
	e.runner.SetThreads(e.server.shape.Threads)
	defer e.runner.SetThreads(1)
	for {
		upper, ok := e.wait()
		if !ok {
			return
		}
		e.serve(upper)
	}
}

// wait waits for a batch and takes it. It reports false when the server stops.
func (e *paddedExecutor) wait() (upper int, ok bool) {
	s := e.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopped {
		if e.batch, upper = s.buckets.take(s.rows, e.batch[:0]); len(e.batch) > 0 {
			return upper, true
		}
		s.wake.Wait()
	}
	return 0, false
}

// serve runs the batch, whose bucket has sources of at most upper tokens.
func (e *paddedExecutor) serve(upper int) {
	e.walks, e.counts = e.walks[:0], counts{}
	longest, target := 0, 0
	for _, a := range e.batch {
		e.walks = append(e.walks, newWalk(e.server.network, a.request))
		longest, target = max(longest, len(a.request.source)), max(target, a.request.target)
	}
	if e.server.tight {
		upper = longest
	}
	e.stage(e.server.network.encoder, upper)
	if target > 0 {
		e.stage(e.server.network.decoder, target)
	}

	e.server.add(e.counts)
	now := time.Now()
	for i, a := range e.batch {
		a.end(now, e.walks[i].digest, nil)
	}
}

// stage runs so many steps of a cell for all rows of the batch.
func (e *paddedExecutor) stage(cell *cellrt.Cell, steps int) {
	n := len(e.batch)
	rows, out := e.rows[:n], e.out[:n]
	for range steps {
		nodes := 0
		for i := range e.walks {
			rows[i].Args = [cellrt.MaxArgs]int32{argToken: beginToken, argFrom: entryPadding, argTo: entryPadding}
			node, ok := e.walks[i].next()
			if e.live[i] = ok && node.Cell == cell; e.live[i] {
				rows[i].Args = node.Args
				nodes++
			}
		}
		computed := e.runner.Run(cell, rows, out)
		for i := range e.walks {
			if e.live[i] {
				e.walks[i].take(&out[i])
			}
		}
		e.counts.steps++
		e.counts.rows += uint64(nodes)
		e.counts.padded += uint64(computed - nodes)
	}
}
