package worker

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/zoo"
)

// TestPanicWhileUnfolding wants a panic of a model that reads its input to end
// that request with internal, and to touch nothing else: neither a request
// that runs nor those that follow, on either path.
func TestPanicWhileUnfolding(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	w, server := startBroken(t, &log, "langid", "kjv-lm")
	nc := brokertest.Connect(t, server, broker.Config{}).NATS()
	replies, err := nc.SubscribeSync("infer.out.me.*")
	if err != nil {
		t.Fatal(err)
	}
	// This one runs meanwhile: it has so many tokens to write.
	ask(t, nc, "infer.rt.kjv-lm", "bystander1", `{"input": "In the beginning", "max_tokens": 256}`)
	if f := next(t, replies); f.Type != broker.FrameAccepted {
		t.Fatalf("frame %+v", f)
	}
	ask(t, nc, "infer.rt.langid", "realtime01", "a secret text")
	ask(t, nc, "infer.req.langid.std.me", "durable001", "a secret text")
	ask(t, nc, "infer.req.kjv-lm.std.me", "follower01", `{"input": "In the beginning", "max_tokens": 256}`)
	terminal, frames := map[string]broker.Frame{}, map[string]int{}
	for len(terminal) < 4 {
		f := next(t, replies)
		if frames[f.ID]++; f.Type.Terminal() {
			terminal[f.ID] = f
		}
	}
	for _, id := range []string{"realtime01", "durable001"} {
		if e := terminal[id].Error; e == nil || e.Code != broker.CodeInternal || e.Retryable || frames[id] != 1 {
			t.Errorf("%s ended with %+v, error %v, after %d frames", id, terminal[id], e, frames[id])
		}
	}
	one, other := terminal["bystander1"], terminal["follower01"]
	if one.Final == nil || other.Final == nil || len(one.Tokens) != 256 || one.Text != other.Text || one.Final.LogProb != other.Final.LogProb {
		t.Errorf("beside it %q %v, after it %q %v", one.Text, one.Error, other.Text, other.Error)
	}
	if text := log.String(); strings.Count(text, "unfolding panicked") != 2 || !strings.Contains(text, "durable001") || strings.Contains(text, "secret") {
		t.Errorf("log %s", text)
	}
	until(t, "all leave", func() bool { return w.Running() == 0 && w.realtime.Free() == w.cfg.realtimeSlots() })
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for wait := time.After(30 * time.Second); !condition(); {
		select {
		case <-tick.C:
		case <-wait:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// startBroken runs a worker with two bundled models, whose golden outputs it
// does not check, until the test ends. The first panics whenever it unfolds: it
// has lost its family.
func startBroken(t *testing.T, log *lockedBuffer, broken, sound string) (*Worker, *broker.Server) {
	t.Helper()
	server := brokertest.Server(t)
	w := startBundled(t, server, log, broken, sound)
	until(t, "it serves", func() bool { return strings.Contains(log.String(), "msg=serving") }) // nobody reads served now
	l, ok := w.versions.Acquire(w.own[broken])
	if !ok {
		t.Fatal("the model is not in memory")
	}
	l.Model = &models.Model{}
	w.versions.Release(w.own[broken])
	return w, server
}

// startBundled runs a worker with bundled models, whose golden outputs it does not check,
// until the test ends.
func startBundled(t *testing.T, server *broker.Server, log *lockedBuffer, names ...string) *Worker {
	t.Helper()
	var found []*models.Model
	for _, name := range names {
		files, err := zoo.FS(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := models.Load(goldenless{files}, name)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, m)
	}
	cfg := DefaultConfig()
	cfg.NatsURL, cfg.AdminAddress, cfg.Profile, cfg.Grace = server.URL(), "", 0, 0
	w, err := New(cfg, Deps{Models: found, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("worker ended with %v", err)
		}
	})
	return w
}

// goldenless is a model's directory without its golden outputs.
type goldenless struct{ fs.FS }

func (g goldenless) Open(name string) (fs.File, error) {
	if name == "golden.jsonl" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return g.FS.Open(name)
}

func (g goldenless) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(g.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "golden.jsonl" }), err
}

// lockedBuffer is a buffer that several goroutines may write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func ask(t *testing.T, nc *nats.Conn, subject, id, payload string) {
	t.Helper()
	m := &nats.Msg{Subject: subject, Data: []byte(payload), Header: nats.Header{"Nats-Msg-Id": {id}}}
	if strings.HasPrefix(subject, "infer.rt.") {
		m.Reply = "infer.out.me." + id
	}
	if err := nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
}

func next(t *testing.T, sub *nats.Subscription) broker.Frame {
	t.Helper()
	m, err := sub.NextMsg(30 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	f, err := broker.DecodeFrame(m.Data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
