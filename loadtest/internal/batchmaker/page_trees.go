package batchmaker

import (
	"fmt"
	"strconv"
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
		least, most := c.reductions(i)
		d.paragraph(`*What to see*: cellmq has %s of the peak of merged graphs that cost nothing to build, and a p90 that is %s.`,
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
	d.paragraph("How many times the peak of merged graphs cellmq has, when building and merging a node takes so much of what a row of a full batch of inner nodes takes:")
	columns := []string{"machine"}
	for _, b := range builds() {
		columns = append(columns, fmt.Sprintf("%g of a row", b))
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
spend from half to three times as long on a node's graph as on computing it.`)
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
