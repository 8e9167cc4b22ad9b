package alternative

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// Options describe a comparison.
type Options struct {
	// Models are compared one after the other.
	Models []*Model
	// Program is the cellmq program; empty: it is built. WorkerArgs are those of its
	// worker.
	Program    string
	WorkerArgs []string
	// Server is the command of the alternative, before the directory of a model;
	// ServerArgs follow that. It is started in each of the shapes.
	Server, ServerArgs []string
	Shapes             []Shape
	// Versions of the alternative, for the report.
	Versions Versions
	// Shares of the throughput of the fastest system: the rates.
	Shares []float64
	// Concurrency of the closed loop.
	Concurrency int
	// Rounds in which the systems take turns.
	Rounds int
	// Warmup and Duration of each load.
	Warmup, Duration time.Duration
	// Patience is how long an answer is waited for.
	Patience time.Duration
	// Sample is the number of requests whose answers are compared.
	Sample int
	Seed   uint64
	// CPU returns the processor time of this process.
	CPU func() time.Duration
	// Log takes a line of progress.
	Log func(string)
}

// Shape is how the alternative shares the processors.
type Shape struct {
	Processes, Threads int
}

// String names the alternative in a shape.
func (s Shape) String() string { return fmt.Sprintf("PyTorch, %d x %d", s.Processes, s.Threads) }

// ParseShape reads a shape: PROCESSESxTHREADS, as 2x1.
func ParseShape(text string) (Shape, error) {
	var s Shape
	if n, err := fmt.Sscanf(text, "%dx%d", &s.Processes, &s.Threads); err != nil || n != 2 || fmt.Sprintf("%dx%d", s.Processes, s.Threads) != text {
		return s, fmt.Errorf("shape %q: want PROCESSESxTHREADS, as 2x1", text)
	}
	if s.Processes < 1 || s.Threads < 1 || s.Processes > 64 || s.Threads > 64 {
		return s, fmt.Errorf("shape %q: numbers must be between 1 and 64", text)
	}
	return s, nil
}

// Model is a model, and what it is asked.
type Model struct {
	// Name, and Directory, whose last element it is.
	Name, Directory string
	// Text says what the requests are.
	Text    string
	kind    workload.Kind
	lengths string
	outputs string // empty: the model answers with a label, or bounds itself
	labels  bool
}

// ParseModels finds models by name, each in a folder of root or, if that has none of
// the name, of others.
func ParseModels(names []string, root, others string) ([]*Model, error) {
	known := []*Model{
		{Name: "g2p-en", Text: "pronunciation, 1 to 3 words, greedy", kind: workload.Words, lengths: "uniform:1:3"},
		{Name: "kjv-lm", Text: "2 layers of 320, texts of about 60 bytes, 8 to 64 bytes more, greedy", kind: workload.Text, lengths: "lognormal:60:0.65:330", outputs: "uniform:8:64"},
		{Name: "langid", Text: "6 layers of 160, texts of about 60 bytes, a label", kind: workload.Text, lengths: "lognormal:60:0.65:330", labels: true},
		{Name: "listops", Text: "TreeLSTM of 128, trees of 2 to 20 digits, a label", kind: workload.Tree, lengths: "uniform:2:20", labels: true},
		{Name: "lstm-1024", Text: "2 random layers of 1,024, texts of about 20 bytes, 4 to 32 bytes more, greedy", kind: workload.Text, lengths: "lognormal:20:0.65:100", outputs: "uniform:4:32"},
	}
	var out []*Model
	for _, name := range names {
		at := slices.IndexFunc(known, func(m *Model) bool { return m.Name == name })
		if at < 0 {
			all := make([]string, len(known))
			for i, m := range known {
				all[i] = m.Name
			}
			return nil, fmt.Errorf("model %q: must be one of %s", name, strings.Join(all, ", "))
		}
		m := known[at]
		m.Directory = filepath.Join(root, name)
		if name == "lstm-1024" {
			m.Directory = filepath.Join(others, name)
		}
		out = append(out, m)
	}
	return out, nil
}

// plan is the law of a model's requests; without a rate, a closed loop.
func (m *Model) plan(o *Options, rate float64) (workload.Plan, error) {
	p := workload.Plan{Seed: o.Seed, Final: 1, Arrivals: workload.Arrivals{Law: workload.Poisson, Rate: rate}}
	if rate == 0 {
		p.Arrivals = workload.Arrivals{Law: workload.Closed, InFlight: o.Concurrency}
	}
	var errs [4]error
	p.Models, errs[0] = workload.ParseMix("model", m.Name, func(string) bool { return true })
	p.Priorities, errs[1] = workload.ParseMix("priority", "std", workload.ValidPriority)
	p.Clients, errs[2] = workload.ParseMix("client", client, func(string) bool { return true })
	maker := &workload.Maker{Kind: m.kind, Labels: m.labels}
	maker.Lengths, errs[3] = workload.ParseLaw(m.lengths)
	if m.outputs != "" {
		law, err := workload.ParseLaw(m.outputs)
		if err != nil {
			return p, err
		}
		p.Outputs = law
	}
	p.Makers = map[string]*workload.Maker{m.Name: maker}
	return p, errors.Join(errs[:]...)
}

// first is a request to see whether a system serves the model.
func (m *Model) first() *workload.Request {
	maker := &workload.Maker{Kind: m.kind}
	r := &workload.Request{Model: m.Name, Client: client, Input: maker.Make(rand.New(rand.NewPCG(1, 1)), 0, 2)}
	if m.outputs != "" {
		r.MaxTokens = 1
	}
	return r
}

// longestLoad bounds times.
const longestLoad = time.Hour

// Validate reports what is wrong with options.
func (o *Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, values ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, values...))
		}
	}
	check(len(o.Models) > 0, "models: none")
	check(len(o.Server) > 0, "server: no command")
	check(len(o.Shapes) > 0, "shapes: none")
	for _, s := range o.Shares {
		check(s > 0 && s <= 10, "share %g: must be above 0 and at most 10", s)
	}
	check(o.Concurrency >= 1 && o.Concurrency <= 10_000, "concurrency %d: must be between 1 and 10000", o.Concurrency)
	check(o.Rounds >= 1 && o.Rounds <= 100, "rounds %d: must be between 1 and 100", o.Rounds)
	check(o.Duration > 0 && o.Duration <= longestLoad, "duration %v: must be above 0 and at most %v", o.Duration, longestLoad)
	check(o.Warmup >= 0 && o.Warmup <= longestLoad, "warm-up %v: must be between 0 and %v", o.Warmup, longestLoad)
	check(o.Patience > 0 && o.Patience <= longestLoad, "patience %v: must be above 0 and at most %v", o.Patience, longestLoad)
	check(o.Sample >= 1 && o.Sample <= 100_000, "sample %d: must be between 1 and 100000", o.Sample)
	return errors.Join(errs...)
}
