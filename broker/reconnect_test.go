package broker_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// countingDialer counts the attempts to connect.
type countingDialer struct{ dials atomic.Int64 }

func (d *countingDialer) Dial(network, address string) (net.Conn, error) {
	d.dials.Add(1)
	return net.DialTimeout(network, address, time.Second)
}

// TestNobodyGivesUpReconnecting keeps a server away for far more attempts to
// reconnect than the library makes by default, sixty, after which it closes a
// connection for good. A worker's frames meanwhile fail, which it can see; kept
// for later they would be sent when nobody waits for them.
func TestNobodyGivesUpReconnecting(t *testing.T) {
	t.Parallel()
	cfg := broker.ServerConfig{DataDir: t.TempDir(), Port: freePort(t)}
	server, err := broker.StartServer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown() })
	var client, worker countingDialer
	fast := func(d *countingDialer) []nats.Option {
		return []nats.Option{nats.SetCustomDialer(d), nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0)}
	}
	nc, err := broker.Dial(t.Context(), server.URL(), "test", nil, fast(&client)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	conn, err := broker.Connect(t.Context(), broker.Config{URL: server.URL(), Options: fast(&worker)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	server.Shutdown()
	eventually(t, "many attempts", func() bool { return client.dials.Load() > 200 && worker.dials.Load() > 200 })
	if err := conn.NATS().Publish("infer.out.me.abcdefgh", []byte("x")); err == nil {
		t.Error("a worker's frame is kept until the server is back")
	}
	if server, err = broker.StartServer(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are back", func() bool { return nc.IsConnected() && conn.Connected() })
}

// deafDialer makes connections that can go deaf: what is sent goes out, and
// what the server says is lost until the connection ends.
type deafDialer struct {
	deaf  atomic.Bool
	conns chan net.Conn
}

func (d *deafDialer) Dial(network, address string) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, time.Second)
	if err == nil {
		d.conns <- c
		c = &deafConn{Conn: c, deaf: &d.deaf}
	}
	return c, err
}

type deafConn struct {
	net.Conn
	deaf *atomic.Bool
}

func (c *deafConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.deaf.Load() {
			return n, err
		}
	}
}

// TestAnswerLostWithItsConnection has a server fall silent to a client, and
// drop it when the request is answered and settled: the final is read back.
func TestAnswerLostWithItsConnection(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	echo, served := keepingEcho(t, conn), make(chan struct{}, 8)
	startWorker(t, conn, []string{"echo"}, 4, func(d *broker.Delivery, s *broker.TokenStream) {
		echo(d, s)
		served <- struct{}{}
	})
	d := &deafDialer{conns: make(chan net.Conn, 8)}
	nc, err := broker.Dial(t.Context(), server.URL(), "test", nil, nats.SetCustomDialer(d))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c, err := broker.NewClient(nc, broker.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil { // the server knows of its subscriptions
		t.Fatal(err)
	}
	d.deaf.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	s, err := c.Request(ctx, "echo", broker.RequestOptions{Input: broker.Input{Text: "abc"}})
	if err != nil {
		t.Fatal(err)
	}
	<-served
	if err := conn.NATS().Flush(); err != nil { // the server has sent the frames
		t.Fatal(err)
	}
	if err := (<-d.conns).Close(); err != nil {
		t.Fatal(err)
	}
	d.deaf.Store(false)
	if text, f := read(t, s); text != "abc" || f.Text != "abc" {
		t.Errorf("streamed %q, final %+v", text, f)
	}
}
