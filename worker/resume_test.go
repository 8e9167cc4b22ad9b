package worker_test

import (
	"strings"
	"testing"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/worker"
)

// TestResumeRunning has a second client of the same name come to a request that
// runs: it gets the output from its beginning, and the first one goes on without
// a repetition.
func TestResumeRunning(t *testing.T) {
	t.Parallel()
	w, nc, out := slow(t, nil)
	c, err := broker.NewClient(nc, broker.ClientConfig{Name: "me"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	s, err := c.Attach(t.Context(), "endless001", broker.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	tokens, frames := 0, 0
	for f, err := range s.Frames() {
		if err != nil {
			t.Fatal(err)
		}
		if f.Type == broker.FrameToken {
			if f.Index != tokens {
				t.Errorf("index %d after %d tokens", f.Index, tokens)
			}
			text.WriteString(f.Text)
			tokens += len(f.Tokens)
			frames++
		}
		if frames == 3 {
			frames++
			if state := cancel(t, nc, "me", "endless001"); state != "running" {
				t.Errorf("state %s", state)
			}
		}
		if f.Type == broker.FrameFinal && (f.Text != text.String() || len(f.Tokens) != tokens) {
			t.Errorf("%d tokens streamed, the final has %d", tokens, len(f.Tokens))
		}
	}
	if final := lastFrame(t, out); final.Text != text.String() {
		t.Error("the client that sent it has another final")
	}
	eventually(t, "it leaves", func() bool { return w.Running() == 0 })
}

func TestControlOfOneWorker(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	w := start(t, server, worker.Deps{}, nil)
	nc := connect(t, server)
	for _, step := range []struct{ op, want string }{{"status", `"state":"serving"`}, {"drain", `"state":"draining"`}} {
		m, err := nc.Request("infer.ctl."+w.Name(), []byte(`{"op":"`+step.op+`"}`), patience)
		if err != nil || !strings.Contains(string(m.Data), step.want) || !strings.Contains(string(m.Data), `"slots":`) {
			t.Fatalf("%s: %v, %s", step.op, err, m.Data)
		}
	}
	w.wait(t)
}
