package models_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/models"
)

var errSuspended = errors.New("suspended")

// station is a runtime that requests can be moved to and from.
type station struct {
	name    string
	runtime *cellrt.Runtime
	models  map[*models.Model]*cellrt.Model
}

// visit is what a request did at a station.
type visit struct {
	tokens      []cellrt.Token
	checkpoints []*cellrt.Checkpoint
	last        cellrt.Result
	results     int
	leaveAfter  int           // results
	leaving     chan struct{} // closed then
	done        chan struct{} // closed at the end
}

// visits is the sink of a station.
type visits struct{}

func (visits) Deliver(results []cellrt.Result) {
	for _, r := range results {
		v := r.Sequence.Owner().(*visit)
		v.tokens = append(v.tokens, r.Tokens...)
		if r.Checkpoint != nil {
			v.checkpoints = append(v.checkpoints, r.Checkpoint)
		}
		if v.results++; v.results == v.leaveAfter {
			close(v.leaving)
		}
		if r.Done {
			v.last = r
			close(v.done)
		}
	}
}

// stations runs models on all instruction tiers in several shapes until the
// test ends.
func stations(t *testing.T, all []*models.Model, shapes ...cellrt.Shape) []*station {
	t.Helper()
	var out []*station
	for i, isa := range cpu.Tiers() {
		for _, shape := range shapes {
			cfg := cellrt.Config{Executors: shape.Executors, Threads: shape.Threads, MaxRows: 5 + i}
			r, err := cellrt.New(cfg, cpu.New(cpu.Config{ISA: isa, SplitWork: 1}), visits{})
			if err != nil {
				t.Fatal(err)
			}
			s := &station{name: fmt.Sprint(isa, " ", shape), runtime: r, models: map[*models.Model]*cellrt.Model{}}
			for _, m := range all {
				if s.models[m], err = r.Load(m.Program(), 8); err != nil {
					t.Fatal(err)
				}
			}
			keepRunning(t, r)
			out = append(out, s)
		}
	}
	return out
}

// keepRunning runs a runtime until the test ends.
func keepRunning(t *testing.T, r *cellrt.Runtime) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// run runs a request to its end, or suspends it after so many results.
func (s *station) run(t *testing.T, req *models.Request, from *cellrt.Checkpoint, every, leaveAfter int) *visit {
	t.Helper()
	v := &visit{leaveAfter: leaveAfter, leaving: make(chan struct{}), done: make(chan struct{})}
	q := cellrt.NewSequence(s.models[req.Model], req.Graph, cellrt.SequenceOptions{Owner: v, CheckpointEvery: every, From: from})
	if err := s.runtime.Submit(q); err != nil {
		t.Errorf("%s: %v", s.name, err)
		v.last.Err = err
		return v
	}
	select {
	case <-v.leaving:
		s.runtime.Suspend(q, errSuspended)
		<-v.done
	case <-v.done:
	}
	return v
}

// bits returns all that a request gave, with the candidates of its tokens.
func (v *visit) bits(req *models.Request) string {
	top := ""
	for _, t := range v.tokens {
		top += fmt.Sprint(t.Top)
	}
	return bitsOf(req, models.Output{Tokens: v.tokens, Reason: v.last.Reason}) + fmt.Sprint(" cut ", req.Outcome().Cut, " error ", v.last.Err, top)
}

// resumables are requests to models of all families and in all ways to decode.
func resumables(t *testing.T) []question {
	t.Helper()
	rng := rand.New(rand.NewPCG(8, 8))
	requests := randomRequests(t, rng, 3)
	tokens := append(fixtures(t, "s2s-"), fixtures(t, "lm-")...)
	for _, m := range append(tokens, tokens[0].WithWeights(cellrt.Int8), tokens[len(tokens)-1].WithWeights(cellrt.BF16)) {
		for _, p := range decodings() {
			p.MaxTokens = ptr(9)
			requests = append(requests, question{m, models.Input{IDs: randomIDs(rng, 6)}, p})
		}
	}
	g2p := loadG2P(t)
	for i, p := range decodings() {
		p.NBest = nil
		text := "a cell of ox"
		if i == 3 {
			text, p.MaxTokens = "oxen", ptr(4)
		}
		requests = append(requests, question{g2p, models.Input{Text: text}, p})
	}
	return requests
}

func unfold(t *testing.T, a question) *models.Request {
	t.Helper()
	req, err := a.model.Unfold(a.input, a.params)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// modelsOf returns the models of requests, each once.
func modelsOf(requests []question) []*models.Model {
	var all []*models.Model
	for _, a := range requests {
		if !slices.Contains(all, a.model) {
			all = append(all, a.model)
		}
	}
	return all
}

// searches reports whether a request can have no checkpoint.
func (a question) searches() bool {
	return a.model.Family() == models.FamilyTree || a.params.BeamWidth != nil && *a.params.BeamWidth > 1
}

// TestCheckpointKeepsBits cuts every request after every node at which it can
// be cut, and goes on from each cut with another shape and instruction tier.
func TestCheckpointKeepsBits(t *testing.T) {
	t.Parallel()
	requests := resumables(t)
	all := stations(t, modelsOf(requests), cellrt.Shape{Executors: 1, Threads: 1}, cellrt.Shape{Executors: 3, Threads: 1}, cellrt.Shape{Executors: 2, Threads: 2})
	cuts, stride := map[string]int{}, 1
	if testing.Short() {
		stride = 6
		t.Logf("one cut in %d", stride)
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, 7) // that the stations have, but for one
	for i, a := range requests {
		req := unfold(t, a)
		plain := all[0].run(t, req, nil, 0, 0)
		want := plain.bits(req)
		if plain.last.Err != nil || len(plain.checkpoints) > 0 {
			t.Fatalf("%s: %v, %d checkpoints", a.model.Name(), plain.last.Err, len(plain.checkpoints))
		}
		source := all[i%len(all)]
		req = unfold(t, a)
		v := source.run(t, req, nil, 1, 0)
		if got := v.bits(req); got != want {
			t.Fatalf("%s %+v with checkpoints on %s: got %s, want %s", a.model.Name(), a.params, source.name, got, want)
		}
		if none := len(v.checkpoints) == 0; none != a.searches() {
			t.Fatalf("%s %+v: %d checkpoints", a.model.Name(), a.params, len(v.checkpoints))
		}
		cuts[a.model.Family()] += len(v.checkpoints)
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			for k := i % stride; k < len(v.checkpoints); k += stride {
				c := v.checkpoints[k]
				saved := req.AppendCheckpoint(nil, c)
				again, from, err := a.model.Restore(a.input, a.params, saved)
				if err != nil {
					t.Errorf("%s %+v: cut %d: %v", a.model.Name(), a.params, k, err)
					return
				}
				target := all[(i+k)%len(all)]
				if got := target.run(t, again, from, k%3, 0).bits(again); got != want {
					t.Errorf("%s %+v: cut %d, %d nodes, from %s to %s: got %s, want %s", a.model.Name(), a.params, k, c.Nodes, source.name, target.name, got, want)
					return
				}
			}
		})
	}
	group.Wait()
	t.Logf("cuts: %v", cuts)
	for _, family := range []string{models.FamilyLM, models.FamilySeq2Seq, models.FamilyClassifier} {
		if cuts[family] < 50 {
			t.Errorf("%d cuts of %s", cuts[family], family)
		}
	}
}

// TestSuspendHandsOver suspends requests again and again, each time somewhere
// else, while others run beside them, and moves them by their checkpoints.
func TestSuspendHandsOver(t *testing.T) {
	t.Parallel()
	requests := resumables(t)
	all := stations(t, modelsOf(requests), cellrt.Shape{Executors: 2, Threads: 1})
	rng := rand.New(rand.NewPCG(9, 9))
	var group sync.WaitGroup
	var mu sync.Mutex
	moves := 0
	slots := make(chan struct{}, 8) // that the stations have
	for _, a := range requests {
		seed := rng.Uint64()
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			req := unfold(t, a)
			want := all[0].run(t, req, nil, 0, 0).bits(req)
			req = unfold(t, a)
			moved, v := journey(t, all, a, req, rand.New(rand.NewPCG(seed, 1)))
			if got := v.bits(v.req); got != want {
				t.Errorf("%s %+v after %d moves: got %s, want %s", a.model.Name(), a.params, moved, got, want)
			}
			mu.Lock()
			defer mu.Unlock()
			moves += moved
		})
	}
	group.Wait()
	t.Logf("%d moves of %d requests", moves, len(requests))
	if moves < len(requests) {
		t.Errorf("%d moves of %d requests", moves, len(requests))
	}
}

// arrival is the last visit of a request and the form it had then.
type arrival struct {
	*visit
	req *models.Request
}

// journey moves a request from station to station until it has ended.
func journey(t *testing.T, all []*station, a question, req *models.Request, rng *rand.Rand) (int, arrival) {
	t.Helper()
	var from *cellrt.Checkpoint
	for moved := 0; ; moved++ {
		at := all[rng.IntN(len(all))]
		every := 1 + rng.IntN(3)
		leave := 2 + rng.IntN(6)
		if a.searches() || moved > 40 {
			leave = 0
		}
		v := at.run(t, req, from, every, leave)
		if !errors.Is(v.last.Err, errSuspended) {
			return moved, arrival{v, req}
		}
		if v.last.Checkpoint == nil {
			t.Errorf("%s %+v suspended without a checkpoint", a.model.Name(), a.params)
			return moved, arrival{v, req}
		}
		saved := req.AppendCheckpoint(nil, v.last.Checkpoint)
		var err error
		if req, from, err = a.model.Restore(a.input, a.params, saved); err != nil {
			t.Fatalf("%s %+v: %v", a.model.Name(), a.params, err)
		}
	}
}

// TestStrangeCheckpoints refuses checkpoints of other requests, models, weight
// types, families and formats, cut ones, and those with any bit flipped.
func TestStrangeCheckpoints(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 2))
	ms := fixtures(t, "s2s-")
	a := question{ms[0], models.Input{IDs: randomIDs(rng, 5)}, models.Params{MaxTokens: ptr(9), RequestID: "a"}}
	at := stations(t, ms[:1], cellrt.Shape{Executors: 1, Threads: 1})[0]
	req := unfold(t, a)
	v := at.run(t, req, nil, 1, 0)
	saved := req.AppendCheckpoint(nil, v.checkpoints[len(v.checkpoints)/2])
	restore := func(q question, b []byte) error {
		_, _, err := q.model.Restore(q.input, q.params, b)
		return err
	}
	if err := restore(a, saved); err != nil {
		t.Fatal(err)
	}
	other := func(change func(q *question)) question {
		q := a
		change(&q)
		return q
	}
	for name, q := range map[string]question{
		"another input":       other(func(q *question) { q.input.IDs = slices.Concat(a.input.IDs, a.input.IDs[:1]) }),
		"another id":          other(func(q *question) { q.params.RequestID = "b" }),
		"another bound":       other(func(q *question) { q.params.MaxTokens = ptr(10) }),
		"a temperature":       other(func(q *question) { q.params.Temperature = ptr(0.5) }),
		"top_k":               other(func(q *question) { q.params.TopK = ptr(2) }),
		"top_p":               other(func(q *question) { q.params.TopP = ptr(0.5) }),
		"a stop text":         other(func(q *question) { q.params.Stop = []string{"x"} }),
		"log-probabilities":   other(func(q *question) { q.params.LogProbs = ptr(2) }),
		"a search":            other(func(q *question) { q.params.BeamWidth = ptr(2) }),
		"another model":       other(func(q *question) { q.model = ms[1] }),
		"another weight type": other(func(q *question) { q.model = ms[0].WithWeights(cellrt.BF16) }),
		"a tree":              {fixtures(t, "tree-")[0], models.Input{Text: "t1"}, models.Params{}},
	} {
		if err := restore(q, saved); !errors.Is(err, models.ErrCheckpoint) {
			t.Errorf("%s: %v, want %v", name, err, models.ErrCheckpoint)
		}
	}
	for n := range saved {
		if err := restore(a, saved[:n]); !errors.Is(err, models.ErrCheckpoint) {
			t.Fatalf("%d of %d bytes: %v", n, len(saved), err)
		}
		flipped := slices.Clone(saved)
		flipped[n] ^= 1 << rng.IntN(8)
		if err := restore(a, flipped); !errors.Is(err, models.ErrCheckpoint) {
			t.Fatalf("byte %d flipped: %v", n, err)
		}
	}
	if err := restore(a, append(slices.Clone(saved), 0)); !errors.Is(err, models.ErrCheckpoint) {
		t.Errorf("a byte more: %v", err)
	}
	var refused *models.InputError
	if err := restore(other(func(q *question) { q.input.IDs = []int32{-1} }), saved); !errors.As(err, &refused) {
		t.Errorf("a bad input: %v", err)
	}
	if !strings.HasPrefix(models.ErrCheckpoint.Error(), "checkpoint") {
		t.Errorf("%v does not say what it is about", models.ErrCheckpoint)
	}
}
