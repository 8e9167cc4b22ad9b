package batchmaker

import (
	"context"
	"fmt"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// contest is servers on one machine with the same requests.
type contest struct {
	study    string
	hardware *hardware
	machine  sim.Machine
	traffic  traffic
	servers  []server // the first is cellmq

	// known is the first server's line, if another contest has it.
	known *line

	rates []float64 // that were offered, shares of the first server's peak
	lines []line    // of the servers
	// common is a rate that all servers keep up with, and at it their outcomes.
	common   float64
	atCommon []outcome
}

// line is the outcomes of one server.
type line struct {
	server
	// peak is with a backlog.
	peak outcome
	// sustained is the highest rate that the server keeps up with.
	sustained float64
	points    []outcome // at the contest's rates
}

// shares returns the offered rates as shares of the first server's peak.
func shares() []float64 { return []float64{0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95} }

// commonShare is the share of what every server sustains that distributions are
// compared at.
const commonShare = 0.7

// compare runs a contest.
func (l *lab) compare(ctx context.Context, c *contest) error {
	peaks, err := each(ctx, len(c.servers), func(i int) (outcome, error) {
		if i == 0 && c.known != nil {
			return c.known.peak, nil
		}
		return run(c.machine, c.servers[i], sim.Backlog(c.traffic.all))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.study, err)
	}
	for _, share := range shares() {
		c.rates = append(c.rates, share*peaks[0].throughput)
	}
	c.lines, err = each(ctx, len(c.servers), func(i int) (line, error) {
		if i == 0 && c.known != nil {
			return *c.known, nil
		}
		return l.line(c, c.servers[i], peaks[i])
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.study, err)
	}
	c.common = c.lines[0].sustained
	for _, line := range c.lines {
		c.common = min(c.common, line.sustained)
	}
	c.common *= commonShare
	c.atCommon, err = each(ctx, len(c.servers), func(i int) (outcome, error) {
		return run(c.machine, c.servers[i], l.open(c.common, c.traffic.of(c.servers[i])))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.study, err)
	}
	for i, line := range c.lines {
		l.keep(c.study, c.hardware, line.server, "backlog", line.peak)
		for j, o := range line.points {
			l.keep(c.study, c.hardware, line.server, fmt.Sprintf("%.0f %% of cellmq's peak", 100*shares()[j]), o)
		}
		l.keep(c.study, c.hardware, line.server, "common rate", c.atCommon[i])
	}
	return nil
}

// line runs one server at all rates.
func (l *lab) line(c *contest, s server, peak outcome) (line, error) {
	r := line{server: s, peak: peak}
	for _, rate := range c.rates {
		o, err := run(c.machine, s, l.open(rate, c.traffic.of(s)))
		if err != nil {
			return r, err
		}
		r.points = append(r.points, o)
	}
	var err error
	r.sustained, err = l.sustainable(c.machine, s, c.traffic, peak.throughput)
	return r, err
}

// reductions returns by how much the first server's p90 is lower than that of
// another, the least and the most over the rates that both keep up with, as
// shares. Negative ones are higher.
func (c *contest) reductions(of int) (least, most float64) {
	least, most = 1, -1
	for i, o := range c.lines[of].points {
		first := c.lines[0].points[i]
		if !o.sustained() || !first.sustained() {
			continue
		}
		r := 1 - first.p(90)/o.p(90)
		least, most = min(least, r), max(most, r)
	}
	return least, most
}

// find returns the index of a server of the contest by its name.
func (c *contest) find(name string) int {
	for i, s := range c.servers {
		if s.name == name {
			return i
		}
	}
	panic("batchmaker: no server " + name)
}

// peakRatio returns how many times the throughput of another server the first
// has with a backlog.
func (c *contest) peakRatio(of int) float64 {
	return c.lines[0].peak.throughput / c.lines[of].peak.throughput
}

// sustainedRatio is the same of the highest rates that both keep up with.
func (c *contest) sustainedRatio(of int) float64 { return c.lines[0].sustained / c.lines[of].sustained }

// The names of servers.
const (
	nameCellular  = "cellmq"
	nameAlgorithm = "BatchMaker's Algorithm 1"
	nameTurn      = "buckets of 10, in turn"
	nameTight     = "buckets of 10, longest queue, tight"
	nameMerged    = "merged graphs, free"
)

// lookAhead is how many batches the paper's scheduler gives at once.
const lookAhead = 5

// chainServers returns what serves chains with so many cells.
func chainServers(cells int) []server {
	priority := make([]int, cells) // later cells first
	for i := range priority {
		priority[i] = i
	}
	return []server{
		{nameCellular, sim.Cellular{}},
		{nameAlgorithm, sim.Algorithm1{Priority: priority, LookAhead: lookAhead}},
		{nameTurn, sim.Padded{Width: 10}},
		{nameTight, sim.Padded{Width: 10, Order: sim.LongestQueue, Tight: true}},
		{nameMerged, sim.Merged{}},
	}
}
