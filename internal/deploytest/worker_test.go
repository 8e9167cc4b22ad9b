package deploytest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/worker"
	"github.com/nats-io/nats.go"
	"sigs.k8s.io/yaml"
)

// patience bounds every wait of a test.
const patience = 30 * time.Second

// observed runs a worker, sends it requests of every bundled model, and returns
// what it exposes before and after, as scraped at times that are made up, and the
// time of the last scrape. The scrapes before reach back farther than any range
// that a rule looks at.
func observed(t *testing.T) (*memory, time.Time) {
	t.Helper()
	server := brokertest.Server(t)
	w := started(t, server)
	m, at := newMemory(), time.Unix(1_700_000_000, 0)
	const instance = "worker-a:9464"
	for range 35 {
		m.scrape(t, scraped(t, w), instance, at)
		at = at.Add(time.Minute)
	}
	for range 3 { // counters with labels begin with their first event: a rate needs more
		traffic(t, server)
		m.scrape(t, scraped(t, w), instance, at)
		at = at.Add(time.Minute)
	}
	return m, at.Add(-time.Minute)
}

// started runs a worker with these models, or all, until the test ends.
func started(t *testing.T, server *broker.Server, models ...string) *worker.Worker {
	t.Helper()
	cfg := worker.DefaultConfig()
	cfg.NatsURL, cfg.AdminAddress = server.URL(), "127.0.0.1:0"
	cfg.Profile, cfg.CacheDir, cfg.Models = 0, t.TempDir(), models
	w, err := worker.New(cfg, worker.Deps{Version: "1.2.3"})
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
	select {
	case <-w.Ready():
	case <-time.After(patience):
		t.Fatal("worker is not ready")
	}
	return w
}

// traffic sends requests that are served, on both paths, and one that is refused.
func traffic(t *testing.T, server *broker.Server) {
	t.Helper()
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	client, err := broker.NewClient(nc, broker.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	none := 0
	for _, r := range []struct {
		model, text string
		params      broker.Params
		realtime    bool
		refused     bool
	}{
		{model: "g2p-en", text: "cellular batching"},
		{model: "g2p-en", text: "queue", realtime: true},
		{model: "kjv-lm", text: "In the beginning"},
		{model: "langid", text: "Todos los seres humanos"},
		{model: "listops", text: "( ( ( [MAX 2 ) 9 ) ] )"},
		{model: "g2p-en", text: "refused", params: broker.Params{MaxTokens: &none}, refused: true},
	} {
		times := 2 // of all requests fewer are refused than an alert bears
		if r.refused {
			times = 1
		}
		for range times {
			send(ctx, t, client, r.model, broker.RequestOptions{
				Input: broker.Input{Text: r.text}, Params: r.params, Realtime: r.realtime,
			}, r.refused)
		}
	}
}

// send sends a request and waits for its answer.
func send(ctx context.Context, t *testing.T, client *broker.Client, model string, o broker.RequestOptions, refused bool) {
	t.Helper()
	s, err := client.Request(ctx, model, o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Final()
	if refusal := new(broker.Error); refused && !errors.As(err, &refusal) || !refused && err != nil {
		t.Fatalf("%s %q: %v", model, o.Input.Text, err)
	}
}

// scraped returns what the worker exposes.
func scraped(t *testing.T, w *worker.Worker) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.AdminAddress()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("/metrics: %s, %v", resp.Status, err)
	}
	return body
}

// decode reads YAML. Unknown fields are ignored.
func decode(t *testing.T, name string, content []byte, into any) {
	t.Helper()
	if err := yaml.Unmarshal(content, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
