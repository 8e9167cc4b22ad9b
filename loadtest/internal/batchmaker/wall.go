package batchmaker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/sim"
	"github.com/cellmq/cellmq/loadtest/internal/batching"
	"github.com/cellmq/cellmq/loadtest/internal/plot"
)

// WallOptions are what is measured by the clock on the wall.
type WallOptions struct {
	// Seed is where weights, lengths, trees and arrivals begin.
	Seed uint64
	// Hidden is the size of embeddings and states.
	Hidden int
	// Duration is how long requests arrive in each run.
	Duration time.Duration
	// Rounds is how often everything is measured; figures are medians.
	Rounds int
	// CPU returns the processor time that the process has used. Nil, or where Linux
	// does not tell that of the machine: what other programs used is not known.
	CPU func() time.Duration
	// Command is what the report says it was made with.
	Command string
}

// WallScale returns the options of a scale, on one executor of one thread.
func WallScale(scale Scale, seed uint64, command string) WallOptions {
	o := WallOptions{Seed: seed, Hidden: 512, Duration: 2 * time.Second, Rounds: 2, Command: command}
	if scale == Quick {
		o.Duration, o.Rounds = 200*time.Millisecond, 1
	}
	return o
}

// The names of the files of what the clock on the wall says.
const (
	wallPage  = "batchmaker-wallclock.md"
	wallFiles = "batchmaker-wallclock"
)

// wallStudy is one comparison.
type wallStudy struct {
	key, title, text string
	options          batching.Options
}

// studies returns the comparisons.
func (o WallOptions) studies() []wallStudy {
	turn, tight, merged := batching.Baseline{}, batching.Baseline{Order: sim.LongestQueue, Tight: true}, batching.Baseline{Merged: true}
	base := batching.Options{
		Hidden: o.Hidden, Duration: o.Duration, Rounds: o.Rounds, Width: 10, Seed: o.Seed,
		Loads: []float64{0.1, 0.3, 0.5, 0.7, 0.9}, Shape: cellrt.Shape{Executors: 1, Threads: 1},
	}
	chains, trees, widths, fixed := base, base, base, base
	chains.Models, chains.Baselines = []string{batching.LSTM, batching.Seq2Seq}, []batching.Baseline{turn, tight, merged}
	trees.Models, trees.Baselines = []string{batching.Tree}, []batching.Baseline{merged}
	widths.Models, widths.Loads = []string{batching.LSTM}, nil
	for _, w := range []int{1, 5, 20, 40} {
		widths.Baselines = append(widths.Baselines, batching.Baseline{Width: w})
	}
	fixed.Models, fixed.Baselines = []string{batching.LSTM}, []batching.Baseline{{Width: fixedLength}}
	fixed.Length, fixed.Loads = fixedLength, batching.DefaultLoads()
	return []wallStudy{
		{"chains", "LSTM and sequence to sequence", "", chains},
		{"trees", "TreeLSTM", "Merging costs what finding the nodes of the next depth costs here; a framework does more.", trees},
		{"widths", "Widths of buckets", "Throughput with a backlog only.", widths},
		{"fixed", "One length", fmt.Sprintf("All requests have %d steps: nothing is padded.", fixedLength), fixed},
	}
}

// Wall measures the comparison with the real runtime and real kernels, and
// returns the files of its report. They are of this machine at this time.
func Wall(ctx context.Context, o WallOptions, say func(line string)) (map[string][]byte, error) {
	d := &document{files: map[string][]byte{}}
	began := time.Now()
	before := o.usage()
	var reports []*batching.Report
	for _, s := range o.studies() {
		say(s.title)
		r, err := batching.Compare(ctx, s.options, say)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.title, err)
		}
		reports = append(reports, r)
	}
	o.introduction(d, reports[0].Host, share(before, o.usage(), time.Since(began)), time.Since(began))
	if err := wallHeadline(d, reports); err != nil {
		return nil, err
	}
	for i, s := range o.studies() {
		d.paragraph("## %s", s.title)
		if s.text != "" {
			d.paragraph("%s", s.text)
		}
		for j := range reports[i].Models {
			if err := d.wallCurve(s.key, &reports[i].Models[j]); err != nil {
				return nil, err
			}
		}
		d.paragraph("%s", strings.TrimSpace(reports[i].Markdown()))
	}
	d.files[wallPage] = []byte(strings.TrimRight(d.text.String(), "\n") + "\n")
	return d.files, nil
}

// busy is the share of the machine that other programs may use before the page warns.
const busy = 0.1

// introduction says where the figures come from, and what share of the machine other
// programs used meanwhile; negative: nobody knows.
func (o WallOptions) introduction(d *document, h batching.Host, others float64, took time.Duration) {
	d.paragraph("# BatchMaker's comparison, by the clock on the wall")
	d.paragraph(`The comparison of [the virtual page](%s) with the real runtime and real kernels, as far as one core of a processor can show it. All
servers run the same cells on the same kernels and give the same answers, bit by bit. They take turns, round by round, so trust ratios and not the
figures themselves.`, pageName)
	d.paragraph("```\n%s\n```", o.Command)
	used := "What other programs used of the machine meanwhile is not known."
	if others >= 0 {
		used = fmt.Sprintf("Other programs used %s of the machine meanwhile.", percent(others))
	}
	d.paragraph("%s, %d cores, %s, commit %s. %s of arrivals a run, rounds: %d; it took %s. %s",
		h.CPU, h.Cores, h.Go, cmp.Or(h.Commit, "unknown"), o.Duration, o.Rounds, took.Round(time.Second), used)
	if others > busy {
		d.paragraph(`**Other programs disturbed this.** These figures show that the comparison runs, and little else: run the command again where
nothing else does.`)
	}
}

// wallHeadline puts ratios beside those of the virtual core and the paper.
func wallHeadline(d *document, reports []*batching.Report) error {
	core, err := newCore()
	if err != nil {
		return err
	}
	var rows [][]string
	for _, r := range reports {
		for i := range r.Models {
			m := &r.Models[i]
			for j := range m.Saturation[1:] {
				s := &m.Saturation[j+1]
				row := []string{m.Name, s.Server, times(m.Saturation[0].Throughput / s.Throughput), percent(s.Padding)}
				for _, load := range []float64{0.1, 0.3, 0.5, 0.7, 0.9} {
					row = append(row, tailRatio(m, j+1, load))
				}
				rows = append(rows, row)
			}
		}
	}
	d.paragraph("## The ratios side by side")
	d.paragraph(`cellmq's throughput with a backlog, and its p90 at rates that are shares of the best baseline's throughput, each divided by the server's. The
paper's figures and those of virtual time are on [the virtual page](%s), whose core has steps of the kind that run here: an LSTM step of one row
takes %s, one of %d rows %s.`, pageName, microseconds(core.machine(lstm, 1).Cost(0, 1)), leastRows, microseconds(core.machine(lstm, 1).Cost(0, leastRows)))
	d.table(2, []string{"network", "server", "throughput", "padding", "p90 at 10 %", "30 %", "50 %", "70 %", "90 %"}, rows)
	return nil
}

// tailRatio returns what cellmq's p90 is of a server's at a load.
func tailRatio(m *batching.Model, server int, load float64) string {
	for _, l := range m.Loads {
		if l.Share == load {
			if l.Servers[0].P90 == 0 || l.Servers[server].P90 == 0 {
				return none // of too few requests
			}
			return times(l.Servers[0].P90 / l.Servers[server].P90)
		}
	}
	return none
}

// wallCurve draws p90 over the rate.
func (d *document) wallCurve(study string, m *batching.Model) error {
	f := &plot.Figure{
		Title: m.Name, Subtitle: "one core, by the clock on the wall: p90 of the latency against the rate of arrivals",
		XLabel: "requests/s", YLabel: "p90 of the latency, ms", LogY: true,
	}
	for i := range m.Saturation {
		s := plot.Series{Name: m.Saturation[i].Server, Markers: true}
		for _, l := range m.Loads {
			if p90 := l.Servers[i].P90; p90 > 0 {
				s.X, s.Y = append(s.X, round(l.Rate)), append(s.Y, round(p90))
			}
		}
		if len(s.X) > 0 {
			f.Series = append(f.Series, s)
		}
	}
	name := study + "-" + m.Name + ".svg"
	var b bytes.Buffer
	if err := f.WriteSVG(&b); errors.Is(err, plot.ErrNothing) {
		return nil // no loads
	} else if err != nil {
		return fmt.Errorf("figure %s: %w", name, err)
	}
	d.files[wallFiles+"/"+name] = b.Bytes()
	d.paragraph("![%s: %s](%s/%s)", f.Title, f.Subtitle, wallFiles, name)
	return nil
}
