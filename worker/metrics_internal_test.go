package worker

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
)

// registered returns the worker's metrics with their labels.
func registered(t *testing.T) map[string]string {
	t.Helper()
	w, err := New(DefaultConfig(), Deps{})
	if err != nil {
		t.Fatal(err)
	}
	descs := make(chan *prometheus.Desc, 1000)
	w.registry.Describe(descs)
	close(descs)
	pattern := regexp.MustCompile(`fqName: "(cellmq_[a-z_]+)".*variableLabels: \{([^}]*)\}`)
	found := map[string]string{}
	for d := range descs {
		if m := pattern.FindStringSubmatch(d.String()); m != nil {
			found[m[1]] = m[2]
		}
	}
	return found
}

// documented returns the metrics of the table in docs/operations.md with their
// labels.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## What workers count\n")
	if !ok {
		t.Fatal("the section is not there")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	quoted := regexp.MustCompile("`([a-z_]+)`")
	found := map[string]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[1], "`cellmq_") {
			continue
		}
		var labels []string
		for _, m := range quoted.FindAllStringSubmatch(cells[2], -1) {
			labels = append(labels, m[1])
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			if _, twice := found[m[1]]; twice {
				t.Errorf("%s is there twice", m[1])
			}
			found[m[1]] = strings.Join(labels, ",")
		}
	}
	return found
}

// TestMetricsAreDocumented holds the table against what the worker registers.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	real, told := registered(t), documented(t)
	if len(real) < 50 {
		t.Fatalf("only %d metrics found", len(real))
	}
	for name, labels := range real {
		if got, ok := told[name]; !ok {
			t.Errorf("%s is not in docs/operations.md", name)
		} else if got != labels {
			t.Errorf("%s has labels %q, docs/operations.md says %q", name, labels, got)
		}
		for label := range strings.SplitSeq(labels, ",") {
			if slices.Contains([]string{"client", "id", "request_id", "subject"}, label) {
				t.Errorf("%s has the label %s, which is a client's", name, label)
			}
		}
	}
	for name := range told {
		if _, ok := real[name]; !ok {
			t.Errorf("docs/operations.md has %s, the worker has not", name)
		}
	}
}

func TestMetricNames(t *testing.T) {
	t.Parallel()
	w, err := New(DefaultConfig(), Deps{})
	if err != nil {
		t.Fatal(err)
	}
	w.metrics.requests.WithLabelValues("m", "stop").Inc()
	w.metrics.models.of("m")
	w.metrics.stepped(cellrt.StepTrace{Program: "m", Cell: "c", Rows: 3, Tier: cellrt.TierFull, Duration: time.Millisecond})
	problems, err := testutil.GatherAndLint(w.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for name, want := range map[string]int{
		"cellmq_requests_total": 1, "cellmq_running_requests": 1, "cellmq_step_rows": 1, "cellmq_steps_total": cellrt.Tiers,
		"cellmq_cancellations_total": 3, "cellmq_duplicates_total": 4, "cellmq_dead_letters_total": 3, "cellmq_nats_connected": 1,
	} {
		if n, err := testutil.GatherAndCount(w.registry, name); err != nil || n != want {
			t.Errorf("%s: %d samples of %d, %v", name, n, want, err)
		}
	}
}

// TestHistogramsAreNativeToo wants sparse buckets beside the fixed ones.
func TestHistogramsAreNativeToo(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := newMetrics(registry)
	m.stepped(cellrt.StepTrace{Program: "m", Cell: "c", Rows: 3, Duration: time.Millisecond})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := false
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if h := s.GetHistogram(); h != nil && h.GetSampleCount() > 0 {
				seen = true
				if len(h.GetBucket()) == 0 || len(h.GetPositiveSpan()) == 0 || h.GetSchema() < 3 {
					t.Errorf("%s has %d fixed buckets, %d spans of schema %d", f.GetName(), len(h.GetBucket()), len(h.GetPositiveSpan()), h.GetSchema())
				}
			}
		}
	}
	if !seen {
		t.Error("no histogram has a sample")
	}
}

// TestMeasuringDoesNotAllocate measures steps and tokens.
func TestMeasuringDoesNotAllocate(t *testing.T) { // not parallel: it counts allocations
	m := newMetrics(prometheus.NewRegistry())
	step := cellrt.StepTrace{Program: "m", Cell: "c", Rows: 3, Duration: time.Millisecond}
	meter, now := m.models.of("m"), time.Now()
	measure := func() {
		m.stepped(step)
		meter.stepGave(1, now, now.Add(-time.Millisecond))
	}
	measure()
	if n := leastAllocs(1000, measure); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDuplicateKinds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		run     *run
		outcome string
		want    string
	}{
		{&run{}, "stop", ""},
		{&run{}, outcomeLeaseLost, ""},
		{&run{mute: errTakenOver}, outcomeLeaseLost, "taken_over"},
		{&run{mute: errAnswered}, outcomeAnswered, "answered_before"},
		{&run{}, outcomeReplayed, "fenced"},
		{&run{stored: &broker.StoredFinal{}}, outcomeReplayed, "replayed"},
	} {
		if got := duplicate(tc.run, tc.outcome); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.outcome, got, tc.want)
		}
	}
}

// BenchmarkMeasureStep is what a step and one of its rows cost to be measured.
func BenchmarkMeasureStep(b *testing.B) {
	m := newMetrics(prometheus.NewRegistry())
	step := cellrt.StepTrace{Program: "m", Cell: "c", Rows: 3, Duration: time.Millisecond}
	meter, now := m.models.of("m"), time.Now()
	b.Run("step", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.stepped(step)
		}
	})
	b.Run("row", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			meter.stepGave(1, now, now.Add(-time.Millisecond))
		}
	})
}
