package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/loadtest/internal/ask"
	"github.com/cellmq/cellmq/loadtest/internal/load"
	"github.com/cellmq/cellmq/loadtest/internal/target"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// withLoad finds or starts workers, finds out what their models read, and calls
// use with a load and what sends it. Progress goes to log.
func (f *loadFlags) withLoad(ctx context.Context, log io.Writer, use func(load.Options, *ask.Client) error) (err error) {
	o, err := f.options()
	if err != nil {
		return err
	}
	settings, err := target.FromEnv()
	if err != nil {
		return err
	}
	url := settings.NatsURL
	if f.natsURL != "" {
		url = f.natsURL
	}
	if url == "" {
		say(log, "starting a worker")
		w, err := target.Start(ctx, target.Options{Program: f.program, Args: f.worker})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.Stop()) }()
		url = w.URL
	} else if err := f.external(); err != nil {
		return err
	}
	first := o.Plan.Clients.Names[0]
	nc, err := settings.Connect(ctx, url, first, nats.SetCustomDialer(ask.Dialer{}))
	if err != nil {
		return err
	}
	defer nc.Close()
	o.Outages = &load.Outages{}
	defer watchConnection(nc, o.Outages, log)()
	if err := f.makers(ctx, nc, &settings, &o.Plan); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	o.Progress = func(p load.Progress) {
		say(log, "%3.0f s of %.0f: %d/s, %d in flight, p99 %.1f ms", p.Elapsed.Seconds(), p.Whole.Seconds(), p.Ended, p.InFlight, p.P99)
	}
	clients := slices.Clone(o.Plan.Clients.Names)
	for i := range o.Plan.Trace {
		if name := o.Plan.Trace[i].Client; name != "" && !slices.Contains(clients, name) {
			clients = append(clients, name)
		}
	}
	client, err := ask.New(nc, ask.Config{Prefix: settings.SubjectPrefix, Clients: clients, Patience: f.patience})
	if err != nil {
		return err
	}
	defer ask.OneProcessor()()
	return errors.Join(use(o, client), client.Close())
}

// makers finds the models of a plan and what makes their inputs.
func (f *loadFlags) makers(ctx context.Context, nc *nats.Conn, s *target.Settings, p *workload.Plan) error {
	if len(p.Models.Names) == 0 {
		names, err := target.Served(ctx, nc, s.SubjectPrefix)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return errors.New("no worker says which models it serves: start one, or name models with --model")
		}
		const usual = "g2p-en"
		mix := usual
		if !slices.Contains(names, usual) {
			mix = strings.Join(names, ",")
		}
		if p.Models, err = workload.ParseMix("model", mix, broker.ValidModel); err != nil {
			return err
		}
	}
	names := slices.Clone(p.Models.Names)
	for i := range p.Trace {
		if name := p.Trace[i].Model; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var inputs []string
	if f.inputFile != "" {
		if err := fromFile(f.inputFile, func(r io.Reader) (err error) { inputs, err = workload.ReadInputs(r); return err }); err != nil {
			return err
		}
	}
	client, err := broker.NewClient(nc, broker.ClientConfig{Name: p.Clients.Names[0], Prefix: s.SubjectPrefix})
	if err != nil {
		return err
	}
	p.Makers = map[string]*workload.Maker{}
	for _, name := range names {
		m, err := target.Look(ctx, client, name, workload.Kind(f.inputKind), inputs)
		if err != nil {
			return errors.Join(err, client.Close())
		}
		p.Makers[name] = m
	}
	return client.Close()
}

// say writes a line of progress.
func say(log io.Writer, format string, values ...any) {
	_, _ = fmt.Fprintf(log, format+"\n", values...) // nobody is left to tell
}

// whole is how long a load lasts at least.
func whole(o *load.Options) time.Duration { return o.Warmup + o.Duration }

// trial puts loads of other rates on.
func trial(o load.Options, c *ask.Client) load.Trial {
	return func(ctx context.Context, rate float64) (*load.Report, error) {
		o := o
		o.Plan.Arrivals.Rate = rate
		return load.Run(ctx, c, o)
	}
}
