//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/zoo"
	"github.com/cellmq/cellmq/worker"
)

// The cancel storm.
const (
	stormVictims = 50
	stormCancels = 1000
	stormSlots   = 80  // of which the cancelled ones have 30
	stormAtOnce  = 120 // of those to cancel: most of them wait in the queue
)

// TestCancelStorm cancels a thousand requests at random moments, queued ones and
// running ones, beside fifty that go on. The fifty have the tokens of a calm run,
// to the bit; who is cancelled computes nothing more; nothing is left.
func TestCancelStorm(t *testing.T) {
	server, w := stormWorker(t)
	nc, err := broker.Dial(t.Context(), server.URL(), "victims", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	victims := make([]ask, stormVictims)
	r := rand.New(rand.NewPCG(*seed, 7))
	for i := range victims {
		victims[i] = stormAsk(r, fmt.Sprintf("victim%04d", i))
		victims[i].options.Params.LogProbs, victims[i].options.Params.Seed = ptr(1), ptr(uint64(i))
	}
	calm := stormRun(t, &sender{nc: nc}, "calm", victims)
	idle(t, w)
	before, heap := w.Stats().Tokens, heapInUse()

	client, err := broker.NewClient(nc, broker.ClientConfig{Name: "storm", CancelTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }() // with its connection
	var got []*outcome
	var all sync.WaitGroup
	all.Go(func() { got = stormRun(t, &sender{nc: nc}, "stormy", victims) })
	s := storm(t, client, r)
	all.Wait()
	for i, o := range got {
		if err := o.check(broker.ModeStream); err != nil {
			t.Errorf("victim %d: %v", i, err)
		} else if diff := o.differs(calm[i]); diff != "" {
			t.Errorf("victim %d: %s", i, diff)
		}
		s.tokens += len(o.final.Tokens)
	}
	idle(t, w)
	// One that is taken out of the queue between two answers is finished.
	t.Logf("answers to the cancellations: %v; %d requests had output", s.states, s.started)
	if s.states[broker.CancelRunning] == 0 || s.started == 0 {
		t.Error("nothing was cancelled while it ran")
	}
	// A cancelled sequence may be in the step under way, and in the one prepared
	// behind it, whose tokens are computed for nothing.
	if computed := int(w.Stats().Tokens - before); computed > s.tokens+2*stormCancels {
		t.Errorf("%d tokens were computed, %d were told", computed, s.tokens)
	}
	eventually(t, "memory is as before", func(context.Context) error {
		if now := heapInUse(); now > heap+32<<20 {
			return fmt.Errorf("%d bytes in use, %d before", now, heap)
		}
		return nil
	})
}

func stormWorker(t *testing.T) (*broker.Server, *worker.Worker) {
	t.Helper()
	server := brokertest.Server(t)
	m, err := zoo.Load("kjv-lm")
	if err != nil {
		t.Fatal(err)
	}
	cfg := worker.DefaultConfig()
	cfg.NatsURL, cfg.AdminAddress, cfg.Profile, cfg.Slots = server.URL(), "", 0, stormSlots
	w, err := worker.New(cfg, worker.Deps{Models: []*models.Model{m}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		w.HandBack()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-w.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("worker did not start: %v", err)
	}
	return server, w
}

func stormAsk(r *rand.Rand, id string) ask {
	return ask{model: "kjv-lm", options: broker.RequestOptions{
		ID: id, Priority: broker.Std, Mode: broker.ModeStream,
		Input: broker.Input{Text: phrase(r, 1+r.IntN(4))}, Params: broker.Params{MaxTokens: ptr(400 + r.IntN(400)), Temperature: ptr(0.8)},
	}}
}

// stormRun has the victims answered under a client's name.
func stormRun(t *testing.T, c *sender, name string, victims []ask) []*outcome {
	t.Helper()
	var err error
	if c.client, err = broker.NewClient(c.nc, broker.ClientConfig{Name: name}); err != nil {
		t.Error(err)
		return nil
	}
	defer func() { _ = c.client.Close() }() // with its connection
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out := make([]*outcome, len(victims))
	var all sync.WaitGroup
	for i := range victims {
		a := victims[i]
		a.options.ID = name + a.options.ID
		all.Go(func() { out[i] = a.perform(ctx, c) })
	}
	all.Wait()
	return out
}

// stormed is what became of the cancelled requests.
type stormed struct {
	mu      sync.Mutex
	states  map[broker.CancelState]int
	tokens  int // in their finals
	started int // of them that had output
}

// storm sends requests and cancels them.
func storm(t *testing.T, c *broker.Client, r *rand.Rand) *stormed {
	t.Helper()
	s := &stormed{states: map[broker.CancelState]int{}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	room := make(chan struct{}, stormAtOnce)
	var all sync.WaitGroup
	for i := range stormCancels {
		a, after := stormAsk(r, fmt.Sprintf("cancelled%04d", i)), between(r, 0, 150*time.Millisecond)
		room <- struct{}{}
		all.Go(func() {
			if err := s.one(ctx, c, &a, after); err != nil {
				t.Errorf("%s: %v", a.options.ID, err)
			}
			<-room
		})
	}
	all.Wait()
	return s
}

// one sends a request, cancels it after a while, twice, and reads it to its
// end.
func (s *stormed) one(ctx context.Context, c *broker.Client, a *ask, after time.Duration) error {
	stream, err := c.Request(ctx, a.model, a.options)
	if err != nil {
		return err
	}
	end := make(chan error, 1)
	o := &outcome{}
	go func() { end <- o.read(stream, nil) }()
	wait(ctx, after)
	reply, err := c.Cancel(ctx, a.options.ID)
	if err != nil {
		return err
	}
	again, err := c.Cancel(ctx, a.options.ID)
	if err != nil {
		return err
	}
	if err := <-end; err != nil {
		return err
	}
	if o.terminal != 1 || o.final.Final == nil || o.misplaced != 0 || o.text.String() != o.final.Text {
		return fmt.Errorf("%d terminal frames, %d misplaced, streamed %q, final %q", o.terminal, o.misplaced, o.text.String(), o.final.Text)
	}
	if reason := o.final.Final.FinishReason; reply.State != broker.CancelFinished && reason != broker.FinishCancelled {
		return fmt.Errorf("state %s and then %s, final %s", reply.State, again.State, reason)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[reply.State]++
	s.tokens += len(o.final.Tokens)
	if len(o.tokens) > 0 {
		s.started++
	}
	return nil
}

// idle waits until the worker has nothing.
func idle(t *testing.T, w *worker.Worker) {
	t.Helper()
	eventually(t, "nothing runs", func(context.Context) error {
		if n, stats := w.Running(), w.Stats(); n != 0 || stats.Running != 0 {
			return fmt.Errorf("%d requests, %d sequences", n, stats.Running)
		}
		return nil
	})
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
