package worker_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/worker"
)

// reuse publishes a request under an id that is taken, as soon as the server
// takes it again; header pairs may follow.
func reuse(t *testing.T, js jetstream.JetStream, id string, payload []byte, header ...string) {
	t.Helper()
	m := &nats.Msg{Subject: "infer.req.g2p-en.std.me", Data: payload, Header: nats.Header{"Nats-Msg-Id": {id}}}
	for i := 0; i < len(header); i += 2 {
		m.Header.Set(header[i], header[i+1])
	}
	eventually(t, "the id may be used", func() bool {
		ack, err := js.PublishMsg(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		return !ack.Duplicate
	})
}

// shortWindow makes the server forget the ids of requests soon.
func shortWindow(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	s, err := js.Stream(t.Context(), "INFER")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Duplicates = 100 * time.Millisecond
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// TestSameRequestAfterTheWindow publishes a request twice, the second time when
// the server has forgotten the id. Both are at their first attempt, on one worker,
// and yet the stored answer is the first one's, not the second's own.
func TestSameRequestAfterTheWindow(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	w := start(t, server, worker.Deps{}, nil)
	nc := connect(t, server)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	shortWindow(t, js)
	out := subscribe(t, nc, "infer.out.me.*")
	for range 2 {
		reuse(t, js, "usedagain1", []byte(`{"input":"hello"}`))
		if f := lastFrame(t, out); f.Type != broker.FrameFinal {
			t.Fatalf("frame %+v", f)
		}
	}
	queued(t, nc, 0)
	eventually(t, "both leave", func() bool { return w.Running() == 0 })
	if n := metric(t, w, "cellmq_fenced_total"); n != 1 {
		t.Errorf("%v fenced", n)
	}
	if n := metric(t, w, `cellmq_requests_total{model="g2p-en",outcome="replayed"}`); n != 1 {
		t.Errorf("%v repeated", n)
	}
}

// TestUsedIDWithOtherHeaders publishes the payload of an answered request with
// headers that make it another one, and with some that do not.
func TestUsedIDWithOtherHeaders(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{}, nil)
	nc := connect(t, server)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	shortWindow(t, js)
	out := subscribe(t, nc, "infer.out.me.*")
	for _, tc := range []struct {
		name, value string
		code        broker.Code
	}{
		{"Content-Type", "application/json", ""},
		{"Content-Type", "text/plain", broker.CodeBadRequest},
		{"Infer-Mode", "final", ""},
		{"Infer-Version", "1", broker.CodeBadRequest},
	} {
		reuse(t, js, "samehash01", []byte(`{"input":"hello"}`), tc.name, tc.value)
		f := lastFrame(t, out)
		var code broker.Code
		if f.Error != nil {
			code = f.Error.Code
		}
		if code != tc.code {
			t.Errorf("%s %s: %+v, error %v", tc.name, tc.value, f, f.Error)
		}
	}
}
