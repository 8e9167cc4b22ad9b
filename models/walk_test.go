package models_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/models"
)

// walker runs one request's graph by hand, a node at a time.
type walker struct {
	tb       testing.TB
	states   cellrt.States
	runner   cellrt.Runner
	frontier cellrt.Frontier

	req     *models.Request
	slot    int32
	waiting []cellrt.Node
	tokens  []cellrt.Token
	reason  cellrt.Reason
	err     error
	nodes   uint64
}

const walkerSlots = 2

func newWalker(tb testing.TB, m *models.Model) *walker {
	tb.Helper()
	x, err := cpu.New(cpu.Config{}).Load(m.Program(), walkerSlots)
	if err != nil {
		tb.Fatal(err)
	}
	return &walker{tb: tb, states: x.(cellrt.States), runner: x.NewRunner()}
}

// start starts a request in the other slot, where nothing is a number but what
// comes from the checkpoint.
func (w *walker) start(req *models.Request, from *cellrt.Checkpoint) {
	layout := req.Model.Program().Layout
	w.slot = (w.slot + 1) % walkerSlots
	garbage := make([]float32, layout.Size())
	for i := range garbage {
		garbage[i] = float32(math.NaN())
	}
	w.states.WriteState(w.slot, 0, garbage)
	w.nodes = 0
	if from != nil {
		w.nodes = from.Nodes
		rest := from.State
		for _, s := range from.Spans {
			width := layout.Field(s.Field).Width
			n := (s.To - s.From) * width
			w.states.WriteState(w.slot, layout.Offset(s.Field)+s.From*width, rest[:n])
			rest = rest[n:]
		}
	}
	w.req, w.waiting, w.tokens, w.reason, w.err = req, nil, nil, 0, nil
	if g, ok := req.Graph.(cellrt.Resumable); ok {
		g.Record()
	}
	w.frontier.Reset()
	req.Graph.Start(&w.frontier)
	w.settle()
}

func (w *walker) settle() {
	w.waiting = append(w.waiting, w.frontier.Nodes()...)
	w.tokens = append(w.tokens, w.frontier.Tokens()...)
	w.reason, w.err = w.frontier.Done()
}

// ended reports whether the graph has ended.
func (w *walker) ended() bool { return w.reason != 0 || w.err != nil }

// step runs one of the waiting nodes.
func (w *walker) step(i int) {
	n := w.waiting[i]
	w.waiting = append(w.waiting[:i:i], w.waiting[i+1:]...)
	out := make([]cellrt.Output, 1)
	w.runner.Run(n.Cell, []cellrt.Row{{Slot: w.slot, Args: n.Args}}, out)
	w.nodes++
	w.frontier.Reset()
	w.req.Graph.Advance(n, out[0], &w.frontier)
	w.settle()
}

// save returns a checkpoint, nil without one.
func (w *walker) save() *cellrt.Checkpoint {
	g, ok := w.req.Graph.(cellrt.Resumable)
	if !ok {
		return nil
	}
	c := &cellrt.Checkpoint{Nodes: w.nodes}
	if c.Graph, c.Spans, ok = g.Save(nil, nil); !ok {
		return nil
	}
	layout := w.req.Model.Program().Layout
	for _, s := range c.Spans {
		width := layout.Field(s.Field).Width
		values := make([]float32, (s.To-s.From)*width)
		w.states.ReadState(w.slot, layout.Offset(s.Field)+s.From*width, values)
		c.State = append(c.State, values...)
	}
	return c
}

func (w *walker) bits() string {
	top := ""
	for _, t := range w.tokens {
		top += fmt.Sprint(t.Top)
	}
	return bitsOf(w.req, models.Output{Tokens: w.tokens, Reason: w.reason}) + fmt.Sprint(" cut ", w.req.Outcome().Cut, " error ", w.err, top)
}

// TestCheckpointsOfAnyOrder runs nodes in any order that graphs allow, lower
// layers far ahead of upper ones included, moves each request at random
// moments, and sees to it that a checkpoint has no value that was not computed
// and all that are needed.
func TestCheckpointsOfAnyOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(6, 6))
	walkers := map[*models.Model]*walker{}
	moves, walks := 0, 3
	if testing.Short() {
		walks = 1
		t.Logf("%d walk of each request", walks)
	}
	for _, a := range resumables(t) {
		w := walkers[a.model]
		if w == nil {
			w = newWalker(t, a.model)
			walkers[a.model] = w
		}
		w.start(unfold(t, a), nil)
		for !w.ended() {
			w.step(0)
		}
		want, nodes := w.bits(), w.nodes
		for range walks {
			w.start(unfold(t, a), nil)
			newest := rng.IntN(2) == 0 // else the oldest, or any
			for !w.ended() {
				i := rng.IntN(len(w.waiting))
				if rng.IntN(4) > 0 {
					i = 0
					if newest {
						i = len(w.waiting) - 1
					}
				}
				if w.step(i); !w.ended() && rng.IntN(3) == 0 && w.move(a) {
					moves++
				}
			}
			if got := w.bits(); got != want {
				t.Fatalf("%s %+v: got %s, want %s", a.model.Name(), a.params, got, want)
			}
			if exact := a.model.Family() != models.FamilySeq2Seq; w.nodes < nodes || exact && w.nodes != nodes {
				t.Fatalf("%s %+v: %d nodes in all, want %d", a.model.Name(), a.params, w.nodes, nodes)
			}
		}
	}
	if moves < 100*walks {
		t.Errorf("%d moves", moves)
	}
}

// move takes the request to another slot, if it can be moved.
func (w *walker) move(a question) bool {
	c := w.save()
	if c == nil {
		return false
	}
	for i, v := range c.State {
		if math.IsNaN(float64(v)) {
			w.tb.Fatalf("%s %+v: value %d of a checkpoint was never computed", a.model.Name(), a.params, i)
		}
	}
	req, from, err := a.model.Restore(a.input, a.params, w.req.AppendCheckpoint(nil, c))
	if err != nil {
		w.tb.Fatalf("%s %+v: %v", a.model.Name(), a.params, err)
	}
	w.start(req, from)
	return true
}
