package brokertest

import (
	"testing"

	"github.com/cellmq/cellmq/broker"
)

// Server starts a server that stops when the test ends.
func Server(tb testing.TB) *broker.Server {
	tb.Helper()
	s, err := broker.StartServer(tb.Context(), broker.ServerConfig{DataDir: tb.TempDir(), Port: broker.PortRandom})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Shutdown)
	return s
}

// Connect connects to s; the connection is closed when the test ends. The
// fields of cfg other than URL and Server count.
func Connect(tb testing.TB, s *broker.Server, cfg broker.Config) *broker.Conn {
	tb.Helper()
	cfg.URL, cfg.Server = s.URL(), nil
	c, err := broker.Connect(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.NATS().Close() })
	return c
}
