package batchmaker

import (
	"fmt"
	"strings"
)

// files writes the report.
func (r *results) files() (map[string][]byte, error) {
	d := &document{files: map[string][]byte{}}
	r.introduction(d)
	r.headline(d)
	for _, section := range []func(*document) error{
		r.lstmSection, r.widthSection, r.fixedSection, r.seq2seqSection, r.prioritySection,
		r.treeSection, r.batchSizeSection, r.lookAheadSection,
	} {
		if err := section(d); err != nil {
			return nil, err
		}
	}
	differences(d)
	d.files[pageName] = []byte(strings.TrimRight(d.text.String(), "\n") + "\n")
	d.files[pointsName] = r.lab.csv()
	return d.files, nil
}

func (r *results) introduction(d *document) {
	d.paragraph("# BatchMaker's comparison, reproduced in virtual time")
	d.paragraph(`BatchMaker (Gao, Yu, Wu and Li, *Low Latency RNN Inference with Cellular Batching*, EuroSys 2018) batches recurrent networks by
the cell instead of by the request. Its evaluation compares that with padded buckets, as MXNet and TensorFlow batch, and with
merged graphs, as TensorFlow Fold and DyNet do. This page runs the same comparison with cellmq's scheduler, under a virtual clock.
The same seed gives the same page, to the byte, on every machine:`)
	d.paragraph("```\ngo run ./loadtest repro batchmaker --virtual-only --scale %s --seed %d --dir docs/repro\n```", r.options.Scale, r.options.Seed)
	d.paragraph(`All runs are in [a table](%s), also those that no plot shows. What the clock on the wall says is on
[a page of its own](batchmaker-wallclock.md).`, pointsName)

	d.paragraph("## What is compared")
	d.table(2, []string{"server", "what it does"}, [][]string{
		{nameCellular, "the scheduler that workers run ([cellrt](../../cellrt/doc.go)): a request joins at the next step and leaves after its last"},
		{nameAlgorithm, fmt.Sprintf("the paper's scheduler, rebuilt from public descriptions: later cells first, %d batches at once (`MaxTasksToSubmit`)", lookAhead)},
		{nameTurn, "the paper's baseline: requests whose lengths are in one range of 10 run together, padded to its upper end, bucket after bucket"},
		{nameTight, "the same at its best: the bucket with most requests, padded to the longest of the batch only"},
		{"merged graphs", "the graphs of a batch of requests are merged, so that nodes of one cell at one depth run together; nothing is padded, nobody joins"},
	})
	for _, s := range r.sides {
		d.line("- %s: %s requests arrive at a server, and %d times as many at one with buckets, which have to fill.", s.title, number(float64(r.lab.few(s.hardware))), patience)
	}
	d.paragraph("\nAll of them pay the same for a step. Two machines say what:")
	for _, s := range r.sides {
		s.describe(d)
	}
	d.paragraph(`Lengths follow round(lognormal(ln %d, %.2f)), clipped to 1 to %d, like the sentences of Europarl: mean 25, p90 47, p99 93.
A target is as long as its source times a log-normal factor with a deviation of %.2f. Trees have round(lognormal(ln %d, %.1f)) leaves, 1 to
%d, like sentences of a treebank, and neighbours are joined in a random order. Requests arrive independently of each other (Poisson).
A server *keeps up* with a rate when, from the second quarter of the run to the last, the number of requests in it grows by at most %.0f %% of those
that arrive. Its *peak* is the throughput with a backlog of all requests, and *padding* the rows computed beside each 100 nodes there.`, medianLength, lengthSigma, longestLength, targetSigma, medianLeaves, leavesSigma, mostLeaves, 100*mostGrowth)
}

// describe says what a machine is.
func (s *side) describe(d *document) {
	what := `a straight line through what the paper's accelerator is remembered to take for an LSTM step of hidden size 1024, 185 us with 64 rows and
784 us with 512 (confidence low); the other cells by their multiplications. A step of one row costs as much as 75 further rows: batching is worth
almost everything.`
	if s.key == "core" {
		what = `[steps that were measured](../../loadtest/internal/batchmaker/core.csv) on one core with AVX-512 and hidden size 512
(` + "`go run ./loadtest repro costs`" + `). Up to four rows cost little more than one, and from eight on all cost the same: batching is worth four times
the throughput, and no more.`
	}
	d.paragraph("- **%s**: %s %s", s.title, what, s.limits())
}

// limits says what else a machine has.
func (s *side) limits() string {
	var parts []string
	for _, network := range []string{lstm, seq2seq, tree} {
		for _, c := range s.networks[network] {
			parts = append(parts, fmt.Sprintf("%s %s %d", network, c.Name, c.MaxRows))
		}
	}
	return fmt.Sprintf("Rounds cost %s and steps %s beside that. Largest batches: %s.", microseconds(s.round), microseconds(s.step), strings.Join(parts, ", "))
}

// headline puts the paper's figures beside these.
func (r *results) headline(d *document) {
	d.paragraph("## The figures side by side")
	d.paragraph(`The paper's abstract claims lower latency and higher throughput. Its figures below are from memory of its text, which was not at hand: the
confidence says how sure that memory is. cellmq's are ratios of peaks and, in brackets, of the highest rates that were kept up with.`)
	core, accelerator := r.sides[0], r.sides[1]
	row := func(what, paper, confidence string, of func(*side) string) []string {
		return []string{what, paper, confidence, of(core), of(accelerator)}
	}
	ratio := func(pick func(*side) *contest, name string) func(*side) string {
		return func(s *side) string {
			c := pick(s)
			i := c.find(name)
			return fmt.Sprintf("%s (%s)", times(c.peakRatio(i)), times(c.sustainedRatio(i)))
		}
	}
	reduction := func(pick func(*side) *contest, name string) func(*side) string {
		return func(s *side) string {
			c := pick(s)
			least, most := c.reductions(c.find(name))
			return lower(least, most)
		}
	}
	building := func(s *side) string {
		m := s.machine(tree, 1)
		return ratio(trees, mergedBuilding(m, 1).name)(s)
	}
	d.table(1, []string{"what", "paper", "confidence", core.title, accelerator.title}, [][]string{
		row("LSTM, throughput against buckets of 10, in turn", "1.25x", "medium", ratio(lstms, nameTurn)),
		row("LSTM, throughput against the best buckets of 10", none, none, ratio(lstms, nameTight)),
		row("sequence to sequence, throughput against buckets of 10, in turn", "1.6x", "medium", ratio(seq2seqs, nameTurn)),
		row("sequence to sequence, throughput against the best buckets of 10", none, none, ratio(seq2seqs, nameTight)),
		row("LSTM, p90 beside that of buckets of 10, in turn", "17.5 % to 90.5 % lower, both networks", "medium", reduction(lstms, nameTurn)),
		row("sequence to sequence, the same", "17.5 % to 90.5 % lower, both networks", "medium", reduction(seq2seqs, nameTurn)),
		row("sequence to sequence, p90 beside that of the best buckets of 10", none, none, reduction(seq2seqs, nameTight)),
		row("one length, throughput against batches without padding", "slightly less than 1x", "medium, no figure", ratio(fixeds, nameExact)),
		row("trees, throughput against merged graphs that cost nothing to build", none, none, ratio(trees, nameMerged)),
		row("trees, against merged graphs whose nodes cost a row each to build", "1.8x DyNet, 4x Fold", "medium", building),
		row("trees, p90 beside that of free merged graphs", "28 % (DyNet), 87 % (Fold) lower", "medium", reduction(trees, nameMerged)),
	})
	d.paragraph(`Latencies are compared at every offered rate that both servers keep up with, from 5 %% of cellmq's peak on. The table has the
least and the most.`)
}

func lstms(s *side) *contest    { return s.lstm }
func seq2seqs(s *side) *contest { return s.seq2seq }
func trees(s *side) *contest    { return s.tree }
func fixeds(s *side) *contest   { return s.fixed }

// standings writes the table of a contest.
func (d *document) standings(c *contest) {
	columns := []string{"server", "peak, requests/s", "cellmq has", "keeps up with", "cellmq has", "padding", "rows a step"}
	picked := []int{1, 3, 5, 7, 9} // of the shares
	for _, i := range picked {
		columns = append(columns, fmt.Sprintf("p90, ms, at %.0f %%", 100*shares()[i]))
	}
	var rows [][]string
	for i := range c.lines {
		line := &c.lines[i]
		row := []string{
			line.name, number(line.peak.throughput), times(c.peakRatio(i)), number(line.sustained), times(c.sustainedRatio(i)),
			percent(line.peak.padding), number(line.peak.rowsPerStep),
		}
		for _, j := range picked {
			row = append(row, kept(&line.points[j], 90))
		}
		rows = append(rows, row)
	}
	d.paragraph("%s, latencies at shares of cellmq's peak (%s: the server does not keep up):", c.hardware.title, none)
	d.table(1, columns, rows)
}

// tails writes the percentiles at the rate that all servers keep up with.
func (d *document) tails(c *contest) {
	var rows [][]string
	for i := range c.lines {
		o := &c.atCommon[i]
		row := []string{c.lines[i].name}
		for _, p := range []int{50, 90, 99} {
			row = append(row, number(o.p(p)))
		}
		for _, p := range []int{50, 90, 99} {
			row = append(row, number(milliseconds(o.queueing[p-1])))
		}
		for _, p := range []int{50, 90, 99} {
			row = append(row, number(milliseconds(o.computing[p-1])))
		}
		rows = append(rows, row)
	}
	d.paragraph("%s, at %s requests/s, %.0f %% of what every server keeps up with; milliseconds:", c.hardware.title, number(c.common), 100*commonShare)
	d.table(1, []string{"server", "p50", "p90", "p99", "queueing p50", "p90", "p99", "computing p50", "p90", "p99"}, rows)
}
