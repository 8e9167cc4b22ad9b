package broker_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// fullSubscription is more messages than may wait for a client.
const fullSubscription = 1<<16 + 64

// gate is a log handler that stops whoever logs, once, until it is opened: the
// only way into the goroutine on which the library brings a client's messages.
type gate struct {
	slog.Handler
	once   sync.Once
	closed chan struct{}
	open   chan struct{}
}

func newGate() *gate {
	return &gate{Handler: slog.DiscardHandler, closed: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) Enabled(context.Context, slog.Level) bool { return true }

func (g *gate) Handle(context.Context, slog.Record) error {
	g.once.Do(func() {
		close(g.closed)
		<-g.open
	})
	return nil
}

// TestLibraryDropsAreHealed has a client's process stand still until the library
// drops its messages, which it does without a word to the server: the middle of a
// request's output, or its end, after which nothing comes by itself any more. The
// reader gets all of it.
func TestLibraryDropsAreHealed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]bool{"the middle": false, "the end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const id, subject = "request001", "infer.out.me.request001"
			server, conn := setup(t, broker.Config{})
			if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
				t.Fatal(err)
			}
			send := func(f broker.Frame, times int) {
				f.ID, f.Epoch, f.Attempt, f.Tokens = id, 1, 1, []int32(f.Text)
				b, err := broker.AppendFrame(nil, broker.MsgPack, &f)
				for range times {
					if err == nil {
						err = conn.NATS().Publish(subject, b)
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
			token := func(seq uint64, index int, text string) broker.Frame {
				return broker.Frame{Type: broker.FrameToken, Seq: seq, Index: index, Text: text}
			}
			serve(t, conn, broker.ServiceConfig{Resume: func(_, asked string, _ int, _ string) bool {
				if asked == id && !end {
					send(token(6, 0, "abcd"), 1)
				}
				return asked == id && !end
			}}, nil)
			nc, err := broker.Dial(t.Context(), server.URL(), "test", nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			g := newGate()
			c, err := broker.NewClient(nc, broker.ClientConfig{Name: "me", Logger: slog.New(g), Silence: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.Request(t.Context(), "echo", broker.RequestOptions{ID: id})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is stored", func() bool { return queued(t, conn) == 1 })
			send(token(0, 0, "a"), 1)
			if err := conn.NATS().Publish(subject, []byte("no frame")); err != nil {
				t.Fatal(err)
			}
			<-g.closed
			send(broker.Frame{Type: broker.FrameHeartbeat, Seq: 1}, fullSubscription)
			send(token(2, 1, "b"), 1)
			send(token(3, 2, "c"), 1)
			if end {
				storeFinal(t, conn, id, "abcd")
				send(broker.Frame{Type: broker.FrameFinal, Seq: 5, Text: "abcd", Final: &broker.Final{FinishReason: broker.FinishStop}}, 1)
			}
			if err := conn.NATS().Flush(); err != nil {
				t.Fatal(err)
			}
			if err := nc.Flush(); err != nil { // the library has read and dropped
				t.Fatal(err)
			}
			close(g.open)
			if !end {
				send(token(4, 3, "d"), 1)
				send(broker.Frame{Type: broker.FrameHeartbeat, Seq: 5}, 1)
			}
			text := ""
			for f, err := range s.Frames() {
				if err != nil {
					t.Fatalf("after %q: %v", text, err)
				}
				switch {
				case f.Type == broker.FrameToken:
					text += f.Text
				case f.Type == broker.FrameFinal && f.Text != "abcd":
					t.Errorf("final %q", f.Text)
				}
				if !end && text == "abcd" {
					break
				}
			}
			if text != "abcd" {
				t.Errorf("read %q", text)
			}
		})
	}
}
