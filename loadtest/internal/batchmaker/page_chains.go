package batchmaker

import (
	"fmt"
	"strconv"
)

func (r *results) lstmSection(d *document) error {
	d.paragraph("## LSTM")
	for _, s := range r.sides {
		c := s.lstm
		if err := d.curves("lstm", "LSTM", c); err != nil {
			return err
		}
		turn, tight := c.find(nameTurn), c.find(nameTight)
		_, most := c.reductions(turn)
		d.paragraph(`*What to see*: the lines of %s and of %s lie together and below the others, and end furthest to the right: at %s and %s times the
rate that the two kinds of buckets keep up with. p90 is up to %s lower than that of the buckets in turn.`,
			nameCellular, nameAlgorithm, number(c.sustainedRatio(turn)), number(c.sustainedRatio(tight)), percent(most))
		d.standings(c)
	}
	d.paragraph("### Where the time goes")
	d.paragraph(`*Queueing* is the time until the first step that a request is part of, *computing* the rest of the latency, with the waits between its steps.`)
	for _, s := range r.sides {
		c := s.lstm
		for _, f := range []struct {
			name, title string
			of          func(*outcome) *[100]float64
		}{{"lstm-latency", "LSTM: latency", latencies}, {"lstm-queueing", "LSTM: queueing", queueings}, {"lstm-computing", "LSTM: computing", computings}} {
			if err := d.distribution(f.name, f.title, c, f.of); err != nil {
				return err
			}
		}
		turn := &c.atCommon[c.find(nameTurn)]
		first := &c.atCommon[0]
		d.paragraph(`*What to see*: half of the requests wait less than %s ms for their first step in %s, and %s ms in buckets in turn. The
gain is there: nobody waits for a batch to end. The paper splits its latencies in the same way (confidence medium).`,
			number(milliseconds(first.queueing[49])), nameCellular, number(milliseconds(turn.queueing[49])))
		d.tails(c)
	}
	return nil
}

func (r *results) widthSection(d *document) error {
	d.paragraph("## Widths of buckets")
	d.paragraph("Narrow buckets hardly ever fill, wide ones are padding. The paper's are 10 wide; it tries others (confidence medium).")
	for _, s := range r.sides {
		c := s.widths
		if err := d.curves("widths", "LSTM, buckets of several widths in turn", c); err != nil {
			return err
		}
		best, quickest := 1, 1
		for i := range c.lines[1:] {
			if c.lines[i+1].peak.throughput > c.lines[best].peak.throughput {
				best = i + 1
			}
			if c.lines[i+1].sustained > c.lines[quickest].sustained {
				quickest = i + 1
			}
		}
		d.paragraph(`*What to see*: every width is a compromise. With a backlog %s are best, and the highest rate is kept up with by %s; cellmq has %s of
the former's peak and %s of the latter's rate.`, c.lines[best].name, c.lines[quickest].name, times(c.peakRatio(best)), times(c.sustainedRatio(quickest)))
		d.standings(c)
	}
	return nil
}

func (r *results) fixedSection(d *document) error {
	d.paragraph("## One length: nothing to gain")
	d.paragraph(`All requests have %d steps, so a batch pads nothing and its rows end together. What cellular batching costs shows here: it is asked for
each step, and steps of newcomers and of old requests share rows.`, fixedLength)
	for _, s := range r.sides {
		c := s.fixed
		if err := d.curves("fixed", fmt.Sprintf("LSTM, all of %d steps", fixedLength), c); err != nil {
			return err
		}
		i := c.find(nameExact)
		least, most := c.reductions(i)
		d.paragraph(`*What to see*: with a backlog cellmq has %s of the throughput of batches without padding. Below the peak latency still gains from joining
at once: over all rates, p90 is %s.`, times(c.peakRatio(i)), lower(least, most))
		if least < 0 {
			d.paragraph(`It is higher next to the peak, where more requests are inside than a batch has rows: in cellmq they take turns, while the others
serve the oldest to their end.`)
		}
		d.standings(c)
	}
	return nil
}

func (r *results) seq2seqSection(d *document) error {
	d.paragraph("## Sequence to sequence")
	d.paragraph(`Buckets know the length of the source only: the decoder runs until the longest target of the batch is done. %s gives the decoder
priority, which keeps the encoders of newcomers waiting where there is one executor only ([below](#which-cell-goes-first)). That is what its rules do as
far as they are known; either the paper's scheduler has one more, or its figures have this in them.`, nameAlgorithm)
	for _, s := range r.sides {
		c := s.seq2seq
		if err := d.curves("seq2seq", "Sequence to sequence", c); err != nil {
			return err
		}
		turn, tight := c.find(nameTurn), c.find(nameTight)
		least, most := c.reductions(tight)
		d.paragraph(`*What to see*: cellmq has %s of the peak of buckets in turn, whose padding is %s, and %s of that of the best buckets. Over the rates, its p90 is
%s than theirs.`, times(c.peakRatio(turn)), percent(c.lines[turn].peak.padding), times(c.peakRatio(tight)), lower(least, most))
		d.standings(c)
		if err := d.distribution("seq2seq-latency", "Sequence to sequence: latency", c, latencies); err != nil {
			return err
		}
		d.tails(c)
	}
	return nil
}

func (r *results) prioritySection(d *document) error {
	d.paragraph("## Which cell goes first")
	d.paragraph(`The paper gives the decoder, the later cell, priority over the encoder (stated widely), and lets an idle executor take a cell that nobody
runs before that (the second tier; confidence high). The other orders are %s with other priorities. Loads are shares of the peak of
oldest request first. p90 of the latency and, in brackets, of the time to the first token, ms; in runs with a * the number of requests inside grew by more than
%.0f %% of those that arrived, for good or in one of the swings of this policy:`, nameAlgorithm, 100*mostGrowth)
	for _, s := range r.sides {
		columns := []string{"executors", "load"}
		for _, server := range priorityServers() {
			columns = append(columns, server.name)
		}
		var rows [][]string
		for i := range s.priorities {
			line := &s.priorities[i]
			row := []string{strconv.Itoa(line.executors), fmt.Sprintf("%.0f %%", 100*line.load)}
			for j := range line.outcomes {
				o := &line.outcomes[j]
				mark := ""
				if !o.sustained() {
					mark = " *"
				}
				row = append(row, fmt.Sprintf("%s (%s)%s", number(o.p(90)), number(milliseconds(o.firstToken[89])), mark))
			}
			rows = append(rows, row)
		}
		d.paragraph("%s:", s.title)
		d.table(0, columns, rows)
	}
	d.paragraph(`*What to see*: on one executor a decoder that always goes first keeps newcomers from its batch, since nobody else runs their encoder:
both its times are worse than with the oldest request first. With several executors the second tier repairs that. cellmq has no priorities: cells take
turns at full batches and the oldest goes first among the others ([0010](../adr/0010-tiers-and-turns.md)).`)
	return nil
}
