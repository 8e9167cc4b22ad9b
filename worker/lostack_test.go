package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// newServerThatLosesAcks returns a server that drops every acknowledgement of the
// user mute, and the address of a user.
func newServerThatLosesAcks(t *testing.T) (server *broker.Server, as func(user string) string) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "nats.conf")
	users := `authorization { users = [
		{user: mute, password: pw, permissions: {publish: {deny: "$JS.ACK.>"}}},
		{user: other, password: pw}
	] }`
	if err := os.WriteFile(config, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), ConfigFile: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return server, func(user string) string { return strings.Replace(server.URL(), "//", "//"+user+":pw@", 1) }
}

// TestLostAcknowledgement loses the acknowledgements of a worker that has stored
// and sent its answers. The requests come again, to another worker, which sends
// the same answers and runs nothing.
func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	server, as := newServerThatLosesAcks(t)
	nc, err := nats.Connect(as("other"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	serve := worker.Deps{Models: []*models.Model{endless(t, "endless")}}
	first := start(t, server, serve, func(c *worker.Config) { c.NatsURL, c.AckWait = as("mute"), time.Second })
	out := subscribe(t, nc, "infer.out.me.*")
	const requests = 3
	answers := func() map[string]broker.Frame {
		got := map[string]broker.Frame{}
		for len(got) < requests {
			f := lastFrame(t, out)
			got[f.ID] = f
		}
		return got
	}
	for i := range requests {
		publish(t, nc, "infer.req.endless.std.me", "", fmt.Appendf(nil, `{"input": [%d], "max_tokens": 3}`, 3+i), "Nats-Msg-Id", fmt.Sprintf("answered%d", i))
	}
	before := answers()
	first.stop()
	first.wait(t)
	queued(t, nc, requests)
	second := start(t, server, serve, func(c *worker.Config) { c.NatsURL, c.AckWait = as("other"), time.Second })
	for id, f := range answers() {
		was := before[id]
		if f.Attempt <= was.Attempt || f.Type != broker.FrameFinal || f.Text != was.Text || len(f.Tokens) != 3 {
			t.Errorf("%s: first %+v, then %+v", id, was, f)
		}
	}
	queued(t, nc, 0)
	eventually(t, "they leave", func() bool { return second.Running() == 0 })
	if n := metric(t, second, `cellmq_requests_total{model="unknown",outcome="replayed"}`) +
		metric(t, second, `cellmq_requests_total{model="endless",outcome="replayed"}`); n != requests {
		t.Errorf("%v replayed", n)
	}
	if n := second.Stats().Tokens; n != 0 {
		t.Errorf("%d tokens computed again", n)
	}
	if n := messages(t, nc, "INFER_FINAL"); n != requests {
		t.Errorf("%d finals", n)
	}
}
