package batchmaker

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"github.com/cellmq/cellmq/loadtest/internal/plot"
)

// The names of the files of a report, relative to its directory.
const (
	pageName   = "batchmaker.md"
	filesName  = "batchmaker"
	pointsName = filesName + "/runs.csv"
)

// document is a page of Markdown with its figures.
type document struct {
	text  strings.Builder
	files map[string][]byte
}

// line writes a line of the page.
func (d *document) line(format string, args ...any) { fmt.Fprintf(&d.text, format+"\n", args...) }

// paragraph writes lines with an empty one after them.
func (d *document) paragraph(format string, args ...any) { d.line(format+"\n", args...) }

// table writes a table whose first left columns are text.
func (d *document) table(left int, columns []string, rows [][]string) {
	d.line("| %s |", strings.Join(columns, " | "))
	marks := make([]string, len(columns))
	for i := range marks {
		if marks[i] = "---:"; i < left {
			marks[i] = "---"
		}
	}
	d.line("|%s|", strings.Join(marks, "|"))
	for _, row := range rows {
		d.line("| %s |", strings.Join(row, " | "))
	}
	d.line("")
}

// figure draws a figure into a file of its own and shows it.
func (d *document) figure(name string, f *plot.Figure) error {
	var b bytes.Buffer
	if err := f.WriteSVG(&b); err != nil {
		return fmt.Errorf("figure %s: %w", name, err)
	}
	file := path.Join(filesName, name+".svg")
	d.files[file] = b.Bytes()
	d.paragraph("![%s: %s](%s)", f.Title, f.Subtitle, file)
	return nil
}

// curves draws p90 over throughput. A line ends at the first rate that its
// server doesn't keep up with.
func (d *document) curves(name, title string, c *contest) error {
	f := &plot.Figure{
		Title: title, Subtitle: c.hardware.title + ", virtual time: p90 of the latency against throughput",
		XLabel: "throughput, requests/s", YLabel: "p90 of the latency, ms", LogY: true,
	}
	for _, line := range c.lines {
		s := plot.Series{Name: line.name, Markers: true}
		for _, o := range line.points {
			if !o.sustained() {
				s.X, s.Y = append(s.X, round(o.throughput)), append(s.Y, round(o.p(90)))
				break
			}
			s.X, s.Y = append(s.X, round(o.offered)), append(s.Y, round(o.p(90)))
		}
		f.Series = append(f.Series, s)
	}
	return d.figure(name+"-"+c.hardware.key, f)
}

// leastTime is where distributions begin, ms.
const leastTime = 0.01

// distribution draws the cumulative distribution of a time of all servers at
// the rate that all keep up with.
func (d *document) distribution(name, title string, c *contest, of func(*outcome) *[100]float64) error {
	f := &plot.Figure{
		Title: title, Subtitle: fmt.Sprintf("%s, virtual time, %s requests/s", c.hardware.title, number(c.common)),
		XLabel: "ms", YLabel: "share of the requests", LogX: true,
	}
	for i := range c.lines {
		s := plot.Series{Name: c.lines[i].name}
		for j, v := range of(&c.atCommon[i]) {
			if v < leastTime {
				continue
			}
			s.X, s.Y = append(s.X, round(v)), append(s.Y, float64(j+1)/100)
		}
		f.Series = append(f.Series, s)
	}
	return d.figure(name+"-"+c.hardware.key, f)
}
