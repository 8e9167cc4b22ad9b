package broker_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// TestRefusedIDIsAcceptedLater sends a request that the queue has no room for,
// and again under the same id when there is.
func TestRefusedIDIsAcceptedLater(t *testing.T) {
	t.Parallel()
	server, conn := ensured(t, broker.Config{Stream: broker.StreamConfig{MaxPerClient: 1}})
	c := newClient(t, server, broker.ClientConfig{Name: "me"})
	ask := func(text, id string) *broker.Stream {
		t.Helper()
		s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: text}, ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := ask("first", "first00001")
	eventually(t, "the first is stored", func() bool { return queued(t, conn) == 1 })
	for range 2 {
		_, err := ask("second", "second0001").Final()
		var refused *broker.Error
		if !errors.As(err, &refused) || refused.Code != broker.CodeQuotaExceeded || !refused.Retryable {
			t.Fatalf("beyond the quota: %v", err)
		}
	}
	startWorker(t, conn, []string{"echo"}, 1, echo)
	if text, _ := read(t, first); text != "first" {
		t.Errorf("first: %q", text)
	}
	eventually(t, "there is room", func() bool { return queued(t, conn) == 0 })
	if text, _ := read(t, ask("second", "second0001")); text != "second" {
		t.Errorf("second: %q", text)
	}
}

// TestReconnectStorm restarts the server under 500 connections: all come back,
// and requests go on.
func TestReconnectStorm(t *testing.T) {
	t.Parallel()
	cfg := broker.ServerConfig{DataDir: t.TempDir(), Port: freePort(t)}
	server, err := broker.StartServer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown() })
	conn, err := broker.Connect(t.Context(), broker.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	startWorker(t, conn, []string{"echo"}, 8, echo)
	conns := make([]*nats.Conn, 500)
	for i := range conns {
		if conns[i], err = broker.Dial(t.Context(), server.URL(), "one of many", nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conns[i].Close)
	}
	c := newClient(t, server, broker.ClientConfig{})
	server.Shutdown()
	if server, err = broker.StartServer(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	eventually(t, "all are back", func() bool {
		for _, nc := range conns {
			if !nc.IsConnected() {
				return false
			}
		}
		return conn.Connected()
	})
	t.Logf("500 connections were back after %v", time.Since(start).Round(time.Millisecond))
	s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: "text"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, f := read(t, s); f.Text != "text" {
		t.Errorf("final %+v", f)
	}
}

// TestIntakeSoak takes thousands of requests with one slot and with eight: none
// twice, and never a pause as long as a lost poll would make.
func TestIntakeSoak(t *testing.T) {
	t.Parallel()
	requests := 5000
	if testing.Short() {
		requests = 500
	}
	for _, slots := range []int{1, 8} {
		t.Run(fmt.Sprint(slots, " slots"), func(t *testing.T) {
			t.Parallel()
			_, conn := ensured(t, broker.Config{Stream: broker.StreamConfig{MaxPerClient: int64(requests)}})
			var done atomic.Int32
			var mu sync.Mutex
			last, longest := time.Now(), time.Duration(0)
			finished := make(chan struct{})
			w := startWorker(t, conn, []string{"echo"}, slots, func(d *broker.Delivery, _ *broker.TokenStream) {
				mu.Lock()
				longest, last = max(longest, time.Since(last)), time.Now()
				mu.Unlock()
				if err := d.Lease.Settle(); err != nil {
					t.Error(err)
				}
				d.Done()
				if done.Add(1) == int32(requests) {
					close(finished)
				}
			})
			for i := range requests {
				m := nats.NewMsg("infer.req.echo.std.me")
				m.Header.Set(nats.MsgIdHdr, fmt.Sprintf("soak%08d", i))
				if err := conn.NATS().PublishMsg(m); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-finished:
			case <-time.After(3 * time.Minute):
				t.Fatalf("%d of %d were delivered", done.Load(), requests)
			}
			w.stop()
			if st := w.intake.Stats(); st.Delivered != uint64(requests) || st.Redelivered != 0 {
				t.Errorf("%+v", st)
			}
			// A poll that is lost in the library is asked again after its heartbeats, at
			// least 10 s later with the library's own puller.
			if longest > 8*time.Second {
				t.Errorf("a pause of %v", longest)
			}
		})
	}
}
