package broker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// stepped is a request whose worker sends a token whenever the test says so.
type stepped struct {
	mu     sync.Mutex
	stream *broker.TokenStream
	text   string
	began  chan struct{}
	steps  chan string // a token's text each
}

func newStepped() *stepped {
	return &stepped{began: make(chan struct{}), steps: make(chan string)}
}

// serve answers a delivery: a token for every step, a final when they end.
func (s *stepped) serve(d *broker.Delivery, out *broker.TokenStream) {
	defer d.Done()
	s.mu.Lock()
	s.stream = out
	_ = out.Accepted(&broker.Frame{Model: d.Request.Model})
	s.mu.Unlock()
	close(s.began)
	for text := range s.steps {
		s.mu.Lock()
		index := len(s.text)
		s.text += text
		_ = out.Token(&broker.Frame{Text: text, Tokens: []int32(text), Index: index})
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = out.Final(&broker.Frame{Text: s.text, Tokens: []int32(s.text), Final: &broker.Final{FinishReason: broker.FinishStop}})
	_ = d.Lease.Settle()
}

// resume is the worker's side of a resume request.
func (s *stepped) resume(_, id string, _ int, _ string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == nil || s.stream.ID() != id {
		return false
	}
	if s.text == "" {
		return s.stream.Heartbeat("encode") == nil
	}
	return s.stream.Cumulative(&broker.Frame{Text: s.text, Tokens: []int32(s.text)}) == nil
}

// nextText reads on to the next frame with output.
func nextText(t *testing.T, next func() (broker.Frame, error, bool)) string {
	t.Helper()
	for {
		f, err, ok := next()
		if err != nil || !ok || f.Type.Terminal() {
			t.Fatalf("%+v, %v", f, err)
		}
		if f.Type == broker.FrameToken {
			return f.Text
		}
	}
}

// TestSecondObserver has a second client of the same name come while a request
// runs: both get the whole output once.
func TestSecondObserver(t *testing.T) {
	t.Parallel()
	for _, mode := range []broker.Mode{broker.ModeStream, broker.ModeResume} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			server, conn := setup(t, broker.Config{})
			w := newStepped()
			serve(t, conn, broker.ServiceConfig{Resume: w.resume}, nil)
			startWorker(t, conn, []string{"slow"}, 1, w.serve)
			first := newClient(t, server, broker.ClientConfig{Name: "me"})
			s, err := first.Request(t.Context(), "slow", broker.RequestOptions{ID: "request001", Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			<-w.began
			w.steps <- "a"
			w.steps <- "b"
			w.steps <- "c" // the second token has been sent
			second := newClient(t, server, broker.ClientConfig{Name: "me"})
			o, err := second.Attach(t.Context(), "request001", broker.AttachOptions{})
			if err != nil {
				t.Fatal(err)
			}
			frames, stop := pull2(o)
			defer stop()
			begin := nextText(t, frames)
			if !strings.HasPrefix("abc", begin) || begin == "" {
				t.Errorf("the observer begins with %q", begin)
			}
			w.steps <- "d"
			close(w.steps)
			rest := ""
			for f, err, ok := frames(); ok; f, err, ok = frames() {
				if err != nil {
					t.Fatal(err)
				}
				if f.Type == broker.FrameToken {
					rest += f.Text
				}
			}
			if begin+rest != "abcd" {
				t.Errorf("the observer got %q and %q", begin, rest)
			}
			if text, f := read(t, s); text != "abcd" || f.Text != "abcd" {
				t.Errorf("the client got %q, final %q", text, f.Text)
			}
		})
	}
}

// storeFinal stores the final of a request of client me.
func storeFinal(t *testing.T, conn *broker.Conn, id, text string) {
	t.Helper()
	storeFinalOf(t, conn, "me", id, text)
}

// storeFinalOf stores the final of a request of any client.
func storeFinalOf(t *testing.T, conn *broker.Conn, client, id, text string) {
	t.Helper()
	b, err := broker.AppendFrame(nil, broker.MsgPack, &broker.Frame{
		Type: broker.FrameFinal, ID: id, Epoch: 1, Attempt: 1, Text: text, Tokens: []int32(text),
		Final: &broker.Final{FinishReason: broker.FinishStop},
	})
	if err != nil {
		t.Fatal(err)
	}
	finals, err := conn.Finals()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = finals.Close() }()
	verdicts := make(chan broker.Verdict, 1)
	f := &broker.StoredFinal{Client: client, ID: id, Worker: "w1", Epoch: 1, Attempt: 1, Frame: b}
	if err := finals.Store(f, time.Now().Add(10*time.Second), func(v broker.Verdict) { verdicts <- v }); err != nil {
		t.Fatal(err)
	}
	if v := <-verdicts; !v.Mine {
		t.Fatalf("%+v", v)
	}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	serve(t, conn, broker.ServiceConfig{Resume: func(string, string, int, string) bool { return false }}, nil)
	c := newClient(t, server, broker.ClientConfig{Name: "me"})
	storeFinal(t, conn, "finished1", "abcdé")
	publish := func(subject string, f broker.Frame) {
		t.Helper()
		f.ID = "crashed01"
		b, err := broker.AppendFrame(nil, broker.JSON, &f)
		if err == nil {
			err = conn.NATS().Publish(subject, b)
		}
		if err != nil {
			t.Error(err)
		}
	}
	attach := func(id string, o broker.AttachOptions) *broker.Stream {
		t.Helper()
		s, err := c.Attach(t.Context(), id, o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, tc := range []struct {
		name string
		o    broker.AttachOptions
		want string
	}{
		{"all of a finished one", broker.AttachOptions{}, "abcdé"},
		{"the rest of a finished one", broker.AttachOptions{Index: 3, Text: 3}, "dé"},
		{"nothing more", broker.AttachOptions{Index: 5, Text: 6}, ""},
	} {
		if text, f := read(t, attach("finished1", tc.o)); text != tc.want || f.Text != "abcdé" {
			t.Errorf("%s: %q, final %q", tc.name, text, f.Text)
		}
	}
	if _, err := attach("unknown01", broker.AttachOptions{}).Final(); !errors.Is(err, broker.ErrUnknownRequest) {
		t.Errorf("unknown: %v", err)
	}
	for _, bad := range []struct {
		id string
		o  broker.AttachOptions
	}{{"bad id", broker.AttachOptions{}}, {"request001", broker.AttachOptions{Index: -1}}} {
		if _, err := c.Attach(t.Context(), bad.id, bad.o); !errors.Is(err, &broker.Error{Code: broker.CodeBadRequest}) {
			t.Errorf("%+v: %v", bad, err)
		}
	}

	// One in mode resume whose worker is gone, and comes again.
	for i, text := range []string{"a", "b", "c"} {
		publish("infer.outr.me.crashed01", broker.Frame{
			Type: broker.FrameToken, Epoch: 1, Attempt: 1, Seq: uint64(i), Text: text, Tokens: []int32(text), Index: i,
		})
	}
	eventually(t, "the frames are stored", func() bool {
		frames, _, err := conn.OutFrames(t.Context(), "me", "crashed01", 1, 10)
		return err == nil && len(frames) == 3
	})
	s := attach("crashed01", broker.AttachOptions{Index: 1, Text: 1})
	frames, stop := pull2(s)
	defer stop()
	if got := nextText(t, frames); got != "bc" {
		t.Errorf("read back %q", got)
	}
	for i, f := range []broker.Frame{
		{Type: broker.FrameToken, Text: "abc", Tokens: []int32("abc")}, {Type: broker.FrameToken, Text: "d", Tokens: []int32("d"), Index: 3},
	} {
		f.Epoch, f.Attempt, f.Seq = 1, 2, uint64(i)
		publish("infer.outr.me.crashed01", f)
	}
	if got := nextText(t, frames); got != "d" {
		t.Errorf("goes on with %q", got)
	}
}

// pull2 reads a stream frame by frame.
func pull2(s *broker.Stream) (next func() (broker.Frame, error, bool), stop func()) {
	type item struct {
		f   broker.Frame
		err error
	}
	items, done := make(chan item), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(items)
		for f, err := range s.Frames() {
			select {
			case items <- item{f, err}:
			case <-done:
				return
			}
		}
	}()
	next = func() (broker.Frame, error, bool) {
		i, ok := <-items
		return i.f, i.err, ok
	}
	return next, func() {
		once.Do(func() { close(done) })
		s.Cancel()
	}
}

// TestAttachWithoutWorkers wants a reader to be told soon, and the client's own
// request to wait on.
func TestAttachWithoutWorkers(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	nc, err := broker.Dial(t.Context(), server.URL(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c, err := broker.NewClient(nc, broker.ClientConfig{Name: "me"})
	if err != nil {
		t.Fatal(err)
	}
	own, err := c.Request(t.Context(), "echo", broker.RequestOptions{ID: "request001"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is stored", func() bool { return queued(t, conn) == 1 })
	if err := nc.Flush(); err != nil { // the receipt has come
		t.Fatal(err)
	}
	if err := nc.ForceReconnect(); err != nil { // the request asks, in vain
		t.Fatal(err)
	}
	s, err := c.Attach(t.Context(), "request002", broker.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Final(); !errors.Is(err, broker.ErrUnknownRequest) {
		t.Errorf("%v", err)
	}
	storeFinal(t, conn, "request001", "done")
	serve(t, conn, broker.ServiceConfig{}, nil)
	if text, f := read(t, own); text != "done" || f.Text != "done" {
		t.Errorf("%q, final %q", text, f.Text)
	}
}

// TestAttachedReadersDoNotCancel stops reading in every way.
func TestAttachedReadersDoNotCancel(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	heard := make(chan string, 8)
	running := make(chan struct{}, 8)
	serve(t, conn, broker.ServiceConfig{
		Cancel: func(_, id string, _ uint64) broker.CancelState { heard <- id; return broker.CancelRunning },
		Resume: func(string, string, int, string) bool { running <- struct{}{}; return true },
	}, nil)
	c := newClient(t, server, broker.ClientConfig{Name: "me"})
	ctx, cancel := context.WithCancel(t.Context())
	s, err := c.Attach(ctx, "request001", broker.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	<-running
	cancel()
	if _, err := s.Final(); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if s, err = c.Attach(t.Context(), "request002", broker.AttachOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Cancel()
	if _, err := s.Final(); !errors.Is(err, broker.ErrCancelled) {
		t.Errorf("%v", err)
	}
	if r, err := c.Cancel(t.Context(), "request003"); err != nil || r.State != broker.CancelRunning {
		t.Errorf("%+v, %v", r, err)
	}
	if id := <-heard; id != "request003" {
		t.Errorf("cancelled %s", id)
	}
}

// TestHoleIsHealed loses a frame: the client asks, and gets what it lacks.
func TestHoleIsHealed(t *testing.T) {
	t.Parallel()
	asked := make(chan int, 8)
	var answer func()
	server, conn := setup(t, broker.Config{})
	serve(t, conn, broker.ServiceConfig{Resume: func(client, id string, index int, _ string) bool {
		if client != "me" || id != "request001" {
			return false
		}
		asked <- index
		answer()
		return true
	}}, nil)
	send := func(seq uint64, index int, text string) {
		f := broker.Frame{Type: broker.FrameToken, ID: "request001", Epoch: 1, Attempt: 1, Seq: seq, Index: index, Text: text, Tokens: []int32(text)}
		b, err := broker.AppendFrame(nil, broker.MsgPack, &f)
		if err == nil {
			err = conn.NATS().Publish("infer.out.me.request001", b)
		}
		if err != nil {
			t.Error(err)
		}
	}
	answer = func() { send(3, 0, "abcd") }
	if _, err := conn.NATS().Subscribe("infer.req.echo.>", func(m *nats.Msg) {
		_ = m.Respond([]byte(stored))
		send(0, 0, "a")
		send(2, 2, "c") // "b" is lost
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.NATS().Flush(); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, server, broker.ClientConfig{Name: "me"})
	s, err := c.Request(t.Context(), "echo", broker.RequestOptions{ID: "request001"})
	if err != nil {
		t.Fatal(err)
	}
	frames, stop := pull2(s)
	defer stop()
	for _, want := range []string{"a", "bcd"} {
		if got := nextText(t, frames); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if index := <-asked; index != 1 {
		t.Errorf("asked with index %d", index)
	}
	if s.Lost() != 1 {
		t.Errorf("%d lost", s.Lost())
	}
}

// TestReconnectedClientAsks has a request finish while its client was away.
func TestReconnectedClientAsks(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	serve(t, conn, broker.ServiceConfig{}, nil)
	nc, err := broker.Dial(t.Context(), server.URL(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c, err := broker.NewClient(nc, broker.ClientConfig{Name: "me"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Request(t.Context(), "echo", broker.RequestOptions{ID: "request001"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is stored", func() bool { return queued(t, conn) == 1 })
	if err := nc.Flush(); err != nil { // the receipt has come
		t.Fatal(err)
	}
	storeFinal(t, conn, "request001", "done")
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	if text, f := read(t, s); text != "done" || f.Text != "done" {
		t.Errorf("%q, final %q", text, f.Text)
	}
}
