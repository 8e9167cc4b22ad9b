//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// ackWait is the workers' default: how long a lease lasts without its worker.
const ackWait = 10 * time.Second

// taken tells who took a request.
type taken struct {
	ask     int
	worker  string
	attempt uint64
}

// long sends n long requests and reads them; every acceptance is told to took.
func long(ctx context.Context, t *testing.T, url string, n int, took func(taken)) []*outcome {
	t.Helper()
	nc, err := broker.Dial(ctx, url, "long requests", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c, err := broker.NewClient(nc, broker.ClientConfig{Name: "long"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // with its connection
	out := make([]*outcome, n)
	var all sync.WaitGroup
	for i := range n {
		s, err := c.Request(ctx, "kjv-lm", broker.RequestOptions{
			ID: fmt.Sprintf("long%06d", i), Input: broker.Input{Text: "And it came to pass"}, Params: broker.Params{MaxTokens: ptr(1024)},
		})
		if err != nil {
			t.Fatal(err)
		}
		out[i] = &outcome{}
		all.Go(func() {
			out[i].err = out[i].read(s, func(f *broker.Frame) {
				if f.Type == broker.FrameAccepted {
					took(taken{i, f.Worker, f.Attempt})
				}
			})
		})
	}
	all.Wait()
	return out
}

// redeliverySlack is how much later than an ack wait after a kill the server may
// have delivered everything again: its timer looks once more within a second, and
// a pull of the other worker, on a machine with other things to do, is waiting for
// it, since that one has slots left.
const redeliverySlack = ackWait / 2

// TestKilledWorkerUnderLoad kills one of two workers while both are busy: what it
// had is delivered again once, when its leases are over, and nobody sees a seam.
func TestKilledWorkerUnderLoad(t *testing.T) {
	const requests = 6 // fewer than a worker has slots
	server := brokertest.Server(t)
	workers := map[string]*member{}
	for _, name := range []string{"first", "second"} {
		workers[name] = newMember(t, name, server.URL(), pace, 1)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var mu sync.Mutex
	of := map[int]string{} // who took a request first
	var killed string
	over := make(chan redelivery, 1)
	got := long(ctx, t, server.URL(), requests, func(a taken) {
		mu.Lock()
		defer mu.Unlock()
		if a.attempt > 1 {
			if of[a.ask] != killed || a.worker == killed {
				t.Errorf("request %d of %s went to %s, %s was killed", a.ask, of[a.ask], a.worker, killed)
			}
			return
		}
		of[a.ask] = a.worker
		if len(of) == requests {
			killed = a.worker
			at := time.Now()
			if err := workers[killed].kill(); err != nil {
				t.Error(err)
			}
			go func() { over <- watchRedelivery(ctx, server.URL(), at) }()
		}
	})
	moved := 0
	for i, o := range got {
		if err := o.check(broker.ModeStream); err != nil {
			t.Errorf("request %d: %v", i, err)
		} else if diff := o.differs(got[0]); diff != "" {
			t.Errorf("request %d: %s", i, diff)
		}
		if o.final.Attempt > 1 {
			moved++
		}
		if o.final.Attempt > 2 {
			t.Errorf("request %d took %d attempts", i, o.final.Attempt)
		}
	}
	cancel()
	r := <-over
	t.Logf("%d requests changed their worker; the server delivered %d again, the last %v after the kill", moved, r.again, r.after.Round(time.Millisecond))
	if moved == 0 || r.again != moved || r.after > ackWait+redeliverySlack {
		t.Errorf("%d requests changed their worker, the server delivered %d again, the last %v after the kill: %v", moved, r.again, r.after, r.err)
	}
	checkStreams(t, server.URL(), requests)
}

// redelivery is what a server delivered again: how many messages, and how long
// after a time the last of them.
type redelivery struct {
	again int
	after time.Duration
	err   error
}

// watchRedelivery counts the deliveries beyond the first of each message of the
// queue, as the server does, until ctx ends.
func watchRedelivery(ctx context.Context, url string, from time.Time) (r redelivery) {
	nc, err := broker.Dial(ctx, url, "watch", nil)
	if err != nil {
		return redelivery{err: err}
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return redelivery{err: err}
	}
	for wait(ctx, 20*time.Millisecond) {
		c, err := js.Consumer(ctx, "INFER", "kjv-lm_std")
		if err != nil {
			r.err = err
			continue
		}
		delivered := c.CachedInfo().Delivered
		if n := int(delivered.Consumer - delivered.Stream); n > r.again {
			r.again, r.after = n, time.Since(from)
		}
	}
	return r
}

// TestKilledSubscriber kills a reader in the middle of its stream: the worker
// notices that nobody listens, and stops.
func TestKilledSubscriber(t *testing.T) {
	t.Parallel()
	const gone = 3
	server := brokertest.Server(t)
	w := newMember(t, "worker", server.URL(), pace, 1)
	idle, err := w.gauges(t.Context()) // with the tokens of the golden outputs
	if err != nil {
		t.Fatal(err)
	}
	// Several, so that none is through before anybody can notice.
	var readers []*brokertest.Process
	for range gone {
		readers = append(readers, brokertest.Start(t, []string{role + "=1"}, "request", "--nats-url", server.URL(), "--json", "--max-tokens", "1024", "kjv-lm", "And it came to pass"))
	}
	for _, reader := range readers {
		if _, err := reader.Says(`"type":"token"`, patience); err != nil {
			t.Fatal(err)
		}
		reader.Kill()
	}
	eventually(t, "the requests leave", func(ctx context.Context) error {
		g, err := w.gauges(ctx)
		if err == nil && (g["cellmq_running_requests"] != 0 || g["outcome=client_gone"] != gone) {
			err = fmt.Errorf("%v requests run, %v clients are gone", g["cellmq_running_requests"], g["outcome=client_gone"])
		}
		return err
	})
	before, err := w.gauges(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wait(t.Context(), 300*time.Millisecond)
	if after, err := w.gauges(t.Context()); err != nil || after["cellmq_steps_total"] != before["cellmq_steps_total"] {
		t.Errorf("%v steps, and then %v: %v", before["cellmq_steps_total"], after["cellmq_steps_total"], err)
	}
	if n := before["cellmq_tokens_total"] - idle["cellmq_tokens_total"]; n >= gone*1024 {
		t.Errorf("%v tokens for readers that were killed", n)
	}
}

// TestTerminateAtAnyTime ends a worker in order at random moments of its life,
// while requests wait for it: it always ends well, and every request is answered
// once.
func TestTerminateAtAnyTime(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	w := newMember(t, "worker", server.URL(), 0, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	rounds := 8
	if *full {
		rounds = 20
	}
	answered := make(chan struct{})
	var got []*outcome
	go func() {
		defer close(answered)
		got = long(ctx, t, server.URL(), 200, func(taken) {})
	}()
	r := rand.New(rand.NewPCG(*seed, 3))
	for i := range rounds {
		wait(ctx, between(r, 0, time.Second))
		if err := w.terminate(i%3 == 2); err != nil {
			t.Errorf("end %d: %v", i, err)
		}
		if err := errors.Join(w.start(ctx), w.speaks()); err != nil {
			t.Fatal(err)
		}
	}
	<-answered
	for i, o := range got {
		if err := o.check(broker.ModeStream); err != nil {
			t.Errorf("request %d: %v", i, err)
		} else if diff := o.differs(got[0]); diff != "" {
			t.Errorf("request %d: %s", i, diff)
		}
	}
	checkStreams(t, server.URL(), 200)
}

// speaks waits until the process has set itself up so far that it logs.
func (m *member) speaks() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.process.Says("level=", patience)
	return err
}

// terminate sends SIGTERM, once or twice, and wants the process to end well.
func (m *member) terminate(twice bool) error {
	m.mu.Lock()
	p := m.process
	m.mu.Unlock()
	err := p.Signal(syscall.SIGTERM)
	if twice {
		err = errors.Join(err, p.Signal(syscall.SIGTERM))
	}
	select {
	case <-p.Done():
		err = errors.Join(err, p.Err())
	case <-time.After(patience):
		err = errors.Join(err, errors.New("it does not end"))
	}
	return errors.Join(err, m.kill())
}
