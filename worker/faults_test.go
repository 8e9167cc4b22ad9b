package worker_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// faulty is a server with two workers to which faults happen.
type faulty struct {
	cfg     broker.ServerConfig
	server  *broker.Server
	gates   []*gate
	workers []*started
	nc      *nats.Conn
	out     *nats.Subscription
	seen    map[string][]broker.Frame // terminal frames, by id
}

// faultyRequests is how many requests a test with faults has.
const faultyRequests = 24

// restart stops the server and starts it again.
func (f *faulty) restart(t *testing.T) {
	t.Helper()
	if f.server != nil {
		f.server.Shutdown()
	}
	s, err := broker.StartServer(t.Context(), f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.server = s
}

// TestEveryRequestEndsOnce lets a fault happen while requests run, and then
// wants the same of each: one terminal frame for its client, or the same one
// again, with the tokens of a calm run, one stored final, and nothing left of it.
func TestEveryRequestEndsOnce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		fault func(*testing.T, *faulty)
		// dropped: what was stored before the fault is gone.
		dropped bool
	}{
		{"calm", func(*testing.T, *faulty) {}, false},
		{"consumer deleted", func(t *testing.T, f *faulty) {
			t.Helper()
			f.js(t, "$JS.API.CONSUMER.DELETE.INFER.endless_std")
		}, false},
		{"stores deleted", func(t *testing.T, f *faulty) {
			t.Helper()
			for _, s := range []string{"FINAL", "STATE", "DLQ", "OUT", "ADVISORY"} {
				f.js(t, "$JS.API.STREAM.DELETE.INFER_"+s)
			}
		}, true},
		{"server restarted", func(t *testing.T, f *faulty) {
			t.Helper()
			f.restart(t)
		}, false},
		{"server restarted twice", func(t *testing.T, f *faulty) {
			t.Helper()
			f.restart(t)
			eventually(t, "clients are back", func() bool { return f.nc.FlushTimeout(time.Second) == nil })
			f.restart(t)
		}, false},
		{"loop hangs", func(t *testing.T, f *faulty) {
			t.Helper()
			f.gates[0].hang(true)
			defer f.gates[0].hang(false)
			eventually(t, "its leases run out", func() bool { status, _ := get(t, f.workers[0], "/readyz"); return status != 200 })
			eventually(t, "the other one takes over", func() bool { f.pump(t); return len(f.seen) == faultyRequests })
		}, false},
		{"worker handed back", func(t *testing.T, f *faulty) {
			t.Helper()
			f.workers[0].stop()
			f.workers[0].HandBack()
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := startFaulty(t)
			calm := f.calm(t)
			f.publish(t)
			for len(f.seen) < 3 {
				f.pump(t)
			}
			tc.fault(t, f)
			eventually(t, "all end", func() bool { f.pump(t); return len(f.seen) == faultyRequests })
			queued(t, f.nc, 0)
			f.check(t, calm, tc.dropped)
		})
	}
}

func startFaulty(t *testing.T) *faulty {
	t.Helper()
	f := &faulty{cfg: broker.ServerConfig{DataDir: t.TempDir(), Port: freePort(t)}, seen: map[string][]broker.Frame{}}
	f.restart(t)
	t.Cleanup(func() { f.server.Shutdown() })
	for range 2 {
		g := newGate()
		f.gates = append(f.gates, g)
		f.workers = append(f.workers, start(t, f.server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: g}, func(c *worker.Config) {
			c.Slots, c.AckWait = 3, 1500*time.Millisecond
		}))
	}
	nc, err := nats.Connect(f.server.URL(), nats.ReconnectWait(20*time.Millisecond), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	f.nc = nc
	return f
}

// calm returns the tokens of the longest request, of which those of the others
// are the beginning.
func (f *faulty) calm(t *testing.T) []int32 {
	t.Helper()
	out := subscribe(t, f.nc, nats.NewInbox())
	publish(t, f.nc, "infer.rt.endless", out.Subject, fmt.Appendf(nil, `{"input": [3], "max_tokens": %d}`, 20*faultyRequests))
	return lastFrame(t, out).Tokens
}

// publish sends the requests, and follows their steps at a pace from then on.
func (f *faulty) publish(t *testing.T) {
	t.Helper()
	out, err := f.nc.SubscribeSync("infer.out.me.*")
	if err != nil {
		t.Fatal(err)
	}
	f.out = out
	for _, g := range f.gates {
		g.pace(t)
	}
	for i := range faultyRequests {
		publish(t, f.nc, "infer.req.endless.std.me", "", fmt.Appendf(nil, `{"input": [3], "max_tokens": %d}`, 20*(i+1)), "Nats-Msg-Id", fmt.Sprintf("request%03d", i+1))
	}
	if err := f.nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// pump takes a frame, if there is one.
func (f *faulty) pump(t *testing.T) {
	t.Helper()
	m, err := f.out.NextMsg(20 * time.Millisecond)
	if errors.Is(err, nats.ErrTimeout) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if isPubAck(m.Data) {
		return
	}
	frame, err := broker.DecodeFrame(m.Data)
	if err != nil {
		t.Fatal(err)
	}
	if frame.Type.Terminal() {
		f.seen[frame.ID] = append(f.seen[frame.ID], frame)
	}
}

func (f *faulty) js(t *testing.T, subject string) {
	t.Helper()
	var answer struct{ Error any }
	if ask(t, f.nc, subject, &answer); answer.Error != nil {
		t.Fatalf("%s: %v", subject, answer.Error)
	}
}

func (f *faulty) check(t *testing.T, calm []int32, dropped bool) {
	t.Helper()
	for id, frames := range f.seen {
		var i int
		if _, err := fmt.Sscanf(id, "request%d", &i); err != nil {
			t.Fatal(err)
		}
		for _, frame := range frames {
			if frame.Type != broker.FrameFinal || frame.Final.FinishReason != broker.FinishLength || !slices.Equal(frame.Tokens, calm[:20*i]) {
				t.Errorf("%s of attempt %d: %s, %d tokens, error %v", id, frame.Attempt, frame.Type, len(frame.Tokens), frame.Error)
			}
		}
	}
	finals := messages(t, f.nc, "INFER_FINAL")
	if finals > faultyRequests || !dropped && finals != len(f.seen) {
		t.Errorf("%d finals of %d requests", finals, len(f.seen))
	}
	if n := messages(t, f.nc, "INFER_DLQ"); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	for _, w := range f.workers {
		eventually(t, "nothing is left", func() bool { return w.Running() == 0 && w.Stats().Running == 0 })
	}
}
