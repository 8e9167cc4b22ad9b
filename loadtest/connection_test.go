package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/loadtest/internal/load"
)

// startServer starts a server on a port; -1: any.
func startServer(t *testing.T, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s
}

// TestConnectionLost wants a server that goes to be said at once, and that it came
// back; and nothing when the connection is closed.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	first := startServer(t, -1)
	url := first.ClientURL()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	read, write := io.Pipe()
	context.AfterFunc(ctx, func() { _ = write.Close() })
	lines := bufio.NewScanner(read)
	expect := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("%q, want %q", lines.Text(), want)
		}
	}
	outages := &load.Outages{}
	defer watchConnection(nc, outages, write)()
	port := first.Addr().(*net.TCPAddr).Port
	first.Shutdown()
	first.WaitForShutdown()
	expect("own connection was lost: ")
	startServer(t, port)
	expect("connected again, to " + url + ", after ")
	if down := outages.Restored(time.Now()); down != 0 {
		t.Errorf("the outage went on for %v", down)
	}
}

// TestClosingIsNoLoss wants nothing said of a connection that the load test closes.
func TestClosingIsNoLoss(t *testing.T) {
	t.Parallel()
	nc, err := nats.Connect(startServer(t, -1).ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	log, closed := &bytes.Buffer{}, make(chan struct{})
	watchConnection(nc, &load.Outages{}, log)()
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) }) // it is told last
	nc.Close()
	<-closed
	if log.Len() > 0 {
		t.Errorf("%s", log)
	}
}
