package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// queueStub stands for the stream: handle gets what clients publish to the
// model echo, the n-th publication counted from 1.
func queueStub(t *testing.T, handle func(n int, m *nats.Msg)) (*broker.Server, *broker.Conn) {
	t.Helper()
	server, conn := setup(t, broker.Config{})
	var n atomic.Int32
	_, err := conn.NATS().Subscribe("infer.req.echo.>", func(m *nats.Msg) { handle(int(n.Add(1)), m) })
	if err == nil {
		err = conn.NATS().Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return server, conn
}

func frame(t *testing.T, m *nats.Msg, f broker.Frame) []byte {
	t.Helper()
	f.ID, f.Epoch, f.Attempt = m.Header.Get(broker.HeaderID), 1, 1
	b, err := broker.AppendFrame(nil, broker.MsgPack, &f)
	if err != nil {
		t.Error(err)
	}
	return b
}

const stored = `{"stream":"INFER","seq":7}`

// TestLostRequestIsPublishedAgain loses the first publications.
func TestLostRequestIsPublishedAgain(t *testing.T) {
	t.Parallel()
	var ids sync.Map
	server, conn := queueStub(t, func(n int, m *nats.Msg) {
		ids.Store(m.Header.Get(broker.HeaderID), true)
		if n < 3 {
			return
		}
		for _, b := range [][]byte{
			[]byte(`{"stream":"INFER","seq":7,"duplicate":true}`), // an earlier one arrived after all
			frame(t, m, broker.Frame{Type: broker.FrameFinal, Text: "x", Final: &broker.Final{}}),
		} {
			if err := m.Respond(b); err != nil {
				t.Error(err)
			}
		}
	})
	_ = conn
	c := newClient(t, server, broker.ClientConfig{ReceiptWait: 100 * time.Millisecond})
	s, err := c.Request(t.Context(), "echo", broker.RequestOptions{ID: "request001"})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := s.Final(); err != nil || f.Text != "x" {
		t.Errorf("%q, %v", f.Text, err)
	}
	ids.Range(func(id, _ any) bool {
		if id != "request001" {
			t.Errorf("published as %v", id)
		}
		return true
	})
}

// TestRequestsEnd wants a request that falls silent at any point of its life to
// end with an error of that kind.
func TestRequestsEnd(t *testing.T) {
	t.Parallel()
	accepted := broker.Frame{Type: broker.FrameAccepted}
	for _, tc := range []struct {
		name      string
		answers   []any // a frame, or a receipt
		opts      broker.RequestOptions
		want      error
		retryable bool
	}{
		{"no receipt", nil, broker.RequestOptions{}, broker.ErrNoReceipt, true},
		{"no receipt, final only", nil, broker.RequestOptions{Mode: broker.ModeFinal}, broker.ErrNoReceipt, true},
		{"stored", []any{stored}, broker.RequestOptions{}, broker.ErrSilent, false},
		{"accepted", []any{stored, accepted}, broker.RequestOptions{}, broker.ErrSilent, false},
		{"accepted, receipt lost", []any{accepted}, broker.RequestOptions{}, broker.ErrSilent, false},
		{"handed back", []any{stored, accepted, broker.Frame{Type: broker.FrameRetry, Seq: 1}}, broker.RequestOptions{}, broker.ErrSilent, false},
		{"stored, final only", []any{stored}, broker.RequestOptions{Mode: broker.ModeFinal}, broker.ErrSilent, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server, _ := queueStub(t, func(_ int, m *nats.Msg) {
				for _, a := range tc.answers {
					b := []byte(stored)
					if f, ok := a.(broker.Frame); ok {
						b = frame(t, m, f)
					}
					if err := m.Respond(b); err != nil {
						t.Error(err)
					}
				}
			})
			c := newClient(t, server, broker.ClientConfig{
				ReceiptWait: 50 * time.Millisecond, Silence: 300 * time.Millisecond, QueueSilence: 700 * time.Millisecond,
			})
			s, err := c.Request(t.Context(), "echo", tc.opts)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Final()
			var e *broker.Error
			if !errors.Is(err, tc.want) || errors.As(err, &e) != tc.retryable || tc.retryable && !e.Retryable {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestSilenceIsNotQueueing wants a request that waits, or one that works, not
// to count as silent.
func TestSilenceIsNotQueueing(t *testing.T) {
	t.Parallel()
	server, _ := queueStub(t, func(_ int, m *nats.Msg) {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		_ = m.Respond([]byte(stored))
		for range 7 { // queued for longer than a silence
			<-tick.C
		}
		for i := range 7 {
			_ = m.Respond(frame(t, m, broker.Frame{Type: broker.FrameHeartbeat, Seq: uint64(i)}))
			<-tick.C
		}
		_ = m.Respond(frame(t, m, broker.Frame{Type: broker.FrameFinal, Seq: 7, Text: "x", Final: &broker.Final{}}))
	})
	c := newClient(t, server, broker.ClientConfig{Silence: 1500 * time.Millisecond})
	s, err := c.Request(t.Context(), "echo", broker.RequestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := s.Final(); err != nil || f.Text != "x" {
		t.Errorf("%q, %v", f.Text, err)
	}
}

// TestIDInUse publishes an id that the stream has, from another client of the
// same name.
func TestIDInUse(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	opts := broker.RequestOptions{ID: "request001"}
	if _, err := newClient(t, server, broker.ClientConfig{Name: "me"}).Request(t.Context(), "echo", opts); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is stored", func() bool { return queued(t, conn) == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	s, err := newClient(t, server, broker.ClientConfig{Name: "me"}).Request(ctx, "echo", opts)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Final()
	var e *broker.Error
	if !errors.As(err, &e) || e.Code != broker.CodeBadRequest || !strings.Contains(e.Message, "id request001") || !strings.Contains(e.Message, "in use") {
		t.Errorf("got %v", err)
	}
}

// TestRestartUnderLoad restarts the server while clients publish and read. They
// reconnect by themselves; every request ends.
func TestRestartUnderLoad(t *testing.T) {
	t.Parallel()
	cfg := broker.ServerConfig{DataDir: t.TempDir(), Port: freePort(t)}
	server, err := broker.StartServer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown() })
	conn, err := broker.Connect(t.Context(), broker.Config{URL: server.URL(), AckWait: time.Second, Stream: broker.StreamConfig{MaxPerClient: 20_000}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	startWorker(t, conn, []string{"echo"}, 8, func(d *broker.Delivery, s *broker.TokenStream) {
		<-time.After(2 * time.Millisecond)
		echo(d, s)
	})
	nc, err := broker.Dial(t.Context(), server.URL(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c, err := broker.NewClient(nc, broker.ClientConfig{ReceiptWait: 300 * time.Millisecond, Silence: 8 * time.Second, QueueSilence: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var finals, failures atomic.Int32
	var all sync.WaitGroup
	stop := make(chan struct{})
	open := make(chan struct{}, 256) // requests without an answer; a slow machine gets no longer queue
	read := func(s *broker.Stream, text string) {
		f, err := s.Final()
		var e *broker.Error
		switch {
		case err == nil && f.Text == text:
			finals.Add(1)
		case errors.As(err, &e), errors.Is(err, broker.ErrSilent), errors.Is(err, broker.ErrNoReceipt):
			failures.Add(1)
			t.Logf("failed: %v", err)
		default:
			t.Errorf("%q: %v", f.Text, err)
		}
	}
	for i := range 4 {
		all.Go(func() {
			tick := time.NewTicker(4 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				select {
				case <-stop:
					return
				case open <- struct{}{}:
				}
				text := fmt.Sprintf("text %d %d", i, n)
				s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: text}})
				if err != nil {
					t.Errorf("request: %v", err)
					return
				}
				all.Go(func() {
					read(s, text)
					<-open
				})
			}
		})
	}
	for range 2 {
		before := finals.Load()
		eventually(t, "requests are answered", func() bool { return finals.Load() > before+300 })
		server.Shutdown()
		if server, err = broker.StartServer(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	before := finals.Load()
	eventually(t, "requests are answered again", func() bool { return finals.Load() > before+300 })
	close(stop)
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("requests hang")
	}
	if finals.Load() < 10*failures.Load() {
		t.Errorf("%d finals, %d failures", finals.Load(), failures.Load())
	}
}
