package worker_test

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/worker"
)

// ducks are two servers that know nothing of each other.
func ducks(t *testing.T) []*server.Server {
	t.Helper()
	var out []*server.Server
	for range 2 {
		s, err := server.NewServer(&server.Options{
			Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
			LameDuckGracePeriod: time.Hour, LameDuckDuration: 2 * time.Hour, // it would wait so long for the worker to leave
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		if !s.ReadyForConnections(patience) {
			t.Fatal("server does not start")
		}
		out = append(out, s)
	}
	return out
}

// TestLameDuck tells a worker that its server is about to stop: it serves at the
// other one, long before the first ends the connection.
func TestLameDuck(t *testing.T) {
	t.Parallel()
	servers := ducks(t)
	w := start(t, nil, worker.Deps{}, func(c *worker.Config) {
		c.NatsURL = servers[0].ClientURL() + "," + servers[1].ClientURL()
	})
	lame, other := servers[0], servers[1]
	if lame.NumClients() == 0 {
		lame, other = other, lame
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lame.LameDuckShutdown()
	}()
	nc, err := nats.Connect(other.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	out := subscribe(t, nc, "infer.out.me.*")
	// Nothing answers there until the worker has moved and made the streams anew.
	eventually(t, "a request is stored", func() bool {
		m, err := nc.Request("infer.req.g2p-en.std.me", []byte("hello"), time.Second)
		return err == nil && isPubAck(m.Data)
	})
	if f := lastFrame(t, out); f.Text != "HH EH1 L OW0" {
		t.Errorf("got %+v", f)
	}
	if !lame.Running() || lame.NumClients() != 0 {
		t.Errorf("the first server: running %v, %d clients", lame.Running(), lame.NumClients())
	}
	lame.Shutdown()
	<-done
	if status, body := get(t, w, "/readyz"); status != 200 {
		t.Errorf("not ready: %s", body)
	}
}

// TestLameDuckAlone has nowhere to go and goes on.
func TestLameDuckAlone(t *testing.T) {
	t.Parallel()
	lame := ducks(t)[0]
	nc, err := nats.Connect(lame.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	start(t, nil, worker.Deps{}, func(c *worker.Config) { c.NatsURL = lame.ClientURL() })
	told := make(chan struct{})
	duck, err := nats.Connect(lame.ClientURL(), nats.LameDuckModeHandler(func(*nats.Conn) { close(told) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(duck.Close)
	done := make(chan struct{})
	go func() {
		defer close(done)
		lame.LameDuckShutdown()
	}()
	<-told
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.g2p-en.std.me", "", []byte("hello"))
	if f := lastFrame(t, out); f.Text != "HH EH1 L OW0" {
		t.Errorf("got %+v", f)
	}
	lame.Shutdown()
	<-done
}

// TestReadinessWhileAway stops the server: the worker is alive and not ready
// until it is back.
func TestReadinessWhileAway(t *testing.T) {
	t.Parallel()
	cfg := broker.ServerConfig{DataDir: t.TempDir()}
	first, err := broker.StartServer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(first.Shutdown)
	w := start(t, first, worker.Deps{}, nil)
	address, err := url.Parse(first.URL())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Port, err = strconv.Atoi(address.Port()); err != nil {
		t.Fatal(err)
	}
	first.Shutdown()
	eventually(t, "the worker is not ready", func() bool {
		status, body := get(t, w, "/readyz")
		return status == 503 && strings.Contains(body, "not connected")
	})
	if status, _ := get(t, w, "/healthz"); status != 200 {
		t.Errorf("health %d while the server is away", status)
	}
	second, err := broker.StartServer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Shutdown)
	eventually(t, "the worker is ready again", func() bool { status, _ := get(t, w, "/readyz"); return status == 200 })
}

// TestRefusedForGood takes the worker's user away while it runs: the library
// gives such a connection up, and the worker ends with an error instead of
// waiting for nothing.
func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	opts := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
		Users: []*server.User{{Username: "w", Password: "before"}},
	}
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("server does not start")
	}
	cfg := worker.DefaultConfig()
	cfg.NatsURL = "nats://w:before@" + s.Addr().String()
	cfg.AdminAddress, cfg.Profile, cfg.Models = "", 0, []string{"g2p-en"}
	w, err := worker.New(cfg, worker.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	<-w.Ready()
	after := *opts
	after.Port = s.Addr().(*net.TCPAddr).Port
	after.Users = []*server.User{{Username: "w", Password: "after"}}
	if err := s.ReloadOptions(&after); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), "authorization violation") {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the worker does not end")
	}
}
