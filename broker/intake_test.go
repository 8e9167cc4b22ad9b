package broker_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// TestPriorities fills all queues while the only slot is taken and looks at the
// order afterwards.
func TestPriorities(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	gate, started := make(chan struct{}), make(chan struct{}, 1)
	var mu sync.Mutex
	var order []broker.Priority
	startWorker(t, conn, []string{"echo"}, 1, func(d *broker.Delivery, s *broker.TokenStream) {
		select {
		case started <- struct{}{}:
		default:
		}
		<-gate
		mu.Lock()
		order = append(order, d.Request.Priority)
		mu.Unlock()
		<-time.After(3 * time.Millisecond) // longer than a queue counts as empty
		echo(d, s)
	})
	c := newClient(t, server, broker.ClientConfig{})
	var streams []*broker.Stream
	publish := func(p broker.Priority, n int) {
		for range n {
			s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: "x"}, Priority: p})
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
		}
	}
	publish(broker.Std, 1) // takes the slot
	<-started
	publish(broker.Low, 10)
	publish(broker.Std, 30)
	publish(broker.High, 30)
	eventually(t, "all are stored", func() bool { return queued(t, conn) == 71 })
	close(gate)
	for _, s := range streams {
		read(t, s)
	}
	// Of the first 61, 3 or 4 are low; of the others high comes before std.
	low, firstStd, lastHigh := 0, 0, 0
	for i, p := range order[1:61] {
		switch p {
		case broker.Low:
			low++
		case broker.Std:
			if firstStd == 0 {
				firstStd = i
			}
		case broker.High:
			lastHigh = i
		}
	}
	if low < 2 || low > 6 {
		t.Errorf("%d of 60 are low: %v", low, order)
	}
	if firstStd < lastHigh-1 {
		t.Errorf("std at %d before high at %d: %v", firstStd, lastHigh, order)
	}
}

// TestFewCreditsManyQueues has fewer credits than queues: polls take turns, and
// those that bind a credit are recalled when messages wait elsewhere.
func TestFewCreditsManyQueues(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	models := []string{"m1", "m2", "m3", "m4"}
	w := startWorker(t, conn, models, 3, echo)
	c := newClient(t, server, broker.ClientConfig{})
	for round := range 3 {
		var streams []*broker.Stream
		for i := range 60 {
			s, err := c.Request(t.Context(), models[(round+i)%4], broker.RequestOptions{
				Input: broker.Input{Text: "x"}, Priority: []broker.Priority{broker.High, broker.Std, broker.Low}[i%3],
			})
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
		}
		for _, s := range streams {
			read(t, s)
		}
	}
	w.stop()
	// A message that meets a recalled poll in the server is delivered again at once.
	if st := w.intake.Stats(); st.Redelivered > 5 || st.Failures != 0 || w.credits.Free() != 3 {
		t.Errorf("%+v, %d credits", st, w.credits.Free())
	}
}

// TestBacklogGetsAllCredits measures that polls on empty queues do not keep
// slots from a queue with a backlog. The best of some rounds counts: a busy
// machine makes one late, polls that are not recalled make all.
func TestBacklogGetsAllCredits(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	const (
		slots, rounds = 16, 5                  // more slots than the twelve queues, or polls would be short
		poll          = 2 * time.Second        // when every queue can have one
		young         = 300 * time.Millisecond // then none is left of the short ones, of 200 ms
	)
	held := make(chan struct{}, slots)
	gate := make(chan struct{})
	startWorker(t, conn, []string{"m1", "m2", "m3", "m4"}, slots, func(d *broker.Delivery, s *broker.TokenStream) {
		held <- struct{}{}
		<-gate
		echo(d, s)
	})
	c := newClient(t, server, broker.ClientConfig{})
	var took []time.Duration
	for range rounds {
		<-time.After(young)
		var streams []*broker.Stream
		start := time.Now()
		for range 2 * slots {
			s, err := c.Request(t.Context(), "m3", broker.RequestOptions{Input: broker.Input{Text: "x"}})
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
		}
		for range slots {
			<-held
		}
		took = append(took, time.Since(start))
		for range 2 * slots {
			gate <- struct{}{}
		}
		for _, s := range streams {
			read(t, s)
		}
		for range slots { // the second half of the backlog
			<-held
		}
		if slices.Min(took) < poll/2 {
			return
		}
	}
	t.Errorf("took %v", took)
}

// TestConsumerDeleted deletes consumer and stream under a running intake.
func TestConsumerDeleted(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	w := startWorker(t, conn, []string{"echo"}, 4, echo)
	c := newClient(t, server, broker.ClientConfig{})
	js, err := conn.NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(text string) {
		t.Helper()
		// Refused while there is no stream: try again as a client would.
		eventually(t, "request is answered", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			s, err := c.Request(ctx, "echo", broker.RequestOptions{Input: broker.Input{Text: text}})
			if err != nil {
				t.Fatal(err)
			}
			f, err := s.Final()
			return err == nil && f.Text == text
		})
	}
	ask("before")
	if err := js.DeleteConsumer("INFER", "echo_std"); err != nil {
		t.Fatal(err)
	}
	ask("after the consumer was deleted")
	if err := js.DeleteStream("INFER"); err != nil {
		t.Fatal(err)
	}
	ask("after the stream was deleted")
	w.stop()
	if w.credits.Free() != 4 {
		t.Errorf("%d credits, want 4", w.credits.Free())
	}
}

// TestServerRestart restarts the server while requests are running and queued.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	cfg := broker.ServerConfig{DataDir: t.TempDir(), Port: freePort(t)}
	server, err := broker.StartServer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown() })
	conn, err := broker.Connect(t.Context(), broker.Config{URL: server.URL(), AckWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	gate, running := make(chan struct{}), make(chan struct{}, 8)
	w := startWorker(t, conn, []string{"echo"}, 2, func(d *broker.Delivery, s *broker.TokenStream) {
		running <- struct{}{}
		select {
		case <-gate:
		case <-t.Context().Done():
		}
		echo(d, s)
	})
	nc, err := broker.Dial(t.Context(), server.URL(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c, err := broker.NewClient(nc, broker.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var streams []*broker.Stream
	for i := range 6 {
		s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: fmt.Sprint("text", i)}})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	<-running
	<-running
	eventually(t, "all are stored", func() bool { return queued(t, conn) == 6 })
	server.Shutdown()
	if server, err = broker.StartServer(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	// A final is lost on a client that is away.
	eventually(t, "both sides are back", func() bool {
		return conn.Connected() && queueLength(conn) == 6 && nc.IsConnected() && nc.FlushTimeout(time.Second) == nil
	})
	close(gate)
	go func() { // later runs do not wait
		for range running {
		}
	}()
	for i, s := range streams {
		if text, f := read(t, s); f.Text != fmt.Sprint("text", i) || text != f.Text && s.Lost() == 0 {
			t.Errorf("request %d: streamed %q, final %q", i, text, f.Text)
		}
	}
	w.stop()
	close(running)
	if w.credits.Free() != 2 {
		t.Errorf("%d credits, want 2", w.credits.Free())
	}
}

// TestRedelivery lets a lease expire and hands another back.
func TestRedelivery(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{AckWait: 1500 * time.Millisecond})
	var lost atomic.Pointer[broker.Delivery]
	w := startWorker(t, conn, []string{"echo"}, 2, func(d *broker.Delivery, s *broker.TokenStream) {
		switch {
		case d.Lease.Attempt == 1 && d.Request.Input.Text == "expires":
			_ = s.Token(&broker.Frame{Text: "ex", Tokens: []int32{'e', 'x'}})
			lost.Store(d)
			d.Done()
		case d.Lease.Attempt == 1:
			_ = s.Token(&broker.Frame{Text: "re", Tokens: []int32{'r', 'e'}})
			_ = s.Retry()
			if err := s.Token(&broker.Frame{Text: "x"}); err == nil {
				t.Error("a frame after retry")
			}
			if err := d.Lease.Release(10 * time.Millisecond); err != nil {
				t.Error(err)
			}
			d.Done()
			d.Done() // gives nothing twice
		default:
			echo(d, s)
		}
	})
	c := newClient(t, server, broker.ClientConfig{})
	for _, text := range []string{"released", "expires"} {
		s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: text}})
		if err != nil {
			t.Fatal(err)
		}
		if got, f := read(t, s); got != text || f.Text != text || f.Attempt != 2 {
			t.Errorf("streamed %q, final %q of attempt %d", got, f.Text, f.Attempt)
		}
	}
	if d := lost.Load(); d.Lease.Valid(time.Now()) || d.Lease.Extend(time.Now()) == nil || d.Lease.Settle() == nil {
		t.Error("the lost lease can still be used")
	}
	w.stop()
	if st := w.intake.Stats(); st.Redelivered != 2 || w.credits.Free() != 2 {
		t.Errorf("%+v, %d credits", st, w.credits.Free())
	}
}

// TestExtend keeps a lease much longer than the ack wait.
func TestExtend(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{AckWait: 1500 * time.Millisecond})
	w := startWorker(t, conn, []string{"echo"}, 2, func(d *broker.Delivery, s *broker.TokenStream) {
		tick := time.NewTicker(125 * time.Millisecond)
		defer tick.Stop()
		for range 20 {
			<-tick.C
			if err := d.Lease.Extend(time.Now()); err != nil {
				t.Error(err)
			}
		}
		echo(d, s)
	})
	c := newClient(t, server, broker.ClientConfig{})
	s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: "long"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, f := read(t, s); f.Attempt != 1 || w.intake.Stats().Delivered != 1 {
		t.Errorf("attempt %d, %+v", f.Attempt, w.intake.Stats())
	}
}
