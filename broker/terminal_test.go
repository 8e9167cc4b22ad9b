package broker_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// tokenStream opens a stream of client me, and what arrives on its subject.
func tokenStream(t *testing.T, conn *broker.Conn, enc broker.Encoding, attempt uint64) (*broker.TokenStream, func() broker.Frame) {
	t.Helper()
	out, err := conn.Publisher(broker.PublisherConfig{Worker: "w1"})
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("request%d%03d", enc, attempt)
	sub, err := conn.NATS().SubscribeSync("infer.out.me." + id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(out.Close(), sub.Unsubscribe()); err != nil {
			t.Error(err)
		}
	})
	s := out.Stream(&broker.Delivery{
		Request: &broker.Request{ID: id, Reply: sub.Subject, Encoding: enc}, Lease: &broker.Lease{Epoch: 5, Attempt: attempt},
	})
	return s, func() broker.Frame {
		t.Helper()
		m, err := sub.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		f, err := broker.DecodeFrame(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}

// TestTerminalIsSentLater encodes a terminal frame, sends others, and then it.
func TestTerminalIsSentLater(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, broker.Config{})
	s, next := tokenStream(t, conn, broker.MsgPack, 1)
	if err := s.Token(&broker.Frame{Text: "a", Tokens: []int32{1}}); err != nil {
		t.Fatal(err)
	}
	e, err := s.Terminal(&broker.Frame{Type: broker.FrameFinal, Text: "a", Tokens: []int32{1}, Final: &broker.Final{FinishReason: broker.FinishStop}})
	if err != nil {
		t.Fatal(err)
	}
	stored := bytes.Clone(e.Frame)
	if err := s.Heartbeat("store"); err != nil {
		t.Fatal(err)
	}
	if err := s.SendTerminal(e); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored, e.Frame) {
		t.Error("the frame changed after it was encoded")
	}
	for i, want := range []broker.FrameType{broker.FrameToken, broker.FrameHeartbeat, broker.FrameFinal} {
		if f := next(); f.Type != want || f.Seq != min(uint64(i), 1) || f.Epoch != 5 || f.Attempt != 1 {
			t.Errorf("frame %d: %+v", i, f)
		}
	}
	if _, err := s.Terminal(&broker.Frame{Type: broker.FrameError, Error: broker.NewError(broker.CodeInternal, "x")}); !errors.Is(err, broker.ErrTerminated) {
		t.Errorf("after the end: %v", err)
	}
	for what, err := range map[string]error{"send": s.SendTerminal(e), "replay": s.Replay(e.Frame), "cumulative": s.Cumulative(&broker.Frame{})} {
		if !errors.Is(err, broker.ErrTerminated) {
			t.Errorf("%s after the end: %v", what, err)
		}
	}
	s, _ = tokenStream(t, conn, broker.MsgPack, 2)
	_, err = s.Terminal(&broker.Frame{Type: broker.FrameFinal, Text: strings.Repeat("x", 1<<20-300), Final: &broker.Final{}})
	if !errors.Is(err, broker.ErrFrameTooLarge) {
		t.Errorf("no room for the store's headers: %v", err)
	}
	if _, err := s.Terminal(&broker.Frame{Type: broker.FrameToken}); err == nil {
		t.Error("a token frame is terminal")
	}
	if err := s.SendTerminal(broker.Encoded{Type: broker.FrameToken}); err == nil {
		t.Error("a token frame is sent as terminal")
	}
	if err := s.Fail(broker.NewError(broker.CodeInternal, "x"), nil); err != nil {
		t.Errorf("the stream did not go on: %v", err)
	}
}

// TestReplay sends terminal frames of an earlier lease as ones of this lease,
// with everything else as it was.
func TestReplay(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, broker.Config{})
	meta, bad := broker.NewMeta(map[string]any{"k": "v"})
	if bad != nil {
		t.Fatal(bad)
	}
	frames := []broker.Frame{
		{
			Type: broker.FrameFinal, Text: "né", Tokens: []int32{1, 2}, Model: "m", Version: "1", Digest: "d", Meta: meta,
			LogProbs: [][]broker.TokenLogProb{{{ID: 1, LogProb: -0.25}}, {{ID: 2, LogProb: math.NaN()}}},
			Final: &broker.Final{
				FinishReason: broker.FinishLength, LogProb: -1.5, Label: "l", Scores: []broker.Score{{Label: "l", Value: 1}},
				Alternatives: []broker.Alternative{{Text: "né", Tokens: []int32{1, 2}, LogProb: -1.5, FinishReason: broker.FinishLength}},
				Usage:        broker.Usage{InputTokens: 3, OutputTokens: 2}, Timing: broker.Timing{Total: 1500 * time.Microsecond},
				Deterministic: true, Echo: &broker.Input{Text: "in"},
			},
		},
		{Type: broker.FrameError, Error: &broker.Error{Code: broker.CodeNumericalError, Message: "x", Retryable: true, RetryAfter: time.Second}, Meta: meta},
	}
	for attempt := range uint64(2) {
		for _, enc := range []broker.Encoding{broker.MsgPack, broker.JSON} {
			want := frames[attempt]
			want.Epoch, want.Attempt, want.Seq = 3, 9, 17
			s, next := tokenStream(t, conn, enc, attempt+1)
			want.ID = s.ID()
			b, err := broker.AppendFrame(nil, enc, &want)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Accepted(&broker.Frame{}); err != nil {
				t.Fatal(err)
			}
			if err := s.Replay(b); err != nil {
				t.Fatal(err)
			}
			next()
			want, _ = broker.DecodeFrame(b)
			want.Epoch, want.Attempt, want.Seq = 5, attempt+1, 1
			if diff := cmp.Diff(want, next(), cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("encoding %d, want, got:\n%s", enc, diff)
			}
		}
	}
	s, _ := tokenStream(t, conn, broker.MsgPack, 7)
	token, _ := broker.AppendFrame(nil, broker.MsgPack, &broker.Frame{Type: broker.FrameToken})
	for _, bad := range [][]byte{nil, []byte("x"), token} {
		if err := s.Replay(bad); err == nil {
			t.Errorf("%q is replayed", bad)
		}
	}
}

// TestQuotaIsExact has eight publishers race for one client's quota.
func TestQuotaIsExact(t *testing.T) {
	t.Parallel()
	const quota, publishers, each = 100, 8, 40
	server, conn := setup(t, broker.Config{Stream: broker.StreamConfig{MaxPerClient: quota}})
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	var stored, refused atomic.Int32
	var all sync.WaitGroup
	for range publishers {
		nc, err := nats.Connect(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		all.Go(func() {
			for range each {
				m, err := nc.Request("infer.req.echo.std.me", []byte("x"), 30*time.Second)
				switch {
				case err != nil:
					t.Error(err)
				case strings.Contains(string(m.Data), "10077"):
					refused.Add(1)
				case strings.Contains(string(m.Data), `"seq"`):
					stored.Add(1)
				default:
					t.Errorf("%s", m.Data)
				}
			}
		})
	}
	all.Wait()
	if n := queued(t, conn); stored.Load() != quota || refused.Load() != publishers*each-quota || n != quota {
		t.Errorf("%d stored, %d refused, %d queued", stored.Load(), refused.Load(), n)
	}
}

// TestPayloadAtTheLimit sends payloads of a byte less than the worker takes, as
// much, and one more.
func TestPayloadAtTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 4096
	server, conn := setup(t, broker.Config{MaxPayload: limit})
	startWorker(t, conn, []string{"echo"}, 1, func(d *broker.Delivery, s *broker.TokenStream) {
		if d.Err == nil {
			d.Request.Input.Text = "taken"
		}
		echo(d, s)
	})
	c := newClient(t, server, broker.ClientConfig{})
	for _, size := range []int{limit - 1, limit, limit + 1, limit} {
		s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Payload: bytes.Repeat([]byte("x"), size), ContentType: broker.TypeText})
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.Final()
		switch {
		case size <= limit && (err != nil || f.Text != "taken"):
			t.Errorf("%d bytes: %q, %v", size, f.Text, err)
		case size > limit && !errors.Is(err, &broker.Error{Code: broker.CodePayloadTooLarge}):
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
