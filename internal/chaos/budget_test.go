//go:build linux

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/models"
)

// anonymous is the memory of a process that is not of files: what VmRSS says less
// what is mapped. In bytes.
func anonymous(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("no RssAnon")
}

// watchMemory returns a function that ends the watch of a process and says the most
// that it had, in bytes.
func watchMemory(t *testing.T, m *member) (most func() int64) {
	t.Helper()
	m.mu.Lock()
	pid := m.process.PID()
	m.mu.Unlock()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int64, 1)
	go func() {
		top := int64(0)
		for more := true; more; more = wait(ctx, 10*time.Millisecond) {
			if n, err := anonymous(pid); err == nil {
				top = max(top, n)
			}
		}
		ended <- top
	}()
	t.Cleanup(stop)
	return func() int64 {
		stop()
		return <-ended
	}
}

// TestFourHundredMegabytes pushes, deploys and serves a model of 400 MB within the
// worker's budget.
func TestFourHundredMegabytes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a model of 400 MB")
	}
	const (
		budget = 448 << 20
		slack  = 64 << 20 // of the worker beside its models
	)
	server := brokertest.Server(t)
	d := newDepot(t, server.URL())
	dir := filepath.Join(t.TempDir(), "vast")
	start := time.Now()
	ref := randomLM{vocab: 8192, hidden: 2048, layers: 2}.write(t, dir, "1", *seed)
	info, err := os.Stat(filepath.Join(dir, "model.safetensors"))
	if err != nil || info.Size() < 400e6 {
		t.Fatalf("%v: %v", info, err)
	}
	took := func(what string) {
		t.Logf("%s: %v", what, time.Since(start).Round(10*time.Millisecond))
		start = time.Now()
	}
	took(fmt.Sprintf("%d bytes written", info.Size()))
	w := newMember(t, "w0", server.URL(), 0, 1, "CELLMQ_CACHE_DIR="+t.TempDir(), "CELLMQ_MODELS=vast,listops",
		"CELLMQ_MODEL_BYTES="+strconv.Itoa(budget))
	took("worker started")
	most := watchMemory(t, w)
	d.must("push", dir)
	took("pushed")
	d.must("deploy", "vast@1", "--watch", "0")
	took("deployed")
	sender, err := broker.NewClient(d.nc, broker.ClientConfig{Name: "vast"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Close() }() // with its connection
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			s, err := sender.Request(t.Context(), "vast", broker.RequestOptions{
				ID: fmt.Sprintf("vast%06d", i), Input: broker.Input{Text: "1 2 3"}, Params: broker.Params{MaxTokens: ptr(16)},
			})
			if err != nil {
				t.Error(err)
				return
			}
			o := &outcome{}
			if err := errors.Join(o.read(s, nil), o.check(broker.ModeStream)); err != nil || o.final.Digest != ref.Digest {
				t.Errorf("digest %s, %s wanted: %v", o.final.Digest, ref.Digest, err)
			}
		})
	}
	all.Wait()
	took("8 requests of 16 tokens")
	g, err := w.gauges(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	peak := most()
	t.Logf("most memory %d MiB, models %.0f MiB, budget %d MiB", peak>>20, g["cellmq_model_memory_bytes"]/(1<<20), budget>>20)
	if held := g["cellmq_model_memory_bytes"]; held < 400e6 || held > budget {
		t.Errorf("models take %v bytes of a budget of %d", held, budget)
	}
	if peak > budget+slack {
		t.Errorf("the worker had %d bytes, %d at most wanted", peak, budget+slack)
	}
}

// TestTenThroughThree has ten models of equal size answer in any order, in memory
// that holds three.
func TestTenThroughThree(t *testing.T) {
	t.Parallel()
	const (
		ten      = 10
		clients  = 16
		requests = 2000
	)
	server := brokertest.Server(t)
	d := newDepot(t, server.URL())
	shape := randomLM{vocab: 48, hidden: 128, layers: 2}
	names := make([]string, ten)
	dirs := t.TempDir()
	for i := range ten {
		names[i] = fmt.Sprint("ten", i)
		dir := filepath.Join(dirs, names[i])
		shape.write(t, dir, "1", uint64(i))
		golden(t, dir, "1 2 3")
		d.must("push", dir)
	}
	w := newMember(t, "w0", server.URL(), 0, 1, "CELLMQ_CACHE_DIR="+t.TempDir(), "CELLMQ_MODELS="+strings.Join(names, ",")+",listops",
		"CELLMQ_MODEL_BYTES="+strconv.Itoa(budgetFor(t, shape, 3)))
	var rolls []*brokertest.Process
	for _, name := range names {
		rolls = append(rolls, d.begin("deploy", name+"@1", "--watch", "0"))
	}
	for i, p := range rolls {
		if output, err := d.ended(p); err != nil {
			t.Fatalf("deploy %s: %v: %s", names[i], err, output)
		}
	}
	sender, err := broker.NewClient(d.nc, broker.ClientConfig{Name: "ten"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Close() }() // with its connection
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var first [ten]atomic.Pointer[string]
	var next, failed atomic.Int64
	start := time.Now()
	var all sync.WaitGroup
	for c := range clients {
		r := rand.New(rand.NewPCG(*seed, uint64(c)))
		all.Go(func() {
			for n := next.Add(1); n <= requests && failed.Load() < 10; n = next.Add(1) {
				i := r.IntN(ten)
				text, err := askTen(ctx, sender, names[i], n)
				if err == nil {
					first[i].CompareAndSwap(nil, &text)
				}
				if err != nil || text != *first[i].Load() {
					failed.Add(1)
					t.Errorf("request %d of %s: %q: %v", n, names[i], text, err)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	g, err := w.gauges(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests in %v, %v evictions, %.0f KiB of %.0f KiB", requests, took.Round(time.Millisecond), g["cellmq_model_evictions_total"],
		g["cellmq_model_memory_bytes"]/1024, g["cellmq_model_budget_bytes"]/1024)
	if g["cellmq_model_evictions_total"] < ten || g["cellmq_model_memory_bytes"] > g["cellmq_model_budget_bytes"] {
		t.Errorf("metrics %v", g)
	}
	seen := map[string]bool{}
	for i := range first {
		if text := first[i].Load(); text != nil {
			seen[*text] = true
		}
	}
	if len(seen) != ten {
		t.Errorf("%d different answers of %d models", len(seen), ten)
	}
}

func askTen(ctx context.Context, c *broker.Client, model string, n int64) (string, error) {
	s, err := c.Request(ctx, model, broker.RequestOptions{
		ID: fmt.Sprintf("ten%08d", n), Input: broker.Input{Text: "7 11 2"}, Params: broker.Params{MaxTokens: ptr(12)},
	})
	if err != nil {
		return "", err
	}
	o := &outcome{}
	err = errors.Join(o.read(s, nil), o.check(broker.ModeStream))
	return fmt.Sprint(o.final.Tokens), err
}

// budgetFor is the memory in which n models of a shape have room, and n+1 have not.
func budgetFor(t *testing.T, shape randomLM, n int) int {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sized")
	shape.write(t, dir, "1", 0)
	m, err := models.Load(os.DirFS(dir), "sized")
	if err != nil {
		t.Fatal(err)
	}
	weights, state, err := cpu.New(cpu.Config{}).Size(m.Program(), 16)
	if err != nil {
		t.Fatal(err)
	}
	return n*int(weights+state) + int(weights+state)/2
}
