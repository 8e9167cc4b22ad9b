package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker"
)

// TestBudgetRotation asks ten models of a worker that has room for three of them
// beside its own: all answer, and never are more in memory than there is room for.
func TestBudgetRotation(t *testing.T) {
	t.Parallel()
	const models, clients, each, budget = 10, 4, 40, 640_000 // a speller of abc takes 149 kB
	server := newServer(t)
	w := startServing(t, server, func(cfg *worker.Config) { cfg.ModelBytes, cfg.ISA = budget, "purego" })
	s := newShop(t, server)
	for i := range models {
		name := fmt.Sprint("m", i)
		files := spelling(t, "1", string([]byte{'a', byte('b' + i), 'z'})) // equal weights would be shared
		s.push(name, "1", files)
		s.begin(name, "1", registry.Options{Canary: registry.Whole})
	}
	for i := range models {
		if d := s.settled(fmt.Sprint("m", i)); d.Active.Version != "1" {
			t.Fatalf("m%d: %s", i, d.Reason)
		}
	}
	nc := connect(t, server)
	probe := newBuyer(t, nc, "probe")
	for i := range models {
		eventually(t, "all are offered", func() bool { return probe.ask("rt", fmt.Sprint("m", i), "a", 1).Final != nil })
	}
	var group sync.WaitGroup
	for n := range clients {
		c := newBuyer(t, nc, fmt.Sprint("c", n))
		group.Go(func() {
			for i := range each {
				path := "req"
				if i%3 == 0 {
					path = "rt"
				}
				m := (n*7 + i*i + i/3) % models
				f := c.ask(path, fmt.Sprint("m", m), "a", 2)
				if f.Final == nil || f.Text != string([]byte{byte('b' + m), 'z'}) {
					t.Errorf("m%d wrote %q, %v", m, f.Text, f.Error)
				}
			}
		})
	}
	group.Wait()
	reports, err := s.Reports(t.Context())
	if err != nil || len(reports) != 1 {
		t.Fatalf("reports %v, %v", reports, err)
	}
	if r := reports[0]; r.MemoryBytes == 0 || r.MemoryBytes > budget || r.BudgetBytes != budget {
		t.Errorf("%d bytes of %d in use", r.MemoryBytes, r.BudgetBytes)
	}
	text := metrics(t, w)
	if strings.Contains(text, "cellmq_model_evictions_total 0\n") || strings.Contains(text, `result="failed"`) {
		t.Errorf("metrics: %s", regexp.MustCompile(`(?m)^cellmq_(model|deploy).*$`).FindAllString(text, -1))
	}
}

// TestResidentModelsAnswerBesideTheBlocked pins the models that fill the budget and
// asks for another one more often than the worker has slots: those that are there
// are served, and the blocked requests are served when there is room.
func TestResidentModelsAnswerBesideTheBlocked(t *testing.T) {
	t.Parallel()
	const budget, blocked = 340_000, 40 // two spellers
	server := newServer(t)
	startServing(t, server, func(cfg *worker.Config) { cfg.ModelBytes, cfg.ISA = budget, "purego" })
	s := newShop(t, server)
	for i := range 3 {
		name := fmt.Sprint("m", i)
		s.push(name, "1", spelling(t, "1", string([]byte{'a', byte('b' + i), 'z'})))
		s.deploy(name, "1")
	}
	nc := connect(t, server)
	c := newBuyer(t, nc, "me")
	pin := func(model string, on bool) {
		t.Helper()
		d, err := s.deployment(model).Pin(on)
		if err == nil {
			err = s.Write(t.Context(), d)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"m0", "m1"} {
		pin(name, true)
		s.reported(name, "1", "warm", "live")
	}
	waiting := newBuyer(t, nc, "waiting")
	for i := range blocked {
		id := fmt.Sprintf("waiting%05d", i)
		publish(t, nc, "infer.req.m2.std.waiting", "infer.out.waiting."+id, []byte(`{"input":"a","max_tokens":2}`), "Nats-Msg-Id", id)
	}
	for range 10 {
		for _, path := range []string{"req", "rt"} {
			if f := c.ask(path, "m0", "a", 2); f.Final == nil {
				t.Fatalf("a resident model answers %+v", f)
			}
		}
	}
	pin("m0", false)
	finals := map[string]bool{}
	for len(finals) < blocked {
		m, err := waiting.sub.NextMsg(patience)
		if err != nil {
			t.Fatalf("%d of %d blocked requests answered: %v", len(finals), blocked, err)
		}
		if isPubAck(m.Data) {
			continue
		}
		f, err := broker.DecodeFrame(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		if f.Type.Terminal() {
			if f.Final == nil {
				t.Errorf("%s: %+v", f.ID, f.Error)
			}
			finals[f.ID] = true
		}
	}
}

// TestRegistryAway takes the registry away: what serves goes on, and a registry
// that comes back counts.
func TestRegistryAway(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	startServing(t, server, nil)
	s := newShop(t, server)
	s.pushLetters("m", "1", "2")
	s.deploy("m", "1")
	c := newBuyer(t, connect(t, server), "me")
	eventually(t, "version 1 serves", func() bool { return c.ask("rt", "m", "a", 1).Final != nil })
	before := s.deployment("m")
	js, err := jetstream.New(s.nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []string{"KV_CELLMQ_MODELS", "OBJ_CELLMQ_MODELS", "KV_CELLMQ_WORKERS"} {
		if err := js.DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for range 10 {
			if v := c.spell("req", "m", letters); v != "1" {
				t.Errorf("version %q serves", v)
			}
			c.spell("rt", "own", letters)
		}
		if err := s.Ensure(t.Context()); err != nil { // an empty one is no order to stop
			t.Fatal(err)
		}
		s.reported("m", "1", "live")
	}
	s.pushLetters("m", "1", "2")
	d := *before
	d.Revision, d.Past = 0, nil
	if err := s.Write(t.Context(), &d); err != nil {
		t.Fatal(err)
	}
	s.deploy("m", "2")
	eventually(t, "version 2 serves", func() bool { return c.ask("rt", "m", "a", 1).Version == "2" })
}

// TestSeriesOfFreedVersionsGo deploys three versions: the first one gives way to
// the third, with its memory and its series.
func TestSeriesOfFreedVersionsGo(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	w := startServing(t, server, nil)
	s := newShop(t, server)
	s.pushLetters("m", "1", "2", "3")
	has := func(version string) bool {
		return regexp.MustCompile(`(?m)^cellmq_model_bytes\{.*model="m",version="` + version + `"\}`).MatchString(metrics(t, w))
	}
	for _, version := range []string{"1", "2", "3"} {
		s.deploy("m", version)
		if !has(version) {
			t.Errorf("version %s has no series: %s", version, regexp.MustCompile(`(?m)^cellmq_(model|deploy).*$`).FindAllString(metrics(t, w), -1))
		}
	}
	eventually(t, "version 1 has gone", func() bool { return !has("1") })
	if text := metrics(t, w); strings.Contains(text, s.ref("m", "1").Digest) {
		t.Error("version 1 still has series")
	}
}

// TestOldSecureConfigStillServes: a server whose permissions know nothing of the
// registry has workers that are ready and serve, without it.
func TestOldSecureConfigStillServes(t *testing.T) {
	t.Parallel()
	config := brokertest.SecureConfig(t)
	b, err := os.ReadFile(config.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	old := regexp.MustCompile(`(?m)^.*"[^"\n]*CELLMQ_(MODELS|WORKERS).*\n`).ReplaceAllString(string(b), "")
	if old == string(b) || strings.Count(old, "{") != strings.Count(old, "}") {
		t.Fatal("the configuration could not be made an old one")
	}
	if err := os.WriteFile(config.ConfigFile, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), ConfigFile: config.ConfigFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	w := startServing(t, server, func(cfg *worker.Config) { cfg.NatsNkey = config.Seeds["worker"] })
	if status, text := get(t, w, "/readyz"); status != 200 {
		t.Errorf("not ready: %s", text)
	}
	nc, err := nats.Connect(server.URL(), config.Key(t, "c1"), nats.CustomInboxPrefix("infer.out.c1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c := newBuyer(t, nc, "c1")
	if f := c.ask("req", "own", "a", 3); f.Final == nil {
		t.Errorf("ended with %v", f.Error)
	}
	if status, text := get(t, w, "/readyz"); status != 200 {
		t.Errorf("not ready after a request: %s", text)
	}
}

// TestDamagedCacheIsFetchedAgain damages what a worker has fetched: another one with
// the same cache fetches it again and serves it.
func TestDamagedCacheIsFetchedAgain(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	dir := t.TempDir()
	first := startServing(t, server, func(cfg *worker.Config) { cfg.CacheDir = dir })
	s := newShop(t, server)
	s.pushLetters("m", "1")
	s.deploy("m", "1")
	first.stop()
	first.wait(t)
	weights := filepath.Join(dir, s.ref("m", "1").Digest, "model.safetensors")
	b, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-4] ^= 1
	if err := os.WriteFile(weights, b, 0o600); err != nil {
		t.Fatal(err)
	}
	startServing(t, server, func(cfg *worker.Config) { cfg.CacheDir = dir })
	c := newBuyer(t, connect(t, server), "me")
	if v := c.spell("req", "m", letters); v != "1" {
		t.Errorf("version %q serves", v)
	}
}
