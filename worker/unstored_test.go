package worker_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/worker"
)

// TestFinalThatCannotBeStored takes the place of finals away in several ways.
// More requests than the worker has slots are answered all the same, each once,
// and counted.
func TestFinalThatCannotBeStored(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		secure bool
		spoil  func(*testing.T, jetstream.JetStream)
	}{
		{"not permitted", true, func(*testing.T, jetstream.JetStream) {}},
		{"full", false, fillFinals},
		{"taken by a stream that does not answer", false, func(t *testing.T, js jetstream.JetStream) {
			t.Helper()
			take(t, js, "INFER_FINAL", "infer.final.>")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server, keys := newServerThatForbids(t, tc.secure, "infer.final.>")
			w := start(t, server, worker.Deps{}, func(c *worker.Config) {
				c.AckWait, c.Slots, c.NatsNkey = time.Second, 2, keys.worker
			})
			nc, err := nats.Connect(server.URL(), keys.client...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			if js, err := jetstream.New(nc); err != nil {
				t.Fatal(err)
			} else {
				tc.spoil(t, js)
			}
			out := subscribe(t, nc, "infer.out.c1.*")
			const requests = 6
			for i := range requests {
				publish(t, nc, "infer.req.g2p-en.std.c1", "", []byte(`{"input":"hello"}`), "Nats-Msg-Id", fmt.Sprintf("unstored%d", i))
			}
			seen := map[string]int{}
			for len(seen) < requests {
				f := lastFrame(t, out)
				if seen[f.ID]++; f.Type != broker.FrameFinal || seen[f.ID] > 1 {
					t.Errorf("frame %+v, number %d of its request", f, seen[f.ID])
				}
			}
			eventually(t, "all leave", func() bool { return w.Running() == 0 })
			if n := metric(t, w, "cellmq_unstored_finals_total"); n != requests {
				t.Errorf("%v counted", n)
			}
		})
	}
}

// fillFinals makes the stream of finals refuse what comes.
func fillFinals(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	s, err := js.Stream(t.Context(), "INFER_FINAL")
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.Discard, c.MaxMsgs = jetstream.DiscardNew, 1
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "infer.final.x.yyyyyyyyy", []byte("x")); err != nil {
		t.Fatal(err)
	}
}

// userKeys are the key file of a worker and what a client connects with.
type userKeys struct {
	worker string
	client []nats.Option
}

// newServerThatForbids returns a server, which, if secure, has users, and whose
// worker may not publish to a subject.
func newServerThatForbids(t *testing.T, secure bool, subject string) (*broker.Server, userKeys) {
	t.Helper()
	if !secure {
		return newServer(t), userKeys{}
	}
	s := brokertest.SecureConfig(t)
	b, err := os.ReadFile(s.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	spoiled := regexp.MustCompile(`,\s*`+regexp.QuoteMeta(strconv.Quote(subject))).ReplaceAllString(string(b), "")
	if spoiled == string(b) {
		t.Fatalf("the configuration permits no %s", subject)
	}
	if err := os.WriteFile(s.ConfigFile, []byte(spoiled), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), ConfigFile: s.ConfigFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return server, userKeys{s.Seeds["worker"], []nats.Option{s.Key(t, "c1")}}
}
