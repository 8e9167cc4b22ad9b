package target_test

import (
	"bufio"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/loadtest/internal/ask"
	"github.com/cellmq/cellmq/loadtest/internal/load"
	"github.com/cellmq/cellmq/loadtest/internal/record"
	"github.com/cellmq/cellmq/loadtest/internal/target"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// program is the cellmq program, built once.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "cellmq-target-")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		program = filepath.Join(dir, "cellmq")
		if out, err := exec.Command("go", "build", "-o", program, "github.com/cellmq/cellmq").CombinedOutput(); err != nil {
			panic(string(out))
		}
		return m.Run()
	}())
}

// start starts a worker and connects to it.
func start(t *testing.T) (*target.Worker, *nats.Conn) {
	t.Helper()
	t.Setenv("CELLMQ_PROFILE", "0")
	w, err := target.Start(t.Context(), target.Options{Program: program, Args: []string{"--slots", "2", "--realtime-slots", "32"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	nc, err := (&target.Settings{SubjectPrefix: "infer"}).Connect(t.Context(), w.URL, "test", nats.SetCustomDialer(ask.Dialer{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return w, nc
}

// punctual has requests count from when they are sent: where the worker's clock
// starts, but for the way there.
type punctual struct{ *ask.Client }

func (p punctual) Ask(r *workload.Request, _ time.Time, done func(*ask.Outcome)) error {
	return p.Client.Ask(r, time.Now(), done)
}

// TestAgreesWithWorker compares the report of a load with the worker's own
// histograms: a quantile of ours must lie in the bucket in which theirs lies, or
// beside it. Theirs ends when the final is sent; ours begins a publication earlier
// and ends a delivery later. Theirs of the first token begins at the worker, so only
// the realtime path, where nothing waits on the way there, is compared.
func TestAgreesWithWorker(t *testing.T) {
	w, nc := start(t)
	defer ask.OneProcessor()()
	for _, tc := range []struct {
		realtime float64
		figures  []string
	}{
		{1, []string{"cellmq_request_duration_seconds", "cellmq_first_token_seconds"}},
		{0, []string{"cellmq_request_duration_seconds"}},
	} {
		before := buckets(t, w.Admin)
		r := putLoad(t, nc, tc.realtime)
		after := buckets(t, w.Admin)
		if r.All.FailedCount() > 0 || r.All.Completed < 100 || r.All.Missing() > 0 {
			t.Fatalf("%s", r.Markdown())
		}
		for _, name := range tc.figures {
			ours := r.All.E2EL
			if strings.Contains(name, "first_token") {
				ours = r.All.TTFT
			}
			compare(t, name, ours, before[name], after[name])
		}
	}
}

// putLoad keeps 16 requests under way; each reads long enough before its first
// token that the clocks' beginnings matter little.
func putLoad(t *testing.T, nc *nats.Conn, realtime float64) *load.Report {
	t.Helper()
	one := func(name string) workload.Mix {
		m, err := workload.ParseMix("mix", name, nil)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	law := func(text string) workload.Law {
		l, err := workload.ParseLaw(text)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	c, err := ask.New(nc, ask.Config{Clients: []string{"test"}, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, err := load.Run(t.Context(), punctual{c}, load.Options{Duration: time.Minute, CPU: load.CPUTime, Plan: workload.Plan{
		Seed: 1, Arrivals: workload.Arrivals{Law: workload.Closed, InFlight: 16}, Requests: 160, Realtime: realtime,
		Models: one("kjv-lm"), Priorities: one("std"), Clients: one("test"), Lengths: law("fixed:200"), Outputs: law("fixed:8"),
		Makers: map[string]*workload.Maker{"kjv-lm": {Kind: workload.Text}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// bucket is how many values are not above a bound.
type bucket struct {
	bound float64 // seconds
	count float64
}

// buckets reads the worker's histograms of the model that is loaded: none before the
// first of its requests.
func buckets(t *testing.T, admin string) map[string][]bucket {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	out := map[string][]bucket{}
	for scan := bufio.NewScanner(response.Body); scan.Scan(); {
		name, rest, ok := strings.Cut(scan.Text(), `_bucket{model="kjv-lm",le="`)
		bound, count, found := strings.Cut(rest, `"} `)
		if !ok || !found {
			continue
		}
		b := bucket{bound: math.Inf(1)}
		if bound != "+Inf" {
			if b.bound, err = strconv.ParseFloat(bound, 64); err != nil {
				t.Fatal(err)
			}
		}
		if b.count, err = strconv.ParseFloat(count, 64); err != nil {
			t.Fatal(err)
		}
		out[name] = append(out[name], b)
	}
	return out
}

func compare(t *testing.T, name string, ours record.Histogram, before, after []bucket) {
	t.Helper()
	last := len(after) - 1
	if len(before) == 0 {
		before = slices.Clone(after)
		for i := range before {
			before[i].count = 0
		}
	}
	if last < 1 || len(before) != len(after) || int(after[last].count-before[last].count) != ours.Count() {
		t.Fatalf("%s: %v before, %v after, %d of ours", name, before, after, ours.Count())
	}
	total := after[last].count - before[last].count
	for _, q := range []float64{0.5, 0.9} {
		theirs := slices.IndexFunc(after, func(b bucket) bool {
			at := slices.IndexFunc(after, func(o bucket) bool { return o.bound == b.bound })
			return b.count-before[at].count >= q*total
		})
		ms, ok := ours.Quantile(q)
		mine := slices.IndexFunc(after, func(b bucket) bool { return ms/1000 <= b.bound })
		if !ok || mine < theirs-1 || mine > theirs+1 {
			t.Errorf("%s: quantile %g is %g ms here, at most %g s there", name, q, ms, after[theirs].bound)
		}
	}
}

// TestLook tries the bundled models.
func TestLook(t *testing.T) {
	_, nc := start(t)
	names, err := target.Served(t.Context(), nc, "infer")
	if want := []string{"g2p-en", "kjv-lm", "langid", "listops"}; err != nil || !slices.Equal(names, want) {
		t.Fatalf("%v, %v, want %v", names, err, want)
	}
	c, err := broker.NewClient(nc, broker.ClientConfig{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for name, want := range map[string]struct {
		kind   workload.Kind
		labels bool
	}{"g2p-en": {workload.Words, false}, "kjv-lm": {workload.Text, false}, "langid": {workload.Text, true}, "listops": {workload.Tree, true}} {
		m, err := target.Look(t.Context(), c, name, "", nil)
		if err != nil || m.Kind != want.kind || m.Labels != want.labels {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	if m, err := target.Look(t.Context(), c, "langid", "", []string{"eins", "zwei"}); err != nil || !m.Labels || len(m.Inputs) != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := target.Look(t.Context(), c, "listops", workload.Text, nil); err == nil || !strings.Contains(err.Error(), "--input-file FILE") {
		t.Errorf("%v", err)
	}
}

func TestRefusedStarts(t *testing.T) {
	for _, tc := range []struct {
		program string
		args    []string
		want    string
	}{
		{filepath.Join(t.TempDir(), "none"), nil, "none"},
		{program, []string{"--slots", "0"}, "SLOTS"},
	} {
		w, err := target.Start(t.Context(), target.Options{Program: tc.program, Args: tc.args})
		if err == nil || w != nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
	key := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(key, []byte("no seed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&target.Settings{NatsNkey: key}).Connect(t.Context(), "nats://127.0.0.1:1", ""); err == nil || !strings.Contains(err.Error(), "CELLMQ_NATS_NKEY") {
		t.Errorf("%v", err)
	}
}
