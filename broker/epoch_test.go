package broker_test

import (
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// TestEpochOutlivesTheServer restarts the server between two attempts of a
// request. The first connection after the restart sees attempt 1, the second
// attempt 2: their epochs have to be the one from before, or a client drops
// what the later attempt says.
func TestEpochOutlivesTheServer(t *testing.T) {
	t.Parallel()
	cfg := broker.ServerConfig{DataDir: t.TempDir(), Port: freePort(t)}
	server, err := broker.StartServer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown() })
	models := []string{"echo"}
	connect := func() *broker.Conn {
		t.Helper()
		conn, err := broker.Connect(t.Context(), broker.Config{URL: server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.NATS().Close)
		return conn
	}
	leases := make(chan *broker.Lease, 4)
	ask := func(text string) *broker.Stream {
		t.Helper()
		s, err := newClient(t, server, broker.ClientConfig{}).Request(t.Context(), "echo", broker.RequestOptions{
			Input: broker.Input{Text: text}, Deadline: time.Now().Add(15 * time.Second),
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	note := func(d *broker.Delivery, s *broker.TokenStream) {
		leases <- d.Lease
		echo(d, s)
	}
	before := connect()
	w := startWorker(t, before, models, 2, note)
	read(t, ask("before"))
	w.stop()
	want := (<-leases).Epoch
	before.NATS().Close()
	server.Shutdown()
	<-time.After(5 * time.Millisecond) // a recovery in the same millisecond would look right
	if server, err = broker.StartServer(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}

	first, second := connect(), connect()
	released := make(chan struct{})
	w = startWorker(t, first, models, 2, func(d *broker.Delivery, s *broker.TokenStream) {
		leases <- d.Lease
		_ = s.Token(&broker.Frame{Text: "a", Tokens: []int32{'a'}})
		_ = s.Retry()
		_ = d.Lease.Release(300 * time.Millisecond) // time for this worker to leave
		d.Done()
		close(released)
	})
	s := ask("after")
	<-released
	w.stop()
	startWorker(t, second, models, 2, note)
	if text, f := read(t, s); text != "after" || f.Text != "after" || f.Attempt != 2 {
		t.Errorf("streamed %q, final %q of attempt %d", text, f.Text, f.Attempt)
	}
	for attempt := uint64(1); attempt <= 2; attempt++ {
		if l := <-leases; l.Epoch != want || l.Attempt != attempt {
			t.Errorf("attempt %d has epoch %d, %d before the restart; wanted attempt %d", l.Attempt, l.Epoch, want, attempt)
		}
	}
}
