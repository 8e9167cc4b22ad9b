package batchmaker

import (
	"context"
	"fmt"

	"github.com/cellmq/cellmq/cellrt/sim"
)

// results is everything that was run.
type results struct {
	options Options
	lab     *lab
	sides   []*side
}

// side is everything that was run on one machine.
type side struct {
	*hardware
	lstm, seq2seq, tree, widths, fixed *contest
	// rate is that of the ablations: what all servers keep up with.
	rate       float64
	batchSizes []setting
	lookAheads []setting
	priorities []priority
	building   []outcome
	identical  identical
}

// Virtual runs the comparison under the virtual clock and returns the files of
// its report by their names: a page of Markdown, plots, and a table of all
// runs. Equal options give equal files, whatever the machine. Say is told what
// is being run, a line at a time.
func Virtual(ctx context.Context, o Options, say func(line string)) (map[string][]byte, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	devices, err := hardwares()
	if err != nil {
		return nil, err
	}
	l := &lab{seeds: seeds{o.Seed}, requests: o.Scale.requests()}
	r := &results{options: o, lab: l}
	for _, h := range devices {
		s := &side{hardware: h}
		for _, study := range []struct {
			name string
			run  func(context.Context, *lab) error
		}{{"LSTM", s.runLSTM}, {"sequence to sequence", s.runSeq2Seq}, {"trees", s.runTrees}, {"ablations", s.runAblations}} {
			say(fmt.Sprintf("%s: %s", h.title, study.name))
			if err := study.run(ctx, l); err != nil {
				return nil, fmt.Errorf("%s: %w", h.title, err)
			}
		}
		r.sides = append(r.sides, s)
	}
	return r.files()
}

func (s *side) runLSTM(ctx context.Context, l *lab) error {
	m, t := s.machine(lstm, 1), l.drawn(lstm, s.hardware)
	s.lstm = &contest{study: "LSTM", hardware: s.hardware, machine: m, traffic: t, servers: chainServers(1)}
	s.widths = &contest{study: "bucket widths", hardware: s.hardware, machine: m, traffic: t, servers: widthServers()}
	batches := (l.few(s.hardware) + m.Cells[0].MaxRows - 1) / m.Cells[0].MaxRows
	equal := same(sim.Steps(fixedLength), batches*m.Cells[0].MaxRows)
	s.fixed = &contest{
		study: "fixed length", hardware: s.hardware, machine: m,
		traffic: traffic{all: equal, some: equal}, servers: fixedServers(),
	}
	if err := l.compare(ctx, s.lstm); err != nil {
		return err
	}
	s.widths.known = &s.lstm.lines[0]
	if err := l.compare(ctx, s.widths); err != nil {
		return err
	}
	return l.compare(ctx, s.fixed)
}

func (s *side) runSeq2Seq(ctx context.Context, l *lab) (err error) {
	s.seq2seq = &contest{
		study: "sequence to sequence", hardware: s.hardware, machine: s.machine(seq2seq, 1),
		traffic: l.drawn(seq2seq, s.hardware), servers: chainServers(2),
	}
	if err = l.compare(ctx, s.seq2seq); err != nil {
		return err
	}
	s.priorities, err = l.priorities(ctx, s.hardware)
	return err
}

func (s *side) runTrees(ctx context.Context, l *lab) (err error) {
	m, shapes := s.machine(tree, 1), l.draw(tree, l.few(s.hardware))
	s.tree = &contest{study: "trees", hardware: s.hardware, machine: m, traffic: traffic{all: shapes, some: shapes}, servers: treeServers(m)}
	if err = l.compare(ctx, s.tree); err != nil {
		return err
	}
	if s.building, err = l.building(ctx, s.hardware); err != nil {
		return err
	}
	s.identical, err = l.identicalTrees(ctx, s.hardware)
	return err
}

func (s *side) runAblations(ctx context.Context, l *lab) (err error) {
	s.rate = s.lstm.common
	if s.batchSizes, err = l.batchSizes(ctx, s.hardware, s.rate); err != nil {
		return err
	}
	s.lookAheads, err = l.lookAheads(ctx, s.hardware, s.rate)
	return err
}

// bucketWidths are the widths of buckets that are compared.
func bucketWidths() []int { return []int{1, 2, 5, 10, 20, 40, 80} }

func nameOfWidth(width int) string {
	if width == 10 {
		return nameTurn
	}
	return fmt.Sprintf("buckets of %d, in turn", width)
}

func widthServers() []server {
	servers := []server{{nameCellular, sim.Cellular{}}}
	for _, w := range bucketWidths() {
		servers = append(servers, server{nameOfWidth(w), sim.Padded{Width: w}})
	}
	return servers
}

// nameExact is of buckets that need no padding, since there is one length.
const nameExact = "batches of one length"

func fixedServers() []server {
	return []server{
		{nameCellular, sim.Cellular{}},
		{nameAlgorithm, sim.Algorithm1{LookAhead: lookAhead}},
		{nameExact, sim.Padded{Width: fixedLength}},
	}
}
