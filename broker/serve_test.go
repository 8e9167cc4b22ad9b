package broker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// serve registers a service whose core requests go to handle.
func serve(t *testing.T, conn *broker.Conn, cfg broker.ServiceConfig, handle func(*broker.Delivery, *broker.TokenStream)) *broker.Service {
	t.Helper()
	out, err := conn.Publisher(broker.PublisherConfig{Worker: "w1"})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	cfg.Deliver = func(d *broker.Delivery) { running.Go(func() { handle(d, out.Stream(d)) }) }
	s, err := conn.Serve(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
	return s
}

func TestRealtime(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	credits := broker.NewCredits(2)
	serve(t, conn, broker.ServiceConfig{Models: []broker.ServedModel{{Name: "echo"}}, Credits: credits}, echo)
	c := newClient(t, server, broker.ClientConfig{})
	s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: "fast"}, Realtime: true})
	if err != nil {
		t.Fatal(err)
	}
	if text, f := read(t, s); text != "fast" || f.Text != "fast" {
		t.Errorf("streamed %q, final %+v", text, f)
	}
	eventually(t, "credit comes back", func() bool { return credits.Free() == 2 })

	// Plain text and several replies, without our client.
	nc := conn.NATS()
	sub, err := nc.SubscribeSync(nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("infer.rt.echo", sub.Subject, []byte("hi")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"accepted", `"text":"h"`, `"text":"i"`, `"type":"final"`} {
		m, err := sub.NextMsg(10 * time.Second)
		if err != nil || !strings.Contains(string(m.Data), want) {
			t.Fatalf("%v: %s, want %s", err, m.Data, want)
		}
	}
}

func TestRealtimeBusy(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	gate, started := make(chan struct{}), make(chan struct{}, 1)
	credits := broker.NewCredits(1)
	s := serve(t, conn, broker.ServiceConfig{Models: []broker.ServedModel{{Name: "echo"}}, Credits: credits},
		func(d *broker.Delivery, s *broker.TokenStream) {
			started <- struct{}{}
			<-gate
			echo(d, s)
		})
	c := newClient(t, server, broker.ClientConfig{})
	ask := func() *broker.Stream {
		t.Helper()
		st, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: "x"}, Realtime: true, Encoding: broker.JSON})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	first := ask()
	<-started
	_, err := ask().Final()
	var e *broker.Error
	if !errors.As(err, &e) || e.Code != broker.CodeBusy || !e.Retryable || e.RetryAfter <= 0 {
		t.Errorf("second request: %v", err)
	}
	close(gate)
	if _, f := read(t, first); f.Text != "x" {
		t.Errorf("first request: %+v", f)
	}
	// A request without reply subject cannot be answered; it only counts.
	if err := conn.NATS().Publish("infer.rt.echo", []byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are counted", func() bool { st := s.Stats(); return st.Busy == 1 && st.Unanswerable == 1 })
	eventually(t, "credit comes back", func() bool { return credits.Free() == 1 })
}

func TestCancel(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	var cancelled atomic.Value
	var once sync.Once
	stop := make(chan struct{})
	const finished = "finished1"
	svc := serve(t, conn, broker.ServiceConfig{Cancel: func(client, id string, _ uint64) broker.CancelState {
		switch id {
		case finished:
			return broker.CancelFinished
		case "notours11":
			return broker.CancelUnknown
		}
		cancelled.Store(client + "/" + id)
		once.Do(func() { close(stop) })
		return broker.CancelRunning
	}}, nil)
	startWorker(t, conn, []string{"slow"}, 1, func(d *broker.Delivery, s *broker.TokenStream) {
		_ = s.Token(&broker.Frame{Text: "a", Tokens: []int32{1}})
		<-stop
		echo(d, s)
	})
	c := newClient(t, server, broker.ClientConfig{Name: "me", CancelTimeout: 300 * time.Millisecond})
	s, err := c.Request(t.Context(), "slow", broker.RequestOptions{Input: broker.Input{Text: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	for f, err := range s.Frames() { // breaking the loop cancels
		if err != nil || f.Type != broker.FrameToken {
			t.Fatalf("%+v, %v", f, err)
		}
		break
	}
	eventually(t, "worker hears of it", func() bool { return cancelled.Load() == "me/"+s.ID() })
	if _, err := s.Final(); !errors.Is(err, broker.ErrCancelled) {
		t.Errorf("final after cancel: %v", err)
	}
	for range 2 { // the second time while the service drains
		for id, want := range map[string]broker.CancelState{
			finished: broker.CancelFinished, "notours11": broker.CancelUnknown, "running11": broker.CancelRunning,
		} {
			if r, err := c.Cancel(t.Context(), id); err != nil || r.State != want || r.ID != id {
				t.Errorf("%s: %+v, %v", id, r, err)
			}
		}
		if err := svc.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Cancel(t.Context(), "bad id"); err == nil {
		t.Error("malformed id accepted")
	}
}

func TestContextCancels(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	heard := make(chan string, 4)
	serve(t, conn, broker.ServiceConfig{Cancel: func(_, id string, _ uint64) broker.CancelState {
		heard <- id
		return broker.CancelRunning
	}}, nil)
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, server, broker.ClientConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	s, err := c.Request(ctx, "echo", broker.RequestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := s.Final(); !errors.Is(err, context.Canceled) {
		t.Errorf("final: %v", err)
	}
	if id := <-heard; id != s.ID() {
		t.Errorf("cancel of %s, want %s", id, s.ID())
	}
	// A deadline that nobody answers.
	s, err = c.Request(t.Context(), "echo", broker.RequestOptions{Deadline: time.Now().Add(50 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Final(); !errors.Is(err, &broker.Error{Code: broker.CodeDeadlineExceeded}) {
		t.Errorf("after the deadline: %v", err)
	}
	// A client that is closed.
	s, err = c.Request(t.Context(), "echo", broker.RequestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Final(); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
	if _, err := c.Request(t.Context(), "echo", broker.RequestOptions{}); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("request after close: %v", err)
	}
}

// TestDiscovery asks as the service tools do.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, broker.Config{})
	svc := serve(t, conn, broker.ServiceConfig{
		Worker: "w7", Version: "1.2.3", Models: []broker.ServedModel{{Name: "echo", Version: "1", Digest: "abc", Weights: "bf16"}},
		Credits: broker.NewCredits(1), Stats: func() any { return map[string]int{"running": 3} },
		Cancel: func(string, string, uint64) broker.CancelState { return broker.CancelUnknown },
	}, echo)
	nc := conn.NATS()
	for subject, want := range map[string][]string{
		"$SRV.PING":         {`"name":"cellmq"`, `"version":"1.2.3"`, `"worker":"w7"`},
		"$SRV.INFO.cellmq":  {"infer.rt.echo", "infer.cancel.*", `"digest":"abc"`, `"weights":"bf16"`},
		"$SRV.STATS.cellmq": {`"running":3`},
	} {
		said, err := nc.SubscribeSync(nats.NewInbox())
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.PublishRequest(subject, said.Subject, nil); err != nil {
			t.Fatal(err)
		}
		var all []byte
		for range 2 { // the models' endpoints and the others
			m, err := said.NextMsg(5 * time.Second)
			if err != nil {
				t.Fatalf("%s: %v", subject, err)
			}
			if !json.Valid(m.Data) {
				t.Errorf("%s: %s", subject, m.Data)
			}
			all = append(all, m.Data...)
		}
		for _, w := range want {
			if !strings.Contains(string(all), w) {
				t.Errorf("%s: %s lacks %s", subject, all, w)
			}
		}
	}
	if err := svc.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Request("infer.rt.echo", []byte("x"), time.Second); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("core request after drain: %v", err)
	}
}

// TestGone notices that the client has left.
func TestGone(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, broker.Config{})
	gone := make(chan string, 8)
	out, err := conn.Publisher(broker.PublisherConfig{Gone: func(s *broker.TokenStream) { gone <- s.ID() }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	}()
	open := func(id, reply string) *broker.TokenStream {
		return out.Stream(&broker.Delivery{Request: &broker.Request{ID: id, Reply: reply}, Lease: &broker.Lease{}})
	}
	heard, unheard := open("heard111", "infer.out.a.heard111"), open("unheard1", "infer.out.b.unheard1")
	sub, err := conn.NATS().SubscribeSync("infer.out.a.*")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	start := time.Now()
	eventually(t, "absence is noticed", func() bool {
		for _, s := range []*broker.TokenStream{heard, unheard} {
			if err := s.Heartbeat("decode"); err != nil {
				t.Fatal(err)
			}
		}
		return len(gone) > 0
	})
	if d := time.Since(start); d < time.Second {
		t.Errorf("after %v already", d)
	}
	if id := <-gone; id != "unheard1" || len(gone) != 0 {
		t.Errorf("gone: %s and %d more", id, len(gone))
	}
}

// TestGoneWithASharedReply has several streams on one reply subject: the
// absence of its reader concerns them all.
func TestGoneWithASharedReply(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, broker.Config{})
	gone := make(chan string, 8)
	out, err := conn.Publisher(broker.PublisherConfig{Gone: func(s *broker.TokenStream) { gone <- s.ID() }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	var streams []*broker.TokenStream
	for _, id := range []string{"shared11", "shared22", "shared33"} {
		streams = append(streams, out.Stream(&broker.Delivery{Request: &broker.Request{ID: id, Reply: "_INBOX.shared"}, Lease: &broker.Lease{}}))
	}
	streams[1].Abandon()
	eventually(t, "absence is noticed", func() bool {
		_, _ = streams[0].Heartbeat("decode"), streams[2].Heartbeat("decode")
		return len(gone) == 2
	})
	if ids := []string{<-gone, <-gone}; !slices.Contains(ids, "shared11") || !slices.Contains(ids, "shared33") {
		t.Errorf("gone: %v", ids)
	}
}

func TestTokenStreamAllocatesNothing(t *testing.T) {
	server, conn := setup(t, broker.Config{})
	out, err := conn.Publisher(broker.PublisherConfig{Gone: func(*broker.TokenStream) {}})
	if err != nil {
		t.Fatal(err)
	}
	listenRaw(t, strings.TrimPrefix(server.URL(), "nats://"), "infer.out.a.*")
	for _, enc := range []broker.Encoding{broker.MsgPack, broker.JSON} {
		s := out.Stream(&broker.Delivery{
			Request: &broker.Request{ID: "abcdefgh", Reply: "infer.out.a.abcdefgh", Encoding: enc}, Lease: &broker.Lease{Epoch: 1, Attempt: 1},
		})
		f := broker.Frame{Text: "hello", Tokens: []int32{1, 2, 3}}
		for range 100 { // buffers grow
			_ = s.Token(&f)
		}
		// The server runs in this process and may allocate meanwhile: the least
		// of several rounds counts.
		least := math.Inf(1)
		for range 10 {
			least = min(least, testing.AllocsPerRun(100, func() {
				f.Index += 3
				if err := s.Token(&f); err != nil {
					t.Fatal(err)
				}
				if err := s.Cumulative(&f); err != nil {
					t.Fatal(err)
				}
			}))
		}
		if least >= 1 {
			t.Errorf("encoding %d: %v allocations per frame", enc, least)
		}
	}
}

// listenRaw subscribes without a client library, which would allocate.
func listenRaw(t *testing.T, addr, subject string) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(nc, "CONNECT {\"verbose\":false}\r\nSUB %s 1\r\nPING\r\n", subject)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(nc)
	for line := ""; line != "PONG\r\n"; {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, nc) // until it is closed
	}()
	t.Cleanup(func() {
		_ = nc.Close()
		<-done
	})
}

// TestMergedFrames fills a reader's queue: what it cannot hold comes merged,
// nothing is lost, and other streams go on.
func TestMergedFrames(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	startWorker(t, conn, []string{"echo"}, 1, echo)
	c := newClient(t, server, broker.ClientConfig{QueueFrames: 4})
	text := strings.Repeat("abcdefghij", 20)
	slow, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: text}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 { // answered after the slow one, on the same connection
		s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: strconv.Itoa(i)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, f := read(t, s); f.Text != strconv.Itoa(i) {
			t.Errorf("final %q", f.Text)
		}
	}
	streamed, frames := "", 0
	var ids []int32
	for f, err := range slow.Frames() {
		frames++
		switch {
		case err != nil:
			t.Fatal(err)
		case f.Type == broker.FrameToken:
			if f.Index != len(ids) {
				t.Errorf("index %d after %d tokens", f.Index, len(ids))
			}
			streamed, ids = streamed+f.Text, append(ids, f.Tokens...)
		case f.Type == broker.FrameFinal && f.Text != text:
			t.Errorf("final %q", f.Text)
		}
	}
	if streamed != text || string(ids) != text || slow.Lost() != 0 {
		t.Errorf("streamed %q, %d ids, lost %d", streamed, len(ids), slow.Lost())
	}
	if frames >= len(text) {
		t.Errorf("%d frames: nothing was merged", frames)
	}
}

// TestSlowReaderOfASearch fills the reader's queue with provisional texts: it
// gets the latest, and none of them counts as lost output.
func TestSlowReaderOfASearch(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	const revisions = 100
	startWorker(t, conn, []string{"search"}, 1, func(d *broker.Delivery, s *broker.TokenStream) {
		for i := range revisions {
			f := broker.Frame{Text: strconv.Itoa(i), Tokens: []int32{int32(i)}, Provisional: true, Revision: i + 1}
			if err := s.Token(&f); err != nil {
				t.Error(err)
			}
		}
		echo(d, s)
	})
	c := newClient(t, server, broker.ClientConfig{QueueFrames: 4})
	stream, err := c.Request(t.Context(), "search", broker.RequestOptions{Input: broker.Input{Text: "ab"}})
	if err != nil {
		t.Fatal(err)
	}
	// Frames of another request are sent after these.
	other, err := c.Request(t.Context(), "search", broker.RequestOptions{Input: broker.Input{Text: "c"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Final(); err != nil {
		t.Fatal(err)
	}
	output, last := "", -1
	for f, err := range stream.Frames() {
		switch {
		case err != nil:
			t.Fatal(err)
		case f.Provisional && (output != "" || f.Revision <= last):
			t.Errorf("revision %d after %d and output %q", f.Revision, last, output)
		case f.Provisional:
			last = f.Revision
		case f.Type == broker.FrameToken:
			output += f.Text
		case f.Type == broker.FrameFinal && f.Text != output:
			t.Errorf("final %q, output %q", f.Text, output)
		}
	}
	if output != "ab" || last != revisions || stream.Lost() != 0 {
		t.Errorf("output %q, last revision %d, lost %d", output, last, stream.Lost())
	}
}
