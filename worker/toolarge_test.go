package worker_test

import (
	"testing"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// TestFinalTooLargeForTheStore has an output that no message of the server takes,
// or none of the stream of finals: its client is told, that answer is the one that
// is stored, once, and smaller requests are served.
func TestFinalTooLargeForTheStore(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name              string
		payload, ofFinals int // bytes, 0 is the default
	}{
		{"the server's limit", 8 << 10, 0},
		{"the stream's limit", 0, 8 << 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), MaxPayload: tc.payload})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Shutdown)
			w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}}, func(c *worker.Config) { c.Slots = 1 })
			nc := connect(t, server)
			js, err := nc.JetStream()
			if err != nil {
				t.Fatal(err)
			}
			if tc.ofFinals > 0 {
				info, err := js.StreamInfo("INFER_FINAL")
				if err != nil {
					t.Fatal(err)
				}
				info.Config.MaxMsgSize = int32(tc.ofFinals)
				if _, err := js.UpdateStream(&info.Config); err != nil {
					t.Fatal(err)
				}
			}
			out := subscribe(t, nc, "infer.out.me.*")
			publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 3000}`), "Nats-Msg-Id", "toolarge1")
			publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [4], "max_tokens": 3}`), "Nats-Msg-Id", "following1")
			if f := lastFrame(t, out); f.ID != "toolarge1" || f.Error == nil || f.Error.Code != broker.CodeInternal {
				t.Errorf("frame %s of %s with %d tokens, error %v", f.Type, f.ID, len(f.Tokens), f.Error)
			}
			if f := lastFrame(t, out); f.ID != "following1" || len(f.Tokens) != 3 {
				t.Errorf("the next request: %+v", f)
			}
			queued(t, nc, 0)
			eventually(t, "both leave", func() bool { return w.Running() == 0 })
			stored, err := brokerConn(t, server).Final(t.Context(), "me", "toolarge1")
			if err != nil {
				t.Fatal(err)
			}
			if f, err := broker.DecodeFrame(stored.Frame); err != nil || f.Error == nil || f.Error.Code != broker.CodeInternal {
				t.Errorf("stored %q, %v", stored.Frame, err)
			}
			if n := messages(t, nc, "INFER_FINAL"); n != 2 {
				t.Errorf("%d finals", n)
			}
			if n := messages(t, nc, "INFER_DLQ"); n != 1 {
				t.Errorf("%d letters", n)
			}
			if n := metric(t, w, "cellmq_unstored_finals_total"); n != 0 {
				t.Errorf("%v not stored", n)
			}
		})
	}
}
