//go:build unix

package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// How long the requests of a chaos run take to be sent, and how many they are.
const (
	shortRequests = 400
	shortTime     = 60 * time.Second
	fullRequests  = 5000
	fullTime      = 15 * time.Minute
	clients       = 4
	burst         = 25 // requests that are sent at once
)

// TestChaos is described in the package comment.
func TestChaos(t *testing.T) {
	t.Parallel()
	n, span := shortRequests, shortTime
	if *full {
		n, span = fullRequests, fullTime
	}
	t.Logf("seed %d, %d requests", *seed, n)
	asks := workload(*seed, n)
	calm := calmRun(t, asks)

	cluster := brokertest.Cluster(t, 3)
	f := &faults{t: t, cluster: cluster, seed: *seed}
	for i := range 3 {
		// Slow ones, so that what breaks meets many requests that run.
		f.workers = append(f.workers, newMember(t, fmt.Sprint("w", i), cluster.URL(), pace, 3))
	}
	before := make([]map[string]float64, len(f.workers))
	for i, w := range f.workers {
		before[i] = settled(t, w)
	}
	stop := f.run(t.Context())
	start := time.Now()
	got := send(t, cluster.URL(), asks, span)
	stop()
	t.Logf("%v: %d workers killed, %d stopped for a while, %d servers lost, %d deliveries handed back by a stranger",
		time.Since(start).Round(time.Second), f.kills, f.pauses, f.servers, f.handedBack)
	for _, w := range f.workers {
		if err := w.serving(); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, asks, calm, got)
	checkStreams(t, cluster.URL(), n)
	sums := map[string]float64{}
	for i, w := range f.workers {
		g := checkWorker(t, w, before[i])
		for _, name := range []string{"cellmq_checkpoints_stored_total", "cellmq_restored_total", "cellmq_fenced_total", "cellmq_redeliveries_total"} {
			sums[name] += g[name]
		}
		if err := w.kill(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("the last process of each worker: %v", sums)
	checkLogs(t, asks, calm)
}

// checkLogs wants no input and no output of a client in the logs of the workers,
// which write at level debug.
func checkLogs(t *testing.T, asks []ask, calm []*outcome) {
	t.Helper()
	const short = 20 // as short a text may be there by chance
	var texts []string
	for i := range asks {
		for _, text := range []string{asks[i].input, calm[i].final.Text} {
			if len(text) >= short {
				texts = append(texts, text)
			}
		}
	}
	logs, err := filepath.Glob(filepath.Join(t.ArtifactDir(), "*.log"))
	if err != nil || len(logs) < 4 || len(texts) == 0 {
		t.Fatalf("%d logs, %d texts: %v", len(logs), len(texts), err)
	}
	size := 0
	for _, name := range logs {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		size += len(b)
		for _, text := range texts {
			if at := bytes.Index(b, []byte(text)); at >= 0 {
				t.Errorf("%s has the text of a client: %q", filepath.Base(name), b[max(0, at-80):min(len(b), at+len(text))])
				break
			}
		}
	}
	if size < 100*len(asks) { // a line for each request at least
		t.Errorf("the logs have %d bytes for %d requests", size, len(asks))
	}
}

// calmRun has one worker answer the requests while nothing breaks.
func calmRun(t *testing.T, asks []ask) []*outcome {
	t.Helper()
	server := brokertest.Server(t)
	w := newMember(t, "calm", server.URL(), 0, 1)
	start := time.Now()
	calm := send(t, server.URL(), asks, 0)
	t.Logf("calm run: %v", time.Since(start).Round(time.Millisecond))
	for i, o := range calm {
		if err := o.check(asks[i].options.Mode); err != nil {
			t.Fatalf("calm run: %s %+v: %v", asks[i].model, asks[i].options, err)
		}
		if o.retold > 0 {
			t.Fatalf("calm run: %s was refused", asks[i].options.ID)
		}
	}
	if err := w.kill(); err != nil {
		t.Error(err)
	}
	server.Shutdown()
	return calm
}

// send has clients send the requests, spread over a time, and waits for all
// answers.
func send(t *testing.T, url string, asks []ask, span time.Duration) []*outcome {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), span+5*time.Minute, errors.New("no answer"))
	defer cancel()
	senders := make([]*sender, clients)
	for i := range senders {
		nc, err := broker.Dial(ctx, url, "chaos client", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		// A request whose worker was killed may wait long for the next one; without a
		// receipt its place in the queue is not known, and the silence ends it.
		c, err := broker.NewClient(nc, broker.ClientConfig{Name: fmt.Sprint("chaos", i), Silence: 4 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }() // with its connection
		senders[i] = &sender{nc, c}
	}
	pace := time.NewTicker(max(span*burst/time.Duration(len(asks)), time.Microsecond))
	defer pace.Stop()
	out := make([]*outcome, len(asks))
	var all sync.WaitGroup
	for i := range asks {
		if i%burst == 0 {
			<-pace.C
		}
		all.Go(func() { out[i] = asks[i].perform(ctx, senders[i%clients]) })
	}
	all.Wait()
	return out
}

// compare wants every outcome to be the calm one.
func compare(t *testing.T, asks []ask, calm, got []*outcome) {
	t.Helper()
	wrong, retold, again := 0, 0, 0
	for i, o := range got {
		retold += o.retold
		if o.final.Attempt > 1 {
			again++
		}
		err := o.check(asks[i].options.Mode)
		diff := ""
		if err == nil {
			diff = o.differs(calm[i])
		}
		if err == nil && diff == "" {
			continue
		}
		if wrong++; wrong <= 10 {
			t.Errorf("%s %s, mode %s: %v %s", asks[i].options.ID, asks[i].model, asks[i].options.Mode, err, diff)
		}
	}
	t.Logf("%d of %d requests wrong; %d took more than one attempt; %d times a client asked again", wrong, len(got), again, retold)
	if again == 0 {
		t.Error("nothing that broke met a request")
	}
	if wrong > 10 {
		t.Errorf("%d more are wrong", wrong-10)
	}
}

// checkStreams wants an empty queue, one final for each request, and no dead
// letter.
func checkStreams(t *testing.T, url string, n int) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		stream string
		msgs   int
	}{{"INFER", 0}, {"INFER_FINAL", n}, {"INFER_DLQ", 0}, {"INFER_ADVISORY", 0}} {
		eventually(t, fmt.Sprintf("%s has had %d messages", want.stream, want.msgs), func(ctx context.Context) error {
			s, err := js.Stream(ctx, want.stream)
			if err != nil {
				return err
			}
			state := s.CachedInfo().State
			held := state.Msgs
			if want.stream == "INFER_FINAL" { // a long run outlasts its first finals
				held += state.FirstSeq - 1
			}
			if held != uint64(want.msgs) {
				return fmt.Errorf("%d messages, sequences %d to %d", state.Msgs, state.FirstSeq, state.LastSeq)
			}
			return nil
		})
	}
	s, err := js.Stream(t.Context(), "INFER_FINAL")
	if err != nil {
		t.Fatal(err)
	}
	if last := s.CachedInfo().State.LastSeq; last != uint64(n) {
		t.Errorf("%d finals were stored for %d requests", last, n)
	}
}

// settled waits until a new worker has all that an idle one has, and returns the
// most that it held of each. It takes requests before it has asked all its
// queues, each of which has a subscription, with a goroutine, from its first
// question on.
func settled(t *testing.T, w *member) map[string]float64 {
	t.Helper()
	const still = 10 // looks without anything new
	held := []string{"cellmq_free_slots", "cellmq_running_requests", "go_goroutines", "process_open_fds", "process_resident_memory_bytes"}
	most, same := map[string]float64{}, 0
	eventually(t, "worker "+w.name+" has settled", func(ctx context.Context) error {
		g, err := w.gauges(ctx)
		if err != nil {
			return err
		}
		same++
		if g["go_goroutines"] > most["go_goroutines"] || g["process_open_fds"] > most["process_open_fds"] {
			same = 0
		}
		for _, name := range held {
			v, ok := g[name]
			if !ok {
				return fmt.Errorf("no metric %s", name)
			}
			most[name] = max(most[name], v)
		}
		if same < still {
			return fmt.Errorf("%v goroutines, %v open files", most["go_goroutines"], most["process_open_fds"])
		}
		return nil
	})
	if t.Failed() {
		t.FailNow()
	}
	return most
}

// checkWorker wants an idle worker to hold what it held when it was new. One that
// does not says what it does instead, and ends. The metrics are its last.
func checkWorker(t *testing.T, w *member, before map[string]float64) (g map[string]float64) {
	t.Helper()
	ok := eventually(t, "worker "+w.name+" holds nothing", func(ctx context.Context) error {
		now, err := w.gauges(ctx)
		if err != nil {
			return err
		}
		g = now
		const mebibyte = 1 << 20
		switch {
		case g["cellmq_running_requests"] != 0 || g["cellmq_free_slots"] != before["cellmq_free_slots"]:
			return fmt.Errorf("%v requests run, %v slots are free", g["cellmq_running_requests"], g["cellmq_free_slots"])
		case g["go_goroutines"] > before["go_goroutines"]+4:
			return fmt.Errorf("%v goroutines, %v when new", g["go_goroutines"], before["go_goroutines"])
		case g["process_open_fds"] > before["process_open_fds"]+4:
			return fmt.Errorf("%v open files, %v when new", g["process_open_fds"], before["process_open_fds"])
		case g["process_resident_memory_bytes"] > 1.5*before["process_resident_memory_bytes"]+64*mebibyte:
			return fmt.Errorf("%v bytes resident, %v when new", g["process_resident_memory_bytes"], before["process_resident_memory_bytes"])
		}
		return nil
	})
	if !ok {
		t.Logf("worker %s:\n%s", w.name, w.goroutines())
	}
	return g
}

// eventually asks until there is no error, and reports whether that came.
func eventually(t *testing.T, what string, ask func(context.Context) error) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() == nil { // what comes after is the end of the wait
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Errorf("%s: not within %v: %v", what, patience, last)
			return false
		}
	}
}
