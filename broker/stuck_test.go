package broker_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// talker is a worker that answers requests of two models on one connection:
// "good" with a small token frame every millisecond, "stuck" with as much as the
// connection takes, until nobody listens.
type talker struct {
	server *broker.Server
	client *broker.Client
	gone   chan struct{} // closed when a request of "stuck" has lost its reader
	sent   sync.WaitGroup
}

func newTalker(tb testing.TB) *talker {
	tb.Helper()
	w := &talker{server: brokertest.Server(tb), gone: make(chan struct{})}
	conn := brokertest.Connect(tb, w.server, broker.Config{})
	out, err := conn.Publisher(broker.PublisherConfig{Worker: "w1", Gone: func(*broker.TokenStream) { close(w.gone) }})
	if err != nil {
		tb.Fatal(err)
	}
	credits := broker.NewCredits(4)
	service, err := conn.Serve(tb.Context(), broker.ServiceConfig{
		Worker: "w1", Models: []broker.ServedModel{{Name: "good"}, {Name: "stuck"}}, Credits: credits,
		Deliver: func(d *broker.Delivery) {
			w.sent.Go(func() {
				defer d.Done()
				if s := out.Stream(d); d.Request.Model == "good" {
					w.talk(s, *d.Request.Params.MaxTokens)
				} else {
					w.shout(tb.Context(), s)
				}
			})
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := service.Close(); err != nil {
			tb.Error(err)
		}
		w.sent.Wait()
		if err := out.Close(); err != nil {
			tb.Error(err)
		}
	})
	nc, err := broker.Dial(tb.Context(), w.server.URL(), "good reader", nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	if w.client, err = broker.NewClient(nc, broker.ClientConfig{QueueFrames: 1 << 16}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = w.client.Close() }) // with its connection
	return w
}

func (w *talker) talk(s *broker.TokenStream, n int) {
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	var text strings.Builder
	tokens := make([]int32, n)
	for i := range tokens {
		<-pace.C
		tokens[i] = int32(i)
		_ = s.Token(&broker.Frame{Text: "word ", Tokens: tokens[i : i+1], Index: i})
		text.WriteString("word ")
	}
	_ = s.Final(&broker.Frame{Text: text.String(), Tokens: tokens, Final: &broker.Final{FinishReason: broker.FinishLength}})
}

// shout sends frames of 16 KiB, 16 MB a second, until nobody listens.
func (w *talker) shout(ctx context.Context, s *broker.TokenStream) {
	defer s.Abandon()
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	text := strings.Repeat("shout ", 16<<10/6)
	for i := 0; ; i++ {
		select {
		case <-pace.C:
			_ = s.Token(&broker.Frame{Text: text, Tokens: []int32{int32(i)}, Index: i})
		case <-w.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// gaps reads n tokens of the good model and returns the times between their
// frames, sorted.
func (w *talker) gaps(tb testing.TB, n int) []time.Duration {
	tb.Helper()
	s, err := w.client.Request(tb.Context(), "good", broker.RequestOptions{
		Input: broker.Input{Text: "x"}, Params: broker.Params{MaxTokens: &n}, Realtime: true,
	})
	if err != nil {
		tb.Fatal(err)
	}
	var gaps []time.Duration
	last, tokens := time.Now(), 0
	for f, err := range s.Frames() {
		if err != nil {
			tb.Fatal(err)
		}
		now := time.Now()
		if f.Type == broker.FrameToken {
			gaps = append(gaps, now.Sub(last))
			tokens += len(f.Tokens)
		}
		last = now
	}
	if tokens != n || s.Lost() != 0 {
		tb.Errorf("%d of %d tokens, %d frames lost", tokens, n, s.Lost())
	}
	slices.Sort(gaps)
	return gaps
}

// stick has a raw reader ask for the stuck model and read nothing.
func (w *talker) stick(tb testing.TB) net.Conn {
	tb.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(w.server.URL(), "nats://"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = nc.Close() }) // the server may have closed it
	r := bufio.NewReader(nc)
	say := func(text, answer string) {
		if _, err := nc.Write([]byte(text)); err != nil {
			tb.Fatal(err)
		}
		for line := ""; line != answer; {
			if line, err = r.ReadString('\n'); err != nil {
				tb.Fatal(err)
			}
		}
	}
	const reply = "infer.out.stuckreader.abcdefgh"
	say("CONNECT {\"verbose\":false}\r\nSUB "+reply+" 1\r\nPING\r\n", "PONG\r\n")
	if _, err := fmt.Fprintf(nc, "PUB infer.rt.stuck %s 1\r\nx\r\n", reply); err != nil {
		tb.Fatal(err)
	}
	return nc
}

// TestStuckReaderIsGone has a reader that reads nothing beside a good one. The
// server keeps a bounded amount for it and then drops its frames, which is
// reported as if nobody listened: its request ends as that of a client that is
// gone. The good one misses nothing.
func TestStuckReaderIsGone(t *testing.T) { // not parallel: it measures memory
	w := newTalker(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	stuck := w.stick(t)
	most := uint64(0)
	timeout := time.After(time.Minute)
	for gone := false; !gone; {
		w.gaps(t, 100)
		runtime.ReadMemStats(&after)
		most = max(most, after.HeapInuse)
		select {
		case <-w.gone:
			gone = true
		case <-timeout:
			t.Fatal("the stuck reader's request goes on")
		default:
		}
	}
	// The server keeps at most 32 MiB for a connection; its buffers have some
	// room to spare, and garbage may be as much again.
	if limit := before.HeapInuse + 128<<20; most > limit {
		t.Errorf("%d bytes in use, %d before", most, before.HeapInuse)
	}
	if n := backlog(t, stuck); n > 64<<20 {
		t.Errorf("%d bytes were kept for the stuck reader", n)
	}
}

// backlog reads what a connection has, until it answers a PING or has ended, and
// counts the bytes.
func backlog(t *testing.T, nc net.Conn) int {
	t.Helper()
	if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Write([]byte("PING\r\n")); err != nil {
		return 0 // it was closed
	}
	r, n := bufio.NewReader(nc), 0
	for {
		line, err := r.ReadString('\n')
		if n += len(line); line == "PONG\r\n" {
			return n
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
		if err != nil {
			return n
		}
	}
}

// BenchmarkStuckReader measures the time between two token frames of a good
// reader alone, and beside a reader that reads nothing, for whose request the
// same connection of the worker sends 16 MB a second.
func BenchmarkStuckReader(b *testing.B) {
	const tokens = 1000 // one a millisecond
	p90 := func(gaps []time.Duration) float64 { return float64(gaps[len(gaps)*9/10].Microseconds()) / 1000 }
	var alone, beside []time.Duration
	for b.Loop() {
		w := newTalker(b)
		alone = append(alone, w.gaps(b, tokens)...)
		w.stick(b)
		beside = append(beside, w.gaps(b, tokens)...)
	}
	slices.Sort(alone)
	slices.Sort(beside)
	b.ReportMetric(p90(alone), "alone-p90-ms")
	b.ReportMetric(p90(beside), "beside-p90-ms")
	b.ReportMetric(p90(beside)/p90(alone), "ratio")
	b.ReportMetric(0, "ns/op")
}
