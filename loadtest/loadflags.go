package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/loadtest/internal/load"
	"github.com/cellmq/cellmq/loadtest/internal/record"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// loadFlags are the flags of run, sweep and saturation.
type loadFlags struct {
	natsURL string
	program string
	worker  []string

	rate       float64
	arrivals   string
	burstiness float64
	inFlight   int
	requests   int
	duration   time.Duration
	warmup     time.Duration
	seed       uint64
	trace      string

	models     string
	priorities string
	clients    string
	lengths    string
	outputs    string
	inputFile  string
	inputKind  string

	realtime    float64
	final       float64
	cancel      float64
	cancelAfter time.Duration
	deadline    time.Duration
	patience    time.Duration
	beam        int
	temperature float64

	goodput []string
	json    string
	plots   string

	set *pflag.FlagSet
}

func (f *loadFlags) bind(set *pflag.FlagSet) {
	f.set = set
	set.SortFlags = false
	set.StringVar(&f.natsURL, "nats-url", "", "NATS server of the workers to load (default CELLMQ_NATS_URL; without either, a worker is started)")
	set.StringVar(&f.program, "program", "", "cellmq program that is started (default: it is built, which needs Go)")
	set.StringArrayVar(&f.worker, "worker-arg", nil, "argument of the worker that is started, as --worker-arg=--slots=64; repeatable")

	set.Float64Var(&f.rate, "rate", 100, "requests a second; 0: as many as --max-concurrency allows")
	set.StringVar(&f.arrivals, "arrivals", "", "poisson, gamma, constant or closed (default: closed without a rate, gamma with --burstiness, else poisson)")
	set.Float64Var(&f.burstiness, "burstiness", 1, "shape of gamma arrivals: below 1 bursts, 1 is poisson, above 1 more even")
	set.IntVar(&f.inFlight, "max-concurrency", 0, "most requests under way; others wait for their turn, which counts (0: no bound)")
	set.IntVar(&f.requests, "requests", 0, "end after so many requests, warm-up included (0: no bound)")
	set.DurationVar(&f.duration, "duration", 10*time.Second, "how long requests count; a trace is replayed to its end unless this is given")
	set.DurationVar(&f.warmup, "warmup", 2*time.Second, "how long requests are sent before that")
	set.Uint64Var(&f.seed, "seed", 1, "where random numbers begin; the same seed gives the same requests")
	set.StringVar(&f.trace, "trace", "", "file of requests to replay, CSV or JSON lines: time, model, input, length, max_tokens, priority, client, realtime, cancel_after")

	set.StringVar(&f.models, "model", "", "models with weights, as g2p-en=3,langid (default g2p-en, or all that are served)")
	set.StringVar(&f.priorities, "priority", "std", "priorities of durable requests with weights, as high=1,std=8")
	set.StringVar(&f.clients, "client", "loadtest", "client names with weights: the tenants")
	set.StringVar(&f.lengths, "lengths", "", "lengths of inputs: wmt, fixed:N, uniform:LEAST:MOST or lognormal:MEDIAN:SIGMA:MOST (default: by kind)")
	set.StringVar(&f.outputs, "output-tokens", "", "max_tokens of requests, a law as in --lengths (default: the model's)")
	set.StringVar(&f.inputFile, "input-file", "", "inputs, one a line, taken in turn instead of generated ones")
	set.StringVar(&f.inputKind, "input-kind", "", "words, text, ids or tree (default: what the model takes)")

	set.Float64Var(&f.realtime, "realtime", 0, "share of requests on the realtime path, up to 1 (0: none)")
	set.Float64Var(&f.final, "final", 0, "share of requests that want only their final, up to 1 (0: none)")
	set.Float64Var(&f.cancel, "cancel", 0, "share of requests that are cancelled, up to 1 (0: none)")
	set.DurationVar(&f.cancelAfter, "cancel-after", 100*time.Millisecond, "when they are, since they were due")
	set.DurationVar(&f.deadline, "deadline", 0, "budget of a request (0: none)")
	set.DurationVar(&f.patience, "patience", time.Minute, "how long an answer is waited for")
	set.IntVar(&f.beam, "beam", 0, "width of a search (0: none)")
	set.Float64Var(&f.temperature, "temperature", 0, "of sampling (0: greedy)")

	set.StringSliceVar(&f.goodput, "goodput", nil, "bounds in ms that good requests keep: ttft:200,e2el:1000,tpot:50")
	set.StringVar(&f.json, "json", "", "file for the whole report as JSON (-: stdout instead of the table)")
	set.StringVar(&f.plots, "plot", "", "directory for plots as SVG")
}

// options returns the load that the flags ask for, without what makes inputs.
func (f *loadFlags) options() (load.Options, error) {
	o := load.Options{Warmup: f.warmup, Duration: f.duration, CPU: load.CPUTime}
	p := &o.Plan
	*p = workload.Plan{
		Seed: f.seed, Arrivals: workload.Arrivals{Law: f.law(), Rate: f.rate, InFlight: f.inFlight}, Requests: f.requests,
		Realtime: f.realtime, Final: f.final, Cancel: f.cancel, Deadline: f.deadline, Beam: f.beam, Temperature: f.temperature,
	}
	if p.Arrivals.Law == workload.Gamma {
		p.Arrivals.Burstiness = f.burstiness
	}
	if f.cancel > 0 {
		p.CancelAfter = f.cancelAfter
	}
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	var err error
	if f.lengths != "" {
		p.Lengths, err = workload.ParseLaw(f.lengths)
		keep(err)
	}
	if f.outputs != "" {
		if p.Outputs, err = workload.ParseLaw(f.outputs); err != nil {
			keep(fmt.Errorf("output tokens: %w", err))
		}
	}
	if f.inputKind != "" && !slices.Contains(workload.Kinds(), workload.Kind(f.inputKind)) {
		keep(fmt.Errorf("input kind %q: must be one of %v", f.inputKind, workload.Kinds()))
	}
	p.Priorities, err = workload.ParseMix("priority", f.priorities, workload.ValidPriority)
	keep(err)
	p.Clients, err = workload.ParseMix("client", f.clients, broker.ValidClient)
	keep(err)
	if f.models != "" {
		p.Models, err = workload.ParseMix("model", f.models, broker.ValidModel)
		keep(err)
	}
	o.Bounds, err = record.ParseBounds(f.goodput)
	keep(errors.Join(err, f.patient(o.Bounds), f.idle()))
	if f.trace != "" {
		keep(fromFile(f.trace, func(r io.Reader) (err error) { p.Trace, err = workload.ReadTrace(r); return err }))
	}
	if n := len(p.Trace); n > 0 && !f.set.Changed("duration") {
		last := time.Duration(p.Trace[n-1].Time * float64(time.Second))
		o.Duration = max(last-o.Warmup, 0) + time.Second // all of it; the window ends with the last answer
	}
	keep(errors.Join(o.ValidateLaws(), f.places()))
	return o, errors.Join(errs...)
}

func fromFile(name string, read func(io.Reader) error) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	if err := read(file); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
