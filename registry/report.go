package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The bounds of a report.
const (
	reportFormat   = 1
	maxWorker      = 64
	maxModels      = 256
	maxVersions    = 8 // of a model in a report
	maxStateLength = 32
)

// ReportLife is how long a report counts that is not renewed.
const ReportLife = reportTTL

// The states of a version that deployments know. Others mean that it is neither
// ready nor lost.
const (
	StateWarm   = "warm"   // loaded and verified
	StateLive   = "live"   // serves
	StateFailed = "failed" // cannot be loaded here
)

// Report is what a worker has loaded. A worker that stops reports no models, so
// that nobody waits for it.
type Report struct {
	// Format of this record, 1; [Registry.Report] fills it in.
	Format int `json:"format"`
	// Worker is its name, 1 to 64 of A-Z, a-z, 0-9, _ and -.
	Worker string `json:"worker"`
	// MemoryBytes are taken by models, each shared block counted once.
	MemoryBytes int64 `json:"memory_bytes"`
	// BudgetBytes may be taken. 0: no bound.
	BudgetBytes int64 `json:"budget_bytes,omitempty"`
	// Models that it serves or that a deployment wants it to, at most 256.
	Models []ModelReport `json:"models"`
	// Omitted is how many more models the worker has, for which there is no room.
	Omitted int `json:"omitted,omitempty"`
}

// ModelReport is what a worker has of a model.
type ModelReport struct {
	Model string `json:"model"`
	// Serial of the deployment that the worker acts on.
	Serial uint64 `json:"serial"`
	// Versions, at most 8.
	Versions []VersionReport `json:"versions"`
}

// VersionReport is what a worker has of a version.
type VersionReport struct {
	Ref
	// State is one of a worker's; [StateWarm], [StateLive] and [StateFailed] move a
	// deployment.
	State string `json:"state"`
	// Reason of the state, cut at 512 bytes.
	Reason string `json:"reason,omitempty"`
	// Weights are how the weights are stored: f32, bf16 or int8.
	Weights string `json:"weights,omitempty"`
	// LoadMillis is how long loading took.
	LoadMillis int64 `json:"load_ms,omitempty"`
	// WeightBytes of the version, of which SharedBytes belong to other versions
	// too; StateBytes of its sequences.
	WeightBytes int64 `json:"weight_bytes,omitempty"`
	SharedBytes int64 `json:"shared_bytes,omitempty"`
	StateBytes  int64 `json:"state_bytes,omitempty"`
	// Golden outputs of the version, and how many of them came out equal.
	Golden      int `json:"golden,omitempty"`
	GoldenEqual int `json:"golden_equal,omitempty"`
	// SelfMade says that the golden outputs were made by cellmq.
	SelfMade bool `json:"self_made,omitempty"`
	// Running requests.
	Running int `json:"running,omitempty"`
	Counts
}

// Counts are how requests of a version ended on a worker, since it started.
type Counts struct {
	// Ended with a final, or as those that are counted in Failed did. What clients
	// did wrong or gave up is in neither.
	Ended uint64 `json:"ended,omitempty"`
	// Failed with numerical_error, internal or attempts_exhausted.
	Failed uint64 `json:"failed,omitempty"`
}

func (c Counts) plus(o Counts) Counts {
	return Counts{Ended: c.Ended + o.Ended, Failed: c.Failed + o.Failed}
}

// less is what was counted since. Counters that fell began again at 0.
func (c Counts) less(o Counts) Counts {
	if c.Ended < o.Ended || c.Failed < o.Failed {
		return c
	}
	return Counts{Ended: c.Ended - o.Ended, Failed: c.Failed - o.Failed}
}

// rate is the share of requests that failed.
func (c Counts) rate() float64 {
	if c.Failed == 0 {
		return 0
	}
	return float64(c.Failed) / float64(max(c.Ended, c.Failed))
}

// model is the report of a model, nil if there is none.
func (r *Report) model(name string) *ModelReport {
	i := slices.IndexFunc(r.Models, func(m ModelReport) bool { return m.Model == name })
	if i < 0 {
		return nil
	}
	return &r.Models[i]
}

// version is the report of a version, nil if there is none.
func (m *ModelReport) version(r Ref) *VersionReport {
	i := slices.IndexFunc(m.Versions, func(v VersionReport) bool { return v.same(r) })
	if i < 0 {
		return nil
	}
	return &m.Versions[i]
}

func (m *ModelReport) counts(r Ref) Counts {
	if v := m.version(r); v != nil {
		return v.Counts
	}
	return Counts{}
}

// beside are the counts of a version that serves beside another. The worker's own,
// for the zero Ref, is any that the other is not.
func (m *ModelReport) beside(r, other Ref) Counts {
	if r != (Ref{}) {
		return m.counts(r)
	}
	var sum Counts
	for i := range m.Versions {
		if v := &m.Versions[i]; !v.same(other) {
			sum = sum.plus(v.Counts)
		}
	}
	return sum
}

// Report stores a worker's report over its last one.
func (r *Registry) Report(ctx context.Context, report Report) error {
	report.Format = reportFormat
	b, err := report.encode()
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	_, err = r.js.Publish(ctx, r.reportSubject(report.Worker), b)
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		err = ErrNoRegistry
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Reports returns the reports of all workers that live, by name. One that cannot be
// read is none: its worker writes another.
func (r *Registry) Reports(ctx context.Context) ([]Report, error) {
	var all []Report
	prefix := r.reportSubject("")
	last := map[string]*Report{} // by subject, nil: cannot be read
	err := r.each(ctx, "KV_"+r.workers, prefix+"*", func(subject string, _ uint64, _ time.Time, data []byte) error {
		report, err := parseReport(data, strings.TrimPrefix(subject, prefix))
		if err != nil {
			report = nil
		}
		last[subject] = report
		return nil
	})
	for _, report := range last {
		if report != nil {
			all = append(all, *report)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read reports: %w", err)
	}
	slices.SortFunc(all, func(a, b Report) int { return cmp.Compare(a.Worker, b.Worker) })
	return all, nil
}

func (r *Registry) reportSubject(worker string) string { return "$KV." + r.workers + "." + worker }
