package batchmaker

import (
	"fmt"
	"strconv"

	"github.com/cellmq/cellmq/loadtest/internal/plot"
)

func (r *results) treeSection(d *document) error {
	d.paragraph("## TreeLSTM")
	d.paragraph(`Trees have no length to put into a bucket; frameworks merge their graphs. What that costs is the framework's: it is nothing in one line here, and as
much as a row of a full batch of inner nodes for each node in another.`)
	for _, s := range r.sides {
		c := s.tree
		if err := d.curves("tree", "TreeLSTM", c); err != nil {
			return err
		}
		i := c.find(nameMerged)
		least, most := c.reductions(i, 90)
		d.paragraph(`*What to see*: cellmq has %s of the peak of merged graphs that cost nothing, and a p90 that is %s.`,
			times(c.peakRatio(i)), lower(least, most))
		d.standings(c)
		if err := d.distribution("tree-latency", "TreeLSTM: latency", c, latencies); err != nil {
			return err
		}
		d.tails(c)
	}
	r.buildingTable(d)
	r.identicalTable(d)
	return nil
}

func (r *results) buildingTable(d *document) {
	d.paragraph("### What merging costs")
	d.paragraph("How many times the peak of merged graphs cellmq has, when building and merging a node takes as long as so many rows of a full batch of inner nodes:")
	columns := []string{"machine"}
	for _, b := range builds() {
		columns = append(columns, fmt.Sprintf("%g rows", b))
	}
	var rows [][]string
	for _, s := range r.sides {
		row := []string{s.title}
		for i := range s.building {
			row = append(row, times(s.tree.lines[0].peak.throughput/s.building[i].throughput))
		}
		rows = append(rows, row)
	}
	d.table(1, columns, rows)
	d.paragraph(`*What to see*: the paper's 1.8x over DyNet and 4x over Fold (confidence medium) are not in the batching alone. They need frameworks that
spend about as long on a node's graph as on computing it, or several times as long.`)
}

func (r *results) identicalTable(d *document) {
	d.paragraph("### Identical trees")
	d.paragraph(`With a backlog of one tree of %d leaves, over and over, an ideal server merges as many trees as is best, and pays nothing for it:`, fixedLeaves)
	var rows [][]string
	for _, s := range r.sides {
		i := &s.identical
		rows = append(rows, []string{
			s.title, number(i.ideal.throughput), strconv.Itoa(i.requests),
			fmt.Sprintf("%s (%s)", number(i.cellular.throughput), times(i.cellular.throughput/i.ideal.throughput)),
			fmt.Sprintf("%s (%s)", number(i.paper.throughput), times(i.paper.throughput/i.ideal.throughput)),
		})
	}
	d.table(1, []string{"machine", "ideal, requests/s", "trees at once", nameCellular, nameAlgorithm}, rows)
	d.paragraph(`*What to see*: what cellular batching loses where nothing is unknown: overheads for each step, and batches of inner nodes that are not full.`)
}

func (r *results) batchSizeSection(d *document) error {
	d.paragraph("## The largest batch")
	d.paragraph(`LSTM; each server with several limits of its batch. The paper's is 512 for the LSTM, and it tries 64 (confidence medium).`)
	for _, s := range r.sides {
		f := &plot.Figure{
			Title: "LSTM: the largest batch", Subtitle: fmt.Sprintf("%s, virtual time, %s requests/s", s.title, number(s.rate)),
			XLabel: "rows of the largest batch", YLabel: "p90 of the latency, ms", LogX: true, LogY: true,
		}
		columns := []string{"server"}
		for _, n := range s.hardware.rows {
			columns = append(columns, fmt.Sprintf("%d rows", n))
		}
		var rows [][]string
		for begin := 0; begin < len(s.batchSizes); begin += len(s.hardware.rows) {
			of := s.batchSizes[begin : begin+len(s.hardware.rows)]
			series, row := plot.Series{Name: of[0].server.name, Markers: true}, []string{of[0].server.name}
			for i := range of {
				row = append(row, fmt.Sprintf("%s; %s", number(of[i].peak.throughput), kept(&of[i].load, 90)))
				if of[i].load.sustained() {
					series.X, series.Y = append(series.X, float64(s.hardware.rows[i])), append(series.Y, round(of[i].load.p(90)))
				}
			}
			f.Series, rows = append(f.Series, series), append(rows, row)
		}
		if err := d.figure("rows-"+s.key, f); err != nil {
			return err
		}
		d.paragraph("%s: peak, requests/s; p90, ms, at %s requests/s:", s.title, number(s.rate))
		d.table(1, columns, rows)
	}
	d.paragraph(`*What to see*: a limit that is too low costs throughput, and then latency. One that is too high costs cellular batching nothing at this load, since
nobody waits for a batch to fill.`)
	return nil
}

func (r *results) lookAheadSection(d *document) error {
	d.paragraph("## Look-ahead")
	d.paragraph(`The paper gives an executor up to five batches at once (` + "`MaxTasksToSubmit`" + `, stated widely), which hides what a round of scheduling
costs and makes newcomers wait. In cellmq a cell has a look-ahead of its own, 1 unless it says otherwise, and batches of one row are not given ahead.`)
	for _, s := range r.sides {
		f := &plot.Figure{
			Title: "LSTM: look-ahead", Subtitle: fmt.Sprintf("%s, virtual time, %s requests/s", s.title, number(s.rate)),
			XLabel: "batches given at once", YLabel: "p90 of the latency, ms", LogX: true,
		}
		columns := []string{"server", "round", "what"}
		for _, k := range aheads() {
			columns = append(columns, strconv.Itoa(k))
		}
		var rows [][]string
		for begin := 0; begin < len(s.lookAheads); begin += len(aheads()) {
			of := s.lookAheads[begin : begin+len(aheads())]
			round := microseconds(of[0].machine.RoundOverhead)
			f.Series = append(f.Series, aheadSeries(of, of[0].server.name+", rounds of "+round))
			rows = append(rows, aheadRows(of, round)...)
		}
		if err := d.figure("look-ahead-"+s.key, f); err != nil {
			return err
		}
		d.paragraph("%s, latencies at %s requests/s:", s.title, number(s.rate))
		d.table(3, columns, rows)
	}
	d.paragraph(`*What to see*: where rounds cost little, look-ahead brings next to no throughput, and deep look-ahead costs latency. Where rounds cost half of a
step, a few batches at once help.`)
	return nil
}

// aheadSeries returns p90 over the depth.
func aheadSeries(of []setting, name string) plot.Series {
	series := plot.Series{Name: name, Markers: true}
	for i := range of {
		if of[i].load.sustained() {
			series.X, series.Y = append(series.X, float64(aheads()[i])), append(series.Y, round(of[i].load.p(90)))
		}
	}
	return series
}

// aheadRows returns the lines of the table of look-ahead for one server.
func aheadRows(of []setting, round string) [][]string {
	peak := []string{of[0].server.name, round, "peak, requests/s"}
	median, tail := []string{"", "", "p50, ms"}, []string{"", "", "p90, ms"}
	for i := range of {
		peak = append(peak, number(of[i].peak.throughput))
		median, tail = append(median, kept(&of[i].load, 50)), append(tail, kept(&of[i].load, 90))
	}
	return [][]string{peak, median, tail}
}

// differences says where this is not the paper.
func differences(d *document) {
	d.paragraph("## How this differs from the paper")
	d.line("- The paper measured systems on V100 accelerators. Here a model of the cost of steps stands for the machine; no kernel runs.")
	d.line("- Its lengths were those of WMT-15 sentences and of the Stanford Sentiment Treebank (confidence medium); here laws with similar moments.")
	d.line("- Its baselines were MXNet, TensorFlow, Fold and DyNet with all their overheads; here all servers pay the same for a step, and merged graphs")
	d.line("  what is said above. So a ratio here is what batching alone brings.")
	d.line("- Its decoder ends at a token that nobody foresees; here the trace says how long a target is, and no step is computed in vain.")
	d.line("- On a core the gain is smaller than on an accelerator at high load, because rows cost the same from a batch of eight on: there is padding to save and")
	d.line("  little else. At low load a request beside others takes longer than alone, and cellmq's p90 can be above that of a server that runs one")
	d.line("  request after the other.")
	d.line("- %s is a reconstruction; its tie-breaks and its smallest profitable batch (1 here) are guesses.", nameAlgorithm)
}
