package alternative

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/load"
)

// Report is what was found.
type Report struct {
	// Host is the machine, Load its load average before the first model and after
	// the last one: what others did meanwhile.
	Host string    `json:"host"`
	Load [2]string `json:"load"`
	// Alternative is what the alternative consists of, CellmqBytes the size of the
	// cellmq program.
	Alternative Versions `json:"alternative"`
	CellmqBytes int64    `json:"cellmq_bytes"`
	// How it was measured.
	Concurrency int            `json:"concurrency"`
	Rounds      int            `json:"rounds"`
	Warmup      time.Duration  `json:"warmup_ns"`
	Duration    time.Duration  `json:"duration_ns"`
	WorkerArgs  []string       `json:"worker_args"`
	ServerArgs  []string       `json:"server_args"`
	Models      []*ModelReport `json:"models"`
}

// Versions are what the alternative consists of, as loadtest/alternatives/versions.py
// prints it.
type Versions struct {
	Python       string   `json:"python"`
	Torch        string   `json:"torch"`
	Capability   string   `json:"capability"`
	BLAS         []string `json:"blas"`
	Kernels      string   `json:"blas_kernels"`
	InstalledMiB int      `json:"installed_mib"`
	TorchMiB     int      `json:"torch_mib"`
}

// ModelReport is what was found for one model.
type ModelReport struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Sample is the number of requests whose answers were compared.
	Sample  int             `json:"sample"`
	Systems []*SystemReport `json:"systems"`
}

// SystemReport is what was found for one system.
type SystemReport struct {
	Name string `json:"name"`
	// Equal counts the answers of the sample that are those of the first system.
	Equal int `json:"equal"`
	// StartSeconds is the time from the start of its processes to the first answer.
	StartSeconds float64 `json:"start_s"`
	// MemoryBytes it takes after all loads; what its processes share counts once.
	MemoryBytes int64 `json:"memory_bytes"`
	// Closed is the closed loop, Open are the rates.
	Closed Figures   `json:"closed"`
	Open   []Figures `json:"open"`
}

// Figures are medians over the rounds.
type Figures struct {
	// Rate that was asked for, requests a second; 0: a closed loop.
	Rate float64 `json:"rate,omitempty"`
	// Throughput is what ended well in the window, requests a second.
	Throughput float64 `json:"throughput"`
	// Failed counts requests in all rounds.
	Failed int `json:"failed"`
	// Latencies since requests were due, ms; 0: too few requests to say.
	P50 float64 `json:"p50_ms"`
	P90 float64 `json:"p90_ms"`
	P99 float64 `json:"p99_ms"`
	// CPU is the system's processor time for a request, ms, and Own the load
	// test's.
	CPU float64 `json:"cpu_ms"`
	Own float64 `json:"own_cpu_ms"`
	// Late is how late the load test sent, at the 99th percentile, ms.
	Late float64 `json:"p99_send_delay_ms"`
	// Sustained says that the system kept up in at least half of the rounds.
	Sustained bool `json:"sustained"`
}

// errAnswers says that the systems do not do the same.
var errAnswers = errors.New("the answers differ")

// leastEqual is the share of a sample that has to be equal: rounding may tip a
// choice between two tokens of nearly the same probability.
const leastEqual = 0.95

// Compare compares.
func Compare(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r := &Report{
		Host: host(), Alternative: o.Versions, Concurrency: o.Concurrency, Rounds: o.Rounds, Warmup: o.Warmup, Duration: o.Duration,
		WorkerArgs: o.WorkerArgs, ServerArgs: o.ServerArgs,
	}
	if program, err := os.Stat(o.Program); err == nil {
		r.CellmqBytes = program.Size()
	}
	r.Load[0] = loadAverage()
	for _, m := range o.Models {
		found, err := compareModel(ctx, &o, m)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", m.Name, err)
		}
		r.Models = append(r.Models, found)
	}
	r.Load[1] = loadAverage()
	return r, nil
}

func compareModel(ctx context.Context, o *Options, m *Model) (_ *ModelReport, err error) {
	o.Log(m.Name + ": starting")
	c, err := gather(ctx, o, m)
	defer func() { err = errors.Join(err, c.stop()) }()
	if err != nil {
		return nil, err
	}
	r := &ModelReport{Name: m.Name, Text: m.Text, Sample: o.Sample}
	for _, s := range c.systems {
		r.Systems = append(r.Systems, &SystemReport{Name: s.name, StartSeconds: s.start.Seconds()})
	}
	if err := sample(ctx, o, m, c, r); err != nil {
		return nil, err
	}
	if err := measure(ctx, o, m, c, r); err != nil {
		return nil, err
	}
	for i, s := range c.systems {
		r.Systems[i].MemoryBytes = memory(s.ids)
	}
	return r, nil
}

// sample asks all systems the same requests.
func sample(ctx context.Context, o *Options, m *Model, c *contest, r *ModelReport) error {
	plan, err := m.plan(o, 0)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Patience*time.Duration(o.Sample))
	defer cancel()
	source := plan.Source()
	for range o.Sample {
		request, _ := source.Next() // it never ends
		var want string
		for i, s := range c.systems {
			got, err := s.value(ctx, &request)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if i == 0 {
				want = got
			}
			if got == want {
				r.Systems[i].Equal++
			}
		}
	}
	for _, s := range r.Systems {
		if float64(s.Equal) < leastEqual*float64(o.Sample) {
			return fmt.Errorf("%s: %w: %d of %d are equal", s.Name, errAnswers, s.Equal, o.Sample)
		}
	}
	return nil
}

// measure lets the systems take turns: first at their most, then at each rate.
func measure(ctx context.Context, o *Options, m *Model, c *contest, r *ModelReport) error {
	// What a system does only once, such as compiling for batches, is over before
	// anything counts.
	for _, s := range c.systems {
		if _, err := put(ctx, o, m, s, 0); err != nil {
			return err
		}
	}
	o.Log(m.Name + ": warmed up")
	found, err := rounds(ctx, o, m, c, 0)
	if err != nil {
		return err
	}
	fastest := 0.0
	for i, s := range r.Systems {
		s.Closed = medians(found[i])
		fastest = max(fastest, s.Closed.Throughput)
	}
	for _, share := range o.Shares {
		if found, err = rounds(ctx, o, m, c, share*fastest); err != nil {
			return err
		}
		for i, s := range r.Systems {
			if len(found[i]) > 0 {
				s.Open = append(s.Open, medians(found[i]))
			}
		}
	}
	return nil
}

// rounds puts a load on each system in turn, in another order each round.
func rounds(ctx context.Context, o *Options, m *Model, c *contest, rate float64) ([][]Figures, error) {
	out := make([][]Figures, len(c.systems))
	for round := range o.Rounds {
		for _, i := range order(len(c.systems), round) {
			if rate > 0 && c.systems[i].closed {
				continue
			}
			f, err := put(ctx, o, m, c.systems[i], rate)
			if err != nil {
				return nil, err
			}
			out[i] = append(out[i], f)
		}
	}
	return out, nil
}

// order is the turns of a round: forward, or backward in every second one.
func order(n, round int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	if round%2 == 1 {
		slices.Reverse(out)
	}
	return out
}

// put puts one load on one system.
func put(ctx context.Context, o *Options, m *Model, s *system, rate float64) (Figures, error) {
	plan, err := m.plan(o, rate)
	if err != nil {
		return Figures{}, err
	}
	if s.realtime {
		plan.Realtime = 1
	}
	before := processorTime(s.ids)
	r, err := load.Run(ctx, s.ask, load.Options{Plan: plan, Warmup: o.Warmup, Duration: o.Duration, CPU: o.CPU})
	if err != nil {
		return Figures{}, fmt.Errorf("%s: %w", s.name, err)
	}
	f := figures(r, rate, processorTime(s.ids)-before)
	o.Log(fmt.Sprintf("%s: %s at %s: %.1f/s, p50 %.2f ms, %d failed", m.Name, s.name, rateText(rate), f.Throughput, f.P50, f.Failed))
	return f, nil
}

func rateText(rate float64) string {
	if rate == 0 {
		return "its most"
	}
	return fmt.Sprintf("%.4g/s", rate)
}

func figures(r *load.Report, rate float64, cpu time.Duration) Figures {
	f := Figures{Rate: rate, Throughput: r.Throughput(), Failed: r.All.FailedCount(), Sustained: load.Sustained(r, load.DefaultAttainment)}
	f.P50, _ = r.All.E2EL.Quantile(0.5) // too few: 0
	f.P90, _ = r.All.E2EL.Quantile(0.9)
	f.P99, _ = r.All.E2EL.Quantile(0.99)
	f.Late, _ = r.Late.Quantile(0.99)
	if r.Ended > 0 {
		f.CPU = 1000 * cpu.Seconds() / float64(r.Ended)
		f.Own = 1000 * r.CPU.Seconds() / float64(r.Ended)
	}
	return f
}

// medians are those of rounds at the same rate. A latency that too few requests
// had in some round is left out.
func medians(rounds []Figures) Figures {
	of := func(get func(*Figures) float64) float64 {
		values := make([]float64, len(rounds))
		for i := range rounds {
			values[i] = get(&rounds[i])
		}
		slices.Sort(values)
		return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	}
	latency := func(get func(*Figures) float64) float64 {
		if slices.ContainsFunc(rounds, func(f Figures) bool { return get(&f) == 0 }) {
			return 0
		}
		return of(get)
	}
	out := Figures{
		Rate: rounds[0].Rate, Throughput: of(func(f *Figures) float64 { return f.Throughput }),
		P50: latency(func(f *Figures) float64 { return f.P50 }), P90: latency(func(f *Figures) float64 { return f.P90 }),
		P99: latency(func(f *Figures) float64 { return f.P99 }), CPU: of(func(f *Figures) float64 { return f.CPU }),
		Own: of(func(f *Figures) float64 { return f.Own }), Late: of(func(f *Figures) float64 { return f.Late }),
	}
	kept := 0
	for i := range rounds {
		out.Failed += rounds[i].Failed
		if rounds[i].Sustained {
			kept++
		}
	}
	out.Sustained = 2*kept >= len(rounds)
	return out
}
