package batchmaker

import (
	"fmt"
	"strconv"

	"github.com/cellmq/cellmq/loadtest/internal/plot"
)

func (r *results) batchSizeSection(d *document) error {
	d.paragraph("## The largest batch")
	d.paragraph(`LSTM; each server with several limits of its batch. The paper's is 512 for the LSTM, and it tries 64 (confidence medium).`)
	for _, s := range r.sides {
		f := &plot.Figure{
			Title: "LSTM: the largest batch", Subtitle: fmt.Sprintf("%s, virtual time, %s requests/s", s.title, number(s.rate)),
			XLabel: "rows of the largest batch", YLabel: "p90 of the latency, ms", LogX: true, LogY: true,
		}
		columns := []string{"server; rows at most:"}
		for _, n := range s.rows {
			columns = append(columns, strconv.Itoa(n))
		}
		var rows [][]string
		for begin := 0; begin < len(s.batchSizes); begin += len(s.rows) {
			of := s.batchSizes[begin : begin+len(s.rows)]
			series, row := plot.Series{Name: of[0].server.name, Markers: true}, []string{of[0].server.name}
			for i := range of {
				row = append(row, fmt.Sprintf("%s; %s", number(of[i].peak.throughput), kept(&of[i].load, 90)))
				if of[i].load.sustained() {
					series.X, series.Y = append(series.X, float64(s.rows[i])), append(series.Y, round(of[i].load.p(90)))
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
	d.line("- The longest queue first lets rare lengths wait for long: its p99 is the price of its throughput, which the p90 of the curves does not show.")
	d.line("- Its decoder ends at a token that nobody foresees; here the trace says how long a target is, and no step is computed in vain.")
	d.line("- On a core the gain is smaller than on an accelerator, because rows cost the same from a batch of eight on: there is padding to save and little else.")
	d.line("- %s is a reconstruction; its tie-breaks and its smallest profitable batch (1 here) are guesses.", nameAlgorithm)
}
