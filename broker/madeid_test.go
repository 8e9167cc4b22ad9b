package broker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// queuedID publishes a request without an id and reads which it gets.
func queuedID(t *testing.T, conn *broker.Conn) string {
	t.Helper()
	if _, err := conn.NATS().Request("infer.req.echo.std.me", []byte("x"), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	return idOf(t, conn)
}

func idOf(t *testing.T, conn *broker.Conn) string {
	t.Helper()
	d, err := conn.Queued(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return d.Request.ID
}

// TestStreamMadeAgainHasOtherIDs deletes the queue: what is then the first
// request has another id than the first one before, and a letter of its own. All
// workers call one request the same, also after a restart of the server.
func TestStreamMadeAgainHasOtherIDs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve := func() (*broker.Server, *broker.Conn) {
		server, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: dir, Port: broker.PortRandom})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Shutdown)
		conn := brokertest.Connect(t, server, broker.Config{})
		ensure(t, conn)
		return server, conn
	}
	server, conn := serve()
	before := queuedID(t, conn)
	if !strings.HasPrefix(before, "s0000000001t") || !broker.ValidID(before) {
		t.Errorf("id %q", before)
	}
	if other := idOf(t, brokertest.Connect(t, server, broker.Config{})); other != before {
		t.Errorf("another worker says %q, not %q", other, before)
	}
	server.Shutdown()
	server, conn = serve()
	if again := idOf(t, conn); again != before {
		t.Errorf("after a restart %q, not %q", again, before)
	}
	letter := func() {
		l := &broker.Letter{Sequence: 1, Published: time.Unix(1, 0), Subject: "infer.req.echo.std.me", ID: idOf(t, conn), Model: "echo", Code: broker.CodeInternal}
		if err := conn.WriteLetter(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	letter()
	letter()
	deleteStream(t, conn, "INFER")
	ensure(t, conn)
	after := queuedID(t, conn)
	if after == before || !strings.HasPrefix(after, "s0000000001t") {
		t.Errorf("id %q after %q", after, before)
	}
	letter()
	letters, err := conn.Letters(t.Context(), "echo", 0, 10)
	if err != nil || len(letters) != 2 || letters[0].ID != before || letters[1].ID != after {
		t.Errorf("letters %+v, %v", letters, err)
	}
	// The receipt is enough to cancel it.
	store := finals(t, conn)
	s, err := conn.Serve(t.Context(), broker.ServiceConfig{
		Worker: "w", Finals: store, Cancel: func(string, string, uint64) broker.CancelState { return broker.CancelUnknown },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	out, err := nc.SubscribeSync("infer.out.me.*")
	if err != nil {
		t.Fatal(err)
	}
	m, err := nc.Request("infer.cancel.me", []byte(`{"id":"s0000000001"}`), 10*time.Second)
	if err != nil || !strings.Contains(string(m.Data), `"id":"s0000000001"`) || !strings.Contains(string(m.Data), `"queued"`) {
		t.Fatalf("cancel: %v, %s", err, m.Data)
	}
	if m, err := out.NextMsg(10 * time.Second); err != nil || m.Subject != "infer.out.me."+after {
		t.Errorf("final: %v, %+v", err, m)
	}
}

func ensure(t *testing.T, conn *broker.Conn) {
	t.Helper()
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	if err := conn.EnsureConsumers(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
}
