package worker_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker"
)

// launch runs a worker until the test ends, without waiting for it, and returns what
// ends it, what it ends with, and what asks whether it is ready.
func launch(t *testing.T, server *broker.Server, deps worker.Deps, change func(*worker.Config)) (w *worker.Worker, ended chan error, readyz func() string) {
	t.Helper()
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := worker.DefaultConfig()
	cfg.AdminAddress, cfg.NatsURL, cfg.Profile, cfg.CacheDir = free.Addr().String(), server.URL(), 0, t.TempDir()
	change(&cfg)
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	if w, err = worker.New(cfg, deps); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended = make(chan error, 1)
	over := make(chan struct{})
	go func() { defer close(over); ended <- w.Run(ctx) }()
	t.Cleanup(func() { w.HandBack(); stop(); <-over; http.DefaultClient.CloseIdleConnections() })
	return w, ended, func() string {
		resp, err := http.Get("http://" + cfg.AdminAddress + "/readyz") //nolint:noctx // the server is in this process
		if err != nil {
			return err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return string(b)
	}
}

// TestWaitsForWhatIsNamed names a model that is nowhere: the worker waits for it,
// through a registry that is not there yet and one that has other models, says so, and
// serves it when it is deployed.
func TestWaitsForWhatIsNamed(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	w, ended, readyz := launch(t, server, worker.Deps{}, func(c *worker.Config) { c.Models = []string{"later"} })
	eventually(t, "it says what it waits for", func() bool { return readyz() == "model later: not deployed yet\n" })
	s := newShop(t, server)
	s.pushLetters("later", "1")
	s.deploy("later", "1")
	select {
	case <-w.Ready():
	case err := <-ended:
		t.Fatalf("ended with %v", err)
	case <-time.After(patience):
		t.Fatal("not ready")
	}
	eventually(t, "it is ready", func() bool { return readyz() == "ok\n" })
	newBuyer(t, connect(t, server), "me").spell("req", "later", letters)
}

// TestServesBesideWhatIsNamed has one of two models that are named: it is served, and
// the worker is not ready before the other one is.
func TestServesBesideWhatIsNamed(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	s := newShop(t, server)
	w, _, readyz := launch(t, server, worker.Deps{}, func(c *worker.Config) { c.Models = []string{"listops", "later"} })
	<-w.Ready()
	if text := readyz(); text != "model later: not deployed yet\n" {
		t.Errorf("readyz says %q", text)
	}
	c := newBuyer(t, connect(t, server), "me")
	if f := c.ask("rt", "listops", "(MAX 1 2)", 1); !answeredByListops(f) {
		t.Errorf("listops: %+v", f)
	}
	s.push("later", "1", spelling(t, "1", "abc"))
	s.begin("later", "1", registry.Options{Canary: registry.Whole})
	eventually(t, "it is ready", func() bool { return readyz() == "ok\n" })
}

// answeredByListops reports whether a request with max_tokens was refused by what it
// went to: a model that answers with a label.
func answeredByListops(f broker.Frame) bool {
	return f.Error != nil && f.Error.Code == broker.CodeUnsupportedParameter
}

// TestLeavesWhileItWaits drains a worker that waits for its model.
func TestLeavesWhileItWaits(t *testing.T) {
	t.Parallel()
	w, ended, readyz := launch(t, newServer(t), worker.Deps{}, func(c *worker.Config) { c.Models = []string{"later"} })
	eventually(t, "it waits", func() bool { return strings.Contains(readyz(), "later") })
	w.Drain()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	ended <- nil
}

// TestNamesThatAreNowhere end the start when there is no registry that could have them.
func TestNamesThatAreNowhere(t *testing.T) {
	t.Parallel()
	_, ended, _ := launch(t, newServer(t), worker.Deps{}, func(c *worker.Config) {
		c.Models, c.Registry = []string{"listops", "later"}, false
	})
	if err := <-ended; !errors.Is(err, worker.ErrModel) || !strings.Contains(err.Error(), "later is neither bundled") {
		t.Errorf("ended with %v", err)
	}
}

// TestBudgetTooSmall has less memory than models take: those that an operator asked
// for end the start, with figures; bundled ones that nobody asked for are not offered,
// unless none fits.
func TestBudgetTooSmall(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		deps   worker.Deps
		change func(*worker.Config)
		says   string // "": it serves listops
	}{
		"named":   {change: func(c *worker.Config) { c.Models, c.ModelBytes = []string{"listops", "g2p-en"}, 6<<20 }, says: " of g2p-en: "},
		"given":   {deps: worker.Deps{Models: []*models.Model{speller(t, "own", "abc")}}, change: func(c *worker.Config) { c.ModelBytes = 1000 }, says: " of own: "},
		"bundled": {change: func(c *worker.Config) { c.ModelBytes = 6 << 20 }},
		"none":    {change: func(c *worker.Config) { c.ModelBytes = 1000 }, says: " bytes of 1000 (CELLMQ_MODEL_BYTES)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newServer(t)
			w, ended, readyz := launch(t, server, tc.deps, func(c *worker.Config) { c.Slots = 16; tc.change(c) })
			if tc.says == "" {
				select {
				case <-w.Ready():
				case err := <-ended:
					t.Fatalf("ended with %v", err)
				}
				if text := readyz(); text != "ok\n" {
					t.Errorf("readyz says %q", text)
				}
				c := newBuyer(t, connect(t, server), "me")
				if f := c.ask("rt", "listops", "(MAX 1 2)", 1); !answeredByListops(f) {
					t.Errorf("listops: %+v", f)
				}
				if f := c.ask("rt", "g2p-en", "a", 1); f.Type != "" {
					t.Errorf("g2p-en is served: %+v", f)
				}
				return
			}
			if err := <-ended; !errors.Is(err, worker.ErrModel) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "needs up to ") ||
				!strings.Contains(err.Error(), "CELLMQ_MODEL_BYTES") {
				t.Errorf("ended with %v", err)
			}
		})
	}
}
