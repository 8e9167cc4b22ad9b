package batching

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// Compare measures what o says and returns the figures. Say is told what is
// going to happen and what did, a line at a time. It fails when o is out of
// bounds, when ctx ends, or when two servers answer a request differently.
func Compare(ctx context.Context, o Options, say func(line string)) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	began := time.Now()
	var contests []*contest
	for _, name := range o.Models {
		c, err := newContest(o, name, say)
		if err != nil {
			return nil, err
		}
		contests = append(contests, c)
	}
	r := &Report{Host: describeHost(ctx), Options: o}
	if err := measureAll(ctx, contests, time.Since(began), say); err != nil {
		return nil, err
	}
	for _, c := range contests {
		r.Models = append(r.Models, c.report)
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// measureAll runs the servers of all contests and measures one contest after
// the other. Preparing them took so long already.
func measureAll(ctx context.Context, contests []*contest, prepared time.Duration, say func(string)) (err error) {
	length := prepared
	for _, c := range contests {
		length += c.estimate()
	}
	say(fmt.Sprintf("this takes about %s", roughly(length)))

	ctx, stop := context.WithCancel(ctx)
	serving, ctx := errgroup.WithContext(ctx) // a server that fails ends the trial
	defer func() {
		stop()
		err = errors.Join(err, serving.Wait())
	}()
	for _, c := range contests {
		for _, e := range c.entrants {
			serving.Go(func() error { return e.run(ctx) })
		}
	}
	for _, c := range contests {
		if err := c.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.network.name, err)
		}
	}
	return nil
}

// roughly rounds a time to what an estimate is worth.
func roughly(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(5 * time.Second)
}

// entrant is a server in a contest.
type entrant struct {
	name string
	server
	run func(context.Context) error // serves until the context ends
}

// contest is the comparison on one network.
type contest struct {
	options  Options
	network  *network
	say      func(string)
	entrants []entrant // the first is cellular
	traces   traces
	cost     time.Duration // of a request, without padding
	report   Model
}

// newContest builds a network, chooses its largest batch and loads it into the
// servers.
func newContest(o Options, name string, say func(string)) (*contest, error) {
	n, err := newNetwork(name, o.Hidden, o.Seed)
	if err != nil {
		return nil, err
	}
	backend := cpu.New(cpu.Config{FoldBytes: -1}) // a step is the whole product, as with a large vocabulary
	first, err := newCellular(n, backend, o.Shape, o.Rows)
	if err != nil {
		return nil, err
	}
	c := &contest{options: o, network: n, say: say, traces: traces{network: n, seed: o.Seed, length: o.Length}}
	c.enter("cellular", first, first.run)
	c.report = Model{Name: name, Hidden: o.Hidden, Tokens: n.tokens, Cells: first.cells()}
	for _, cell := range c.report.Cells {
		c.report.BucketRows = max(c.report.BucketRows, cell.MaxRows)
		say(fmt.Sprintf("%s: batches of %s have at most %d rows, a row takes %.0f us", name, cell.Name, cell.MaxRows, cell.RowMicroseconds))
	}
	for _, b := range o.Baselines {
		if err := c.enterBaseline(b, backend); err != nil {
			return nil, err
		}
	}
	c.plan()
	return c, nil
}

func (c *contest) enter(name string, s server, run func(context.Context) error) {
	c.entrants = append(c.entrants, entrant{name: name, server: s, run: run})
}

// enterBaseline builds the server that a baseline names.
func (c *contest) enterBaseline(b Baseline, backend cellrt.Backend) error {
	o, rows := c.options, c.report.BucketRows
	if b.Merged {
		s, err := newMerged(c.network, backend, o.Shape, rows)
		if err != nil {
			return err
		}
		c.enter(b.String(), s, s.run)
		return nil
	}
	width := b.Width
	if width == 0 {
		width = o.Width
	}
	s, err := newPadded(c.network, backend, o.Shape, rows, width, b)
	if err != nil {
		return err
	}
	c.enter(b.String(), s, s.run)
	return nil
}

// plan finds out what a request costs and how long the backlog is.
func (c *contest) plan() {
	sample := c.traces.draw(rand.New(rand.NewPCG(c.options.Seed, streamProfile)), profiledShapes)
	us := 0.0
	for i := range sample {
		us += float64(len(sample[i].source)) * c.report.Cells[0].RowMicroseconds
		if second := sample[i].nodes() - len(sample[i].source); second > 0 {
			us += float64(second) * c.report.Cells[1].RowMicroseconds
		}
	}
	us /= float64(len(sample) * c.options.Shape.Executors)
	c.cost = max(1, time.Duration(us*float64(time.Microsecond)))
	c.report.Requests = c.options.Requests
	if c.report.Requests == 0 {
		c.report.Requests = int(min(max(c.options.Duration/c.cost, leastRequests), mostRequests))
	}
}

// estimate returns how long measuring takes.
func (c *contest) estimate() time.Duration {
	const padding, draining = 1.3, 1.15 // what comes on top in runs with a backlog and with arrivals
	backlog := padding * float64(c.report.Requests) * float64(c.cost)
	open := draining * float64(len(c.options.Loads)) * float64(c.options.Duration)
	return time.Duration((backlog + open) * float64(c.options.Rounds*len(c.entrants)))
}

// measure runs all experiments.
func (c *contest) measure(ctx context.Context) error {
	if err := c.warm(ctx); err != nil {
		return err
	}
	saturation, err := c.rounds(ctx, "backlog", func(round int) []request { return c.traces.backlog(round, c.report.Requests) })
	if err != nil {
		return err
	}
	c.report.Saturation = saturation
	best := 0.0
	for _, m := range saturation[1:] {
		best = max(best, m.Throughput)
	}
	for i, load := range c.options.Loads {
		rate := load * best
		requests := int(min(max(math.Round(rate*c.options.Duration.Seconds()), 1), mostRequests))
		name := fmt.Sprintf("load %.0f %%", 100*load)
		figures, err := c.rounds(ctx, name, func(round int) []request { return c.traces.open(i, round, requests, rate) })
		if err != nil {
			return err
		}
		c.report.Loads = append(c.report.Loads, Load{Share: load, Rate: rate, Requests: requests, Servers: figures})
	}
	return nil
}

// warm runs a few short requests, so that memory has been touched and has
// grown to the largest batch.
func (c *contest) warm(ctx context.Context) error {
	trace := c.traces.draw(rand.New(rand.NewPCG(c.options.Seed, streamProfile)), 2*c.report.BucketRows)
	for i := range trace {
		if trace[i].children != nil {
			continue
		}
		trace[i].source, trace[i].target = trace[i].source[:1], min(trace[i].target, 1)
	}
	for _, e := range c.entrants {
		if _, err := c.trial(ctx, e, trace); err != nil {
			return err
		}
	}
	return nil
}

// rounds has the servers take turns and returns the median figures of each.
func (c *contest) rounds(ctx context.Context, name string, draw func(round int) []request) ([]Measurement, error) {
	figures := make([][]Measurement, len(c.entrants))
	for round := range c.options.Rounds {
		trace := draw(round)
		var first *trial
		for i, e := range c.entrants {
			t, err := c.trial(ctx, e, trace)
			if err != nil {
				return nil, err
			}
			if first == nil {
				first = t
			}
			if err := t.sameAnswers(first); err != nil {
				return nil, fmt.Errorf("%s and %s: %w", c.entrants[0].name, e.name, err)
			}
			m := t.measure()
			figures[i] = append(figures[i], m)
			c.say(fmt.Sprintf("%s, %s, round %d of %d, %s: %d requests, %.1f/s, p50 %.1f ms, p99 %s ms",
				c.network.name, name, round+1, c.options.Rounds, e.name, len(trace), m.Throughput, m.P50, percentile(m.P99)))
		}
	}
	medians := make([]Measurement, len(c.entrants))
	for i, e := range c.entrants {
		medians[i] = median(figures[i])
		medians[i].Server = e.name
	}
	return medians, nil
}

// trial runs a trace on a server.
func (c *contest) trial(ctx context.Context, e entrant, trace []request) (*trial, error) {
	t := newTrial(trace)
	if err := t.run(ctx, e.server); err != nil {
		return nil, fmt.Errorf("%s: %w", e.name, err)
	}
	return t, nil
}
