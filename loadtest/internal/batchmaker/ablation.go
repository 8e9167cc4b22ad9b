package batchmaker

import (
	"context"
	"fmt"
	"time"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// setting is one value of what an ablation varies, on one server.
type setting struct {
	name    string
	machine sim.Machine
	server  server
	// peak is with a backlog, load at the ablation's rate.
	peak, load outcome
}

// vary runs settings with a backlog and at a rate.
func (l *lab) vary(ctx context.Context, study string, h *hardware, t traffic, rate float64, settings []setting) ([]setting, error) {
	settings, err := each(ctx, len(settings), func(i int) (s setting, err error) {
		s = settings[i]
		if s.peak, err = run(s.machine, s.server, sim.Backlog(t.all)); err != nil {
			return s, fmt.Errorf("%s: %w", study, err)
		}
		if s.load, err = run(s.machine, s.server, l.open(rate, t.of(s.server))); err != nil {
			return s, fmt.Errorf("%s: %w", study, err)
		}
		return s, nil
	})
	for _, s := range settings {
		l.keep(study, h, s.server, s.name+", backlog", s.peak)
		l.keep(study, h, s.server, s.name+", "+number(rate)+"/s", s.load)
	}
	return settings, err
}

// batchSizes varies the largest batch.
func (l *lab) batchSizes(ctx context.Context, h *hardware, rate float64) ([]setting, error) {
	var settings []setting
	for _, s := range chainServers(1) {
		for _, rows := range h.rows {
			settings = append(settings, setting{
				name: fmt.Sprintf("%d rows", rows), machine: limit(h.machine(lstm, 1), rows), server: s,
			})
		}
	}
	return l.vary(ctx, "largest batch", h, l.drawn(lstm, h), rate, settings)
}

// aheads are the depths of look-ahead that are compared.
func aheads() []int { return []int{1, 2, 5, 10, 50} }

// lookAheads varies how many batches an executor is given at once, with the
// machine's own rounds and with slow ones.
func (l *lab) lookAheads(ctx context.Context, h *hardware, rate float64) ([]setting, error) {
	var settings []setting
	for _, round := range []time.Duration{h.round, h.slowRound} {
		for _, name := range []string{nameCellular, nameAlgorithm} {
			for _, k := range aheads() {
				m := h.machine(lstm, 1)
				m.RoundOverhead = round
				s := server{name, sim.Algorithm1{LookAhead: k}}
				if name == nameCellular {
					m.Cells[0].LookAhead = k
					s.policy = sim.Cellular{}
				}
				settings = append(settings, setting{name: fmt.Sprintf("look-ahead %d, rounds of %s", k, microseconds(round)), machine: m, server: s})
			}
		}
	}
	some := l.drawn(lstm, h).some // there are no buckets here
	return l.vary(ctx, "look-ahead", h, traffic{all: some, some: some}, rate, settings)
}

// prioritiesLoads are shares of the peak.
func prioritiesLoads() []float64 { return []float64{0.3, 0.6, 0.85} }

// priority is one line of the table of priorities.
type priority struct {
	executors int
	load      float64
	outcomes  []outcome // of priorityServers
}

// priorityServers are the orders of the cells of a sequence-to-sequence network.
func priorityServers() []server {
	decoder, encoder := []int{sim.Encoder: 0, sim.Decoder: 1}, []int{sim.Encoder: 1, sim.Decoder: 0}
	return []server{
		{"decoder first", sim.Algorithm1{LookAhead: lookAhead, Priority: decoder}},
		{"decoder first, no second tier", sim.Algorithm1{LookAhead: lookAhead, Priority: decoder, Shared: true}},
		{"encoder first", sim.Algorithm1{LookAhead: lookAhead, Priority: encoder}},
		{"oldest request first", sim.Algorithm1{LookAhead: lookAhead}},
		{nameCellular, sim.Cellular{}},
	}
}

// priorities varies which cell goes first. Loads are shares of the peak of
// oldest request first.
func (l *lab) priorities(ctx context.Context, h *hardware) ([]priority, error) {
	const oldest = 3
	shapes, servers := l.draw(seq2seq, l.few(h)), priorityServers()
	var lines []priority
	for _, executors := range []int{1, 2, 4} {
		m := h.machine(seq2seq, executors)
		peak, err := run(m, servers[oldest], sim.Backlog(shapes))
		if err != nil {
			return nil, fmt.Errorf("priorities: %w", err)
		}
		for _, load := range prioritiesLoads() {
			trace := l.open(load*peak.throughput, shapes)
			outcomes, err := each(ctx, len(servers), func(i int) (outcome, error) { return run(m, servers[i], trace) })
			if err != nil {
				return nil, fmt.Errorf("priorities: %w", err)
			}
			for i, o := range outcomes {
				l.keep("priorities", h, servers[i], fmt.Sprintf("%d executors, %.0f %%", executors, 100*load), o)
			}
			lines = append(lines, priority{executors: executors, load: load, outcomes: outcomes})
		}
	}
	return lines, nil
}
