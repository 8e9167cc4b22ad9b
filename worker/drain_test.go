package worker_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// TestDrainFinishesWhatRuns wants a draining worker to end what it has begun,
// on both paths, and to leave the rest to others.
func TestDrainFinishesWhatRuns(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	serve := worker.Deps{Models: []*models.Model{endless(t, "endless")}}
	w := start(t, server, serve, func(c *worker.Config) { c.Slots = 1 })
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	realtime := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "infer.rt.endless", realtime.Subject, []byte(`{"input": [3], "max_tokens": 1500}`))
	for i := range 3 {
		publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 1500}`), "Nats-Msg-Id", fmt.Sprintf("request%d", i))
	}
	running := nextFrame(t, out).ID // accepted
	nextFrame(t, realtime)
	w.stop()
	if f := lastFrame(t, realtime); f.Type != broker.FrameFinal || len(f.Tokens) != 1500 {
		t.Errorf("realtime: %s with %d tokens", f.Type, len(f.Tokens))
	}
	if f := lastFrame(t, out); f.ID != running || f.Type != broker.FrameFinal || len(f.Tokens) != 1500 {
		t.Errorf("durable: %s of %s with %d tokens", f.Type, f.ID, len(f.Tokens))
	}
	w.wait(t)
	queued(t, nc, 2)
	start(t, server, serve, nil)
	finals := []string{lastFrame(t, out).ID, lastFrame(t, out).ID}
	slices.Sort(finals)
	if want := []string{"request0", "request1", "request2"}; slices.Contains(finals, running) || finals[0] == finals[1] || !slices.Contains(want, finals[0]) {
		t.Errorf("the other worker ended %v, the first one %s", finals, running)
	}
	queued(t, nc, 0)
}

// TestDrainHandsBack ends the grace period while requests run.
func TestDrainHandsBack(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*worker.Config)
		hurry  bool
	}{
		{"after the grace period", func(c *worker.Config) { c.Grace = 50 * time.Millisecond }, false},
		{"when told to hurry", nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w, nc, out := slow(t, tc.change)
			realtime := subscribe(t, nc, nats.NewInbox())
			publish(t, nc, "infer.rt.endless", realtime.Subject, []byte(`{"input": [3]}`))
			nextFrame(t, realtime)
			w.stop()
			if tc.hurry {
				w.HandBack()
			}
			for {
				f := nextFrame(t, out)
				if f.Type.Terminal() {
					t.Fatalf("a %s", f.Type)
				}
				if f.Type == broker.FrameRetry {
					break
				}
			}
			if e := lastFrame(t, realtime).Error; e == nil || e.Code != broker.CodeShuttingDown || !e.Retryable {
				t.Errorf("realtime: %+v", e)
			}
			w.wait(t)
			queued(t, nc, 1)
			if state := cancel(t, nc, "me", "endless001"); state != nats.ErrNoResponders.Error() && state != nats.ErrTimeout.Error() {
				t.Errorf("a stopped worker answers: %s", state)
			}
		})
	}
}

// TestHandedBackRequestGivesTheSameFrames continues on another worker. The
// first one has no time to end the request: its backend runs a step at a time.
func TestHandedBackRequestGivesTheSameFrames(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	backend := newGate()
	first := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, nil)
	backend.set(true)
	defer backend.set(false)
	backend.allow(50)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 3000}`))
	var before []int32
	for len(before) == 0 {
		before = append(before, nextFrame(t, out).Tokens...)
	}
	second := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}}, nil)
	first.stop()
	first.HandBack()
	eventually(t, "the first worker hands back", func() bool {
		backend.allow(1)
		return first.Running() == 0
	})
	first.wait(t)
	final := lastFrame(t, out)
	if final.Type != broker.FrameFinal || final.Attempt != 2 || len(final.Tokens) != 3000 || !slices.Equal(final.Tokens[:len(before)], before) {
		t.Errorf("%s of attempt %d with %d tokens", final.Type, final.Attempt, len(final.Tokens))
	}
	eventually(t, "it leaves", func() bool { return second.Running() == 0 })
	if n := metric(t, second, "cellmq_redeliveries_total"); n != 1 {
		t.Errorf("%v redeliveries", n)
	}
}

// gate is a backend that can be made to hang, as a broken device does.
type gate struct {
	cellrt.Backend

	mu      sync.Mutex
	open    *sync.Cond
	shut    bool
	steps   int  // that may run though it is shut
	waiting int  // steps that wait for it
	hung    bool // nothing is let through
}

func newGate() *gate {
	g := &gate{Backend: newPaced()}
	g.open = sync.NewCond(&g.mu)
	return g
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	g.shut, g.steps = shut, 0
	g.mu.Unlock()
	g.open.Broadcast()
}

// hang stops everything, whatever is allowed.
func (g *gate) hang(hung bool) {
	g.mu.Lock()
	g.hung = hung
	g.mu.Unlock()
	g.open.Broadcast()
}

// allow lets so many steps more through a gate that is shut.
func (g *gate) allow(steps int) {
	g.mu.Lock()
	g.steps += steps
	g.mu.Unlock()
	g.open.Broadcast()
}

// pace lets a step through every other millisecond until the test ends, so that
// what happens between steps does, on a fast machine too.
func (g *gate) pace(tb testing.TB) {
	tb.Helper()
	g.set(true)
	ended := make(chan struct{})
	var pacing sync.WaitGroup
	pacing.Go(func() {
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				g.allow(1)
			case <-ended:
				g.set(false)
				return
			}
		}
	})
	tb.Cleanup(func() { close(ended); pacing.Wait() })
}

// blocks tells whether a step waits.
func (g *gate) blocks() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting > 0 && g.steps == 0
}

// pass waits until a step may run.
func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting++
	for g.hung || g.shut && g.steps == 0 {
		g.open.Wait()
	}
	g.waiting--
	g.steps = max(0, g.steps-1)
}

func (g *gate) Load(p *cellrt.Program, slots int) (cellrt.Executable, error) {
	e, err := g.Backend.Load(p, slots)
	if err != nil {
		return nil, err
	}
	states, ok := e.(cellrt.States)
	if !ok {
		return nil, errors.New("the backend has no checkpoints")
	}
	return gatedExecutable{e, states, g}, nil
}

type gatedExecutable struct {
	cellrt.Executable
	cellrt.States
	gate *gate
}

func (e gatedExecutable) NewRunner() cellrt.Runner {
	return gatedRunner{e.Executable.NewRunner(), e.gate}
}

type gatedRunner struct {
	cellrt.Runner
	gate *gate
}

func (r gatedRunner) Run(c *cellrt.Cell, rows []cellrt.Row, out []cellrt.Output) int {
	r.gate.pass()
	return r.Runner.Run(c, rows, out)
}

// TestHungLoopLosesItsLeases hangs a worker's backend: another worker takes
// the request over, and the first says nothing about it when it comes back.
func TestHungLoopLosesItsLeases(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	quick := func(c *worker.Config) { c.AckWait = 1200 * time.Millisecond }
	backend := newGate()
	hung := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, func(c *worker.Config) {
		quick(c)
		c.Slots = 1 // taken: the request does not come back to this worker
	})
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 2500}`))
	for nextFrame(t, out).Type != broker.FrameToken {
	}
	backend.set(true)
	defer backend.set(false)
	second := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}}, quick)
	var final broker.Frame
	for {
		f := nextFrame(t, out)
		if f.Attempt == 1 && final.Type != "" {
			t.Fatalf("a %s frame of the lost lease", f.Type)
		}
		if f.Attempt == 2 && f.Type == broker.FrameToken && backend.isShut() {
			backend.set(false) // the first worker wakes up while the second one works
		}
		if f.Type.Terminal() {
			final = f
			break
		}
	}
	if final.Type != broker.FrameFinal || final.Attempt != 2 || len(final.Tokens) != 2500 {
		t.Errorf("%s of attempt %d with %d tokens", final.Type, final.Attempt, len(final.Tokens))
	}
	eventually(t, "both let go", func() bool { return hung.Running() == 0 && second.Running() == 0 })
	if n := metric(t, hung, `cellmq_requests_total{model="endless",outcome="lease_lost"}`); n != 1 {
		t.Errorf("%v leases lost", n)
	}
	if m, err := out.NextMsg(100 * time.Millisecond); err == nil {
		t.Errorf("after the final: %s", m.Data)
	}
	queued(t, nc, 0)
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// TestHungLoopTakesNothing wants a worker that hangs to leave the queue alone,
// and to take part again when it moves.
func TestHungLoopTakesNothing(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	backend := newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, func(c *worker.Config) {
		c.AckWait = 600 * time.Millisecond
	})
	nc := connect(t, server)
	replies := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "infer.rt.endless", replies.Subject, []byte(`{"input": [3], "max_tokens": 3000}`))
	for nextFrame(t, replies).Type != broker.FrameToken {
	}
	backend.set(true)
	defer backend.set(false)
	eventually(t, "the worker notices", func() bool {
		_, body := get(t, w, "/readyz")
		return body == "step loop makes no progress\n"
	})
	eventually(t, "the worker waits for no more requests", func() bool {
		var answer struct {
			NumWaiting int `json:"num_waiting"`
		}
		ask(t, nc, "$JS.API.CONSUMER.INFO.INFER.endless_std", &answer)
		return answer.NumWaiting == 0
	})
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 2}`))
	other := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "infer.rt.endless", other.Subject, []byte(`{"input": [3], "max_tokens": 2}`))
	if e := lastFrame(t, other).Error; e == nil || e.Code != broker.CodeBusy {
		t.Errorf("realtime: %+v", e)
	}
	queued(t, nc, 1)
	backend.set(false)
	if f := lastFrame(t, replies); f.Type != broker.FrameFinal || len(f.Tokens) != 3000 {
		t.Errorf("what hung: %s with %d tokens", f.Type, len(f.Tokens))
	}
	if f := lastFrame(t, out); f.Type != broker.FrameFinal || f.Attempt != 1 {
		t.Errorf("what waited: %s of attempt %d", f.Type, f.Attempt)
	}
	eventually(t, "the worker is ready", func() bool { status, _ := get(t, w, "/readyz"); return status == 200 })
}

// TestDrainOfAHungLoop stops a worker whose step never returns: it ends all the
// same, and another one serves its request.
func TestDrainOfAHungLoop(t *testing.T) {
	t.Parallel()
	server, backend := newServer(t), newGate()
	cfg := worker.DefaultConfig()
	cfg.NatsURL, cfg.AdminAddress, cfg.Profile, cfg.Grace, cfg.AckWait = server.URL(), "", 0, 0, 1500*time.Millisecond
	w, err := worker.New(cfg, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(t.Context()) }()
	select {
	case <-w.Ready():
	case err := <-ended:
		t.Fatalf("the worker ends before it serves: %v", err)
	}
	backend.set(true)
	defer backend.set(false) // the goroutine that is left behind
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 7}`), "Nats-Msg-Id", "request001")
	eventually(t, "a step hangs", backend.blocks)
	w.Drain()
	select {
	case err := <-ended:
		if !errors.Is(err, worker.ErrHung) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the worker does not end")
	}
	start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}}, nil)
	if f := lastFrame(t, out); f.Type != broker.FrameFinal || len(f.Tokens) != 7 || f.Attempt < 2 {
		t.Errorf("%s of attempt %d with %d tokens", f.Type, f.Attempt, len(f.Tokens))
	}
	queued(t, nc, 0)
}
