package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// Contender is a library to be measured.
type Contender struct {
	// Name identifies it in a report.
	Name string
	// Command returns the program, its arguments and its environment for a
	// number of threads.
	Command func(threads int) (args, env []string)
}

// ErrWrong is returned when a library's results were wrong, or it failed.
var ErrWrong = errors.New("there are results that are wrong or missing")

// Run compares contenders, the first of which is what the others are compared
// with. Progress and what the libraries say about errors go to progress. The
// report is complete when the error is [ErrWrong].
func Run(ctx context.Context, o Options, contenders []Contender, progress io.Writer) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	c := comparison{options: o, progress: progress, report: Report{Date: time.Now().UTC(), Host: describeHost(ctx), Options: o}}
	for _, threads := range o.Threads {
		if err := c.withThreads(ctx, contenders, threads); err != nil {
			return c.report, err
		}
	}
	if c.wrong {
		return c.report, ErrWrong
	}
	return c.report, nil
}

// comparison is a comparison in progress.
type comparison struct {
	options  Options
	progress io.Writer
	report   Report
	shape    workload.Case // whose parameters these are
	params   workload.Parameters
	wrong    bool
}

// racer is a library's process.
type racer struct {
	*wire.Client
	name string
}

// withThreads measures everything with a number of threads.
func (c *comparison) withThreads(ctx context.Context, contenders []Contender, threads int) (err error) {
	var racers []racer
	defer func() {
		for _, r := range racers {
			// A process that failed is in the report already.
			if e := r.Close(); e != nil && err == nil && ctx.Err() == nil {
				c.say("%s: %v\n", r.name, e)
			}
		}
	}()
	for _, contender := range contenders {
		args, env := contender.Command(threads)
		client, err := wire.Start(ctx, c.progress, env, args[0], args[1:]...)
		if err != nil {
			return fmt.Errorf("start %s: %w", contender.Name, err)
		}
		c.introduce(contender.Name, client.Hello())
		if client.Hello().Unavailable == "" {
			racers = append(racers, racer{client, contender.Name})
		} else if err := client.Close(); err != nil {
			c.say("%s: %v\n", contender.Name, err)
		}
	}
	for _, of := range c.options.cases() {
		if err := c.measure(ctx, of, threads, racers); err != nil {
			return err
		}
	}
	return nil
}

// introduce notes what a library says of itself, once.
func (c *comparison) introduce(name string, h wire.Hello) {
	if slices.ContainsFunc(c.report.Libraries, func(l Library) bool { return l.Contender == name }) {
		return
	}
	if h.Library == "" {
		h.Library = name
	}
	c.report.Libraries = append(c.report.Libraries, Library{
		Contender: name, Name: h.Library, Version: h.Version, Unavailable: h.Unavailable,
	})
	if h.Unavailable != "" {
		c.say("%s is not available: %s\n", h.Library, h.Unavailable)
	}
}

// entrant is a racer that has the right results for a case.
type entrant struct {
	racer
	m       Measurement
	medians []time.Duration
}

// measure checks and then times a case.
func (c *comparison) measure(ctx context.Context, of workload.Case, threads int, racers []racer) error {
	var field []*entrant
	for _, r := range racers {
		if !slices.Contains(r.Hello().Weights, of.Weights) {
			continue
		}
		e := &entrant{racer: r, m: Measurement{Case: of, Threads: threads, Contender: r.name}}
		err := c.check(e)
		switch {
		case errors.Is(err, wire.ErrUnsupported):
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			c.fail(e, err)
			continue
		}
		field = append(field, e)
	}
	for round := range c.options.Rounds {
		for i := range field {
			e := field[(round+i)%len(field)]
			if err := c.time(ctx, e); err != nil {
				return err
			}
		}
	}
	c.say("%s %s, %d rows, %d threads:", of, of.Weights, of.Rows, threads)
	for _, e := range field {
		if e.m.Problem == "" {
			slices.Sort(e.medians)
			e.m.Median = e.medians[len(e.medians)/2]
			e.m.BestGFLOPS = of.Flop() / float64(e.m.Best.Nanoseconds())
			e.m.MedianGFLOPS = of.Flop() / float64(e.m.Median.Nanoseconds())
			c.report.Measurements = append(c.report.Measurements, e.m)
			c.say(" %s %.1f", e.name, e.m.MedianGFLOPS)
		}
	}
	c.say(" GFLOP/s\n")
	return nil
}

// check compares a racer's results with those wanted.
func (c *comparison) check(e *entrant) error {
	of := e.m.Case
	// The parameters do not depend on how they are kept.
	shape := of.Shape()
	shape.Weights = ""
	if c.shape != shape {
		c.params, c.shape = of.MakeParameters(), shape
	}
	at := of.Samples()
	got, detail, err := e.Results(of, at)
	if err != nil {
		return err
	}
	e.m.Detail = detail
	e.m.RelativeError, err = of.Check(got, of.Want(c.params, at))
	return err
}

// time times an entrant once, after a pause.
func (c *comparison) time(ctx context.Context, e *entrant) error {
	if e.m.Problem != "" {
		return nil
	}
	pause := time.NewTimer(c.options.Pause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	r, err := e.Times(e.m.Case, c.options.Duration)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		c.fail(e, err)
		return nil
	}
	if best := time.Duration(r.Best); e.m.Best == 0 || best < e.m.Best {
		e.m.Best = best
	}
	e.m.Calls += r.Calls
	e.medians = append(e.medians, time.Duration(r.Median))
	return nil
}

// fail notes why an entrant has no figures.
func (c *comparison) fail(e *entrant, err error) {
	c.wrong = true
	e.m.Problem = err.Error()
	c.report.Measurements = append(c.report.Measurements, e.m)
	c.say("%s, %s, %d rows: %v\n", e.name, e.m.Case, e.m.Case.Rows, err)
}

// say tells about the progress.
func (c *comparison) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.progress, format, args...) // nobody is left to tell
}
