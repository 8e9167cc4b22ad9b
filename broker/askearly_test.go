package broker_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// answering stands for the workers that look at the streams: they are deaf to the
// first questions about a request, and answer the next ones with what they find.
func answering(t *testing.T, conn *broker.Conn, deaf int, find func(m *nats.Msg)) *atomic.Int32 {
	t.Helper()
	var asked atomic.Int32
	subscribe(t, conn.NATS(), "infer.resume.*", func(m *nats.Msg) {
		if int(asked.Add(1)) > deaf {
			find(m)
		}
	})
	return &asked
}

func respond(t *testing.T, m *nats.Msg, header nats.Header, payload []byte) {
	t.Helper()
	if err := m.RespondMsg(&nats.Msg{Header: header, Data: payload}); err != nil {
		t.Error(err)
	}
}

// TestLostAnswerIsAskedFor loses everything that a worker says to a client whose
// own connection is well, from some point on. The request may wait in the queue
// for as long as the client knows, and yet the answer is there long before a queued
// request is given up, also when the first questions are lost.
func TestLostAnswerIsAskedFor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		mode broker.Mode
		sent []broker.Frame // that arrive
		deaf int
	}{
		{"nothing arrives", broker.ModeStream, nil, 0},
		{"nothing arrives, final only", broker.ModeFinal, nil, 0},
		{"questions are lost", broker.ModeFinal, nil, 2},
		{"accepted", broker.ModeStream, []broker.Frame{{Type: broker.FrameAccepted}}, 0},
		{"handed back", broker.ModeStream, []broker.Frame{{Type: broker.FrameAccepted}, {Type: broker.FrameRetry, Seq: 1}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var final atomic.Pointer[[]byte]
			server, conn := queueStub(t, func(_ int, m *nats.Msg) {
				b := frame(t, m, broker.Frame{Type: broker.FrameFinal, Seq: 9, Text: "x", Final: &broker.Final{}})
				final.Store(&b)
				respond(t, m, nil, []byte(stored))
				for _, f := range tc.sent {
					respond(t, m, nil, frame(t, m, f))
				}
			})
			asked := answering(t, conn, tc.deaf, func(m *nats.Msg) {
				respond(t, m, nats.Header{broker.HeaderStored: {"1"}}, *final.Load())
			})
			c := newClient(t, server, broker.ClientConfig{Silence: 150 * time.Millisecond, QueueSilence: time.Hour})
			s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Mode: tc.mode})
			if err != nil {
				t.Fatal(err)
			}
			if f, err := s.Final(); err != nil || f.Text != "x" {
				t.Errorf("%q, %v", f.Text, err)
			}
			if n := int(asked.Load()); n != tc.deaf+1 {
				t.Errorf("asked %d times, want %d", n, tc.deaf+1)
			}
		})
	}
}

// TestAnswerWithoutAReceiptIsAskedFor loses receipt and final, but not that a
// worker took the request: the workers are asked before it is given up.
func TestAnswerWithoutAReceiptIsAskedFor(t *testing.T) {
	t.Parallel()
	var final atomic.Pointer[[]byte]
	server, conn := queueStub(t, func(_ int, m *nats.Msg) {
		b := frame(t, m, broker.Frame{Type: broker.FrameFinal, Seq: 9, Text: "x", Final: &broker.Final{}})
		final.Store(&b)
		respond(t, m, nil, frame(t, m, broker.Frame{Type: broker.FrameAccepted}))
	})
	answering(t, conn, 0, func(m *nats.Msg) { respond(t, m, nats.Header{broker.HeaderStored: {"1"}}, *final.Load()) })
	c := newClient(t, server, broker.ClientConfig{Silence: 200 * time.Millisecond})
	if f, err := outcome(t, c, broker.RequestOptions{}); err != nil || f.Text != "x" {
		t.Errorf("%q, %v", f.Text, err)
	}
}

// TestQueuedRequestIsAskedAboutSeldom has a request wait: the questions become
// few, and what the workers say of it does not end it.
func TestQueuedRequestIsAskedAboutSeldom(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"queued", "unknown"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			server, conn := queueStub(t, func(_ int, m *nats.Msg) { respond(t, m, nil, []byte(stored)) })
			asked := answering(t, conn, 0, func(m *nats.Msg) {
				respond(t, m, nil, []byte(`{"type":"resume","id":"request001","state":"`+state+`"}`))
			})
			c := newClient(t, server, broker.ClientConfig{Silence: 100 * time.Millisecond, QueueSilence: time.Hour})
			s, err := c.Request(t.Context(), "echo", broker.RequestOptions{ID: "request001"})
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(1600 * time.Millisecond) // questions are due after 0.1, 0.3, 0.7 and 1.5 s
			if n := asked.Load(); n < 3 || n > 4 {
				t.Errorf("%d questions", n)
			}
			s.Cancel()
			if _, err := s.Final(); !errors.Is(err, broker.ErrCancelled) {
				t.Errorf("it ended before: %v", err)
			}
		})
	}
}

// TestAnswerNotKept publishes a request twice, since the first receipt was lost.
// It was served meanwhile and nothing of it is kept: the client says so, not that
// the request was wrong, and cancels nothing.
func TestAnswerNotKept(t *testing.T) {
	t.Parallel()
	server, conn := queueStub(t, func(n int, m *nats.Msg) {
		if n > 1 {
			respond(t, m, nil, []byte(`{"stream":"INFER","seq":7,"duplicate":true}`))
		}
	})
	answering(t, conn, 0, func(m *nats.Msg) {
		respond(t, m, nil, []byte(`{"type":"resume","id":"request001","state":"unknown"}`))
	})
	var cancelled atomic.Bool
	subscribe(t, conn.NATS(), "infer.cancel.*", func(*nats.Msg) { cancelled.Store(true) })
	c := newClient(t, server, broker.ClientConfig{ReceiptWait: 100 * time.Millisecond})
	_, err := outcome(t, c, broker.RequestOptions{ID: "request001"})
	var e *broker.Error
	if !errors.Is(err, broker.ErrAnswerNotKept) || errors.As(err, &e) {
		t.Errorf("got %v", err)
	}
	if err := conn.NATS().Flush(); err != nil {
		t.Fatal(err)
	}
	if cancelled.Load() {
		t.Error("it was cancelled")
	}
}
