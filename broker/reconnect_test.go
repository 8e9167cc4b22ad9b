package broker_test

import (
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
