package broker_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

func TestServerRefuses(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, text, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		cfg  broker.ServerConfig
		says string
	}{
		"port in use": {broker.ServerConfig{DataDir: t.TempDir(), Port: port}, "port " + text + " is not free"},
		"no dir":      {broker.ServerConfig{}, "data directory"},
		"port":        {broker.ServerConfig{DataDir: t.TempDir(), Port: 70000}, "port 70000"},
		"websocket":   {broker.ServerConfig{DataDir: t.TempDir(), WebSocketPort: 70000}, "websocket port 70000"},
		"taken":       {broker.ServerConfig{DataDir: t.TempDir(), WebSocketPort: port}, "port " + text + " is not free"},
		"file":        {broker.ServerConfig{DataDir: t.TempDir(), ConfigFile: "/none.conf"}, "/none.conf"},
		"dir":         {broker.ServerConfig{DataDir: "/dev/null/x", Port: broker.PortNone}, "/dev/null/x"},
	} {
		s, err := broker.StartServer(t.Context(), tt.cfg)
		if err == nil {
			s.Shutdown()
			t.Errorf("%s: started", name)
		} else if !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", name, err, tt.says)
		}
	}
}

// TestOneServerPerDirectory wants a second server to be refused while the first
// one runs, and only then.
func TestOneServerPerDirectory(t *testing.T) {
	t.Parallel()
	cfg := broker.ServerConfig{DataDir: filepath.Join(t.TempDir(), "new"), Port: broker.PortNone}
	for range 2 {
		first, err := broker.StartServer(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		second, err := broker.StartServer(t.Context(), cfg)
		if err == nil {
			second.Shutdown()
		}
		if want := "data directory " + cfg.DataDir + " is in use by another server"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("second server: %v, want %q", err, want)
		}
		first.Shutdown()
		first.Shutdown() // changes nothing
	}
}

func TestInProcessServer(t *testing.T) {
	t.Parallel()
	s, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), Port: broker.PortNone})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown()
	if s.URL() != "" {
		t.Errorf("url %q without a listener", s.URL())
	}
	conn, err := broker.Connect(t.Context(), broker.Config{Server: s})
	if err != nil {
		t.Fatal(err)
	}
	startWorker(t, conn, []string{"echo"}, 2, echo)
	c, err := broker.NewClient(conn.NATS(), broker.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: "in"}})
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := read(t, st); text != "in" {
		t.Errorf("streamed %q", text)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestConnectRefuses(t *testing.T) {
	t.Parallel()
	plain, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	plain.Start()
	defer plain.WaitForShutdown()
	defer plain.Shutdown()
	eventually(t, "server is up", func() bool { return plain.Addr() != nil })
	if _, err := broker.Connect(t.Context(), broker.Config{URL: plain.ClientURL()}); !errors.Is(err, broker.ErrNoJetStream) {
		t.Errorf("without jetstream: %v", err)
	}
	if _, err := broker.Connect(t.Context(), broker.Config{URL: "nats://127.0.0.1:" + strconv.Itoa(freePort(t))}); !errors.Is(err, nats.ErrNoServers) {
		t.Errorf("without a server: %v", err)
	}
	_, err = broker.Connect(t.Context(), broker.Config{Prefix: "a.*", MaxPayload: -1, LeaseMargin: 1 << 60})
	for _, name := range []string{"prefix", "max payload -1", "lease margin"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("bad configuration: %v does not name %s", err, name)
		}
	}
}

// TestEnsureTogether has many workers ensure different models at once.
func TestEnsureTogether(t *testing.T) {
	t.Parallel()
	s := brokertest.Server(t)
	models := []string{"a", "b", "c", "d", "e", "f"}
	conns := make([]*broker.Conn, len(models))
	for i := range models {
		conns[i] = brokertest.Connect(t, s, broker.Config{})
	}
	for _, ensure := range []func(*broker.Conn, context.Context, []string) error{
		(*broker.Conn).EnsureStreams, (*broker.Conn).EnsureStreams, // again changes nothing
		(*broker.Conn).EnsureConsumers, (*broker.Conn).EnsureConsumers,
	} {
		var all sync.WaitGroup
		for i, m := range models {
			all.Go(func() {
				if err := ensure(conns[i], t.Context(), []string{m}); err != nil {
					t.Errorf("model %s: %v", m, err)
				}
			})
		}
		all.Wait()
	}
	js, err := brokertest.Connect(t, s, broker.Config{}).NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.StreamInfo("INFER")
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Config.Subjects) != 3*len(models) || info.State.Consumers != 3*len(models) {
		t.Errorf("subjects %v, %d consumers", info.Config.Subjects, info.State.Consumers)
	}
}

func TestCredits(t *testing.T) {
	t.Parallel()
	c := broker.NewCredits(3)
	if n := c.TryTake(2); n != 2 || c.Free() != 1 {
		t.Errorf("took %d, %d free", n, c.Free())
	}
	if n := c.TryTake(5); n != 1 {
		t.Errorf("took %d of 1", n)
	}
	if n := c.TryTake(1) + c.TryTake(0) + c.TryTake(-1); n != 0 {
		t.Errorf("took %d of 0", n)
	}
	c.Add(-2)
	c.Release(3)
	if n := c.Free(); n != 1 {
		t.Errorf("%d free in a pool of 1", n)
	}
}
