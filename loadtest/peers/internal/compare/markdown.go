package compare

import (
	"fmt"
	"io"
	"strings"

	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// WriteMarkdown writes a report as Markdown: what was measured on, the
// libraries, and a table for each shape, kind of weights and number of threads.
func WriteMarkdown(w io.Writer, r Report) error {
	var b strings.Builder
	o := r.Options
	fmt.Fprintf(&b, "%s. %s, %d cores, %s", r.Date.Format("2006-01-02"), r.Host.CPU, r.Host.Cores, r.Host.Go)
	if r.Host.Commit != "" {
		fmt.Fprintf(&b, ", commit %s", r.Host.Commit)
	}
	fmt.Fprintf(&b, ". %d rounds of %s with pauses of %s.\n\n", o.Rounds, o.Duration, o.Pause)
	b.WriteString("| library | version |\n|---|---|\n")
	for _, l := range r.Libraries {
		version := l.Version
		if l.Unavailable != "" {
			version = "not available: " + l.Unavailable
		}
		fmt.Fprintf(&b, "| %s | %s |\n", cell(l.Name), cell(version))
	}
	b.WriteString("\nGFLOP/s of the products: median (best). The factor is the median of the first library against the other's; above 1 the first is quicker.\n")
	for _, threads := range o.Threads {
		for _, shape := range o.Shapes {
			for _, weights := range o.Weights {
				shape.Weights = weights
				r.table(&b, shape, threads)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table writes the table of a shape, without columns that would be empty.
func (r *Report) table(b *strings.Builder, shape workload.Case, threads int) {
	var columns []Library
	for _, l := range r.Libraries {
		for _, n := range r.Options.Rows {
			shape.Rows = n
			if r.find(shape, threads, l.Contender) != nil {
				columns = append(columns, l)
				break
			}
		}
	}
	if len(columns) == 0 {
		return
	}
	plural := "s"
	if threads == 1 {
		plural = ""
	}
	fmt.Fprintf(b, "\n### %s, %s weights, %d thread%s\n\n| rows |", shape, shape.Weights, threads, plural)
	for _, l := range columns {
		fmt.Fprintf(b, " %s |", cell(l.heading()))
	}
	b.WriteString("\n|--:|" + strings.Repeat("--:|", len(columns)) + "\n")
	for _, n := range r.Options.Rows {
		shape.Rows = n
		fmt.Fprintf(b, "| %d |", n)
		for _, l := range columns {
			fmt.Fprintf(b, " %s |", cell(r.figures(shape, threads, l.Contender)))
		}
		b.WriteString("\n")
	}
}

// heading returns a library's name, with its kernels when there may be several
// columns of it.
func (l Library) heading() string {
	if _, kernels, ok := strings.Cut(l.Contender, ":"); ok {
		return l.Name + " " + kernels
	}
	return l.Name
}

// figures returns the text of a measurement.
func (r *Report) figures(c workload.Case, threads int, contender string) string {
	m := r.find(c, threads, contender)
	switch {
	case m == nil:
		return "–"
	case m.Problem != "":
		return m.Problem
	}
	text := fmt.Sprintf("%s (%s)", figure(m.MedianGFLOPS), figure(m.BestGFLOPS))
	first := r.Libraries[0].Contender
	if ours := r.find(c, threads, first); ours != nil && ours.Problem == "" && contender != first {
		text += fmt.Sprintf(" %.2fx", ours.MedianGFLOPS/m.MedianGFLOPS)
	}
	return text
}

// figure returns a number with three digits or so.
func figure(x float64) string {
	if x < 10 {
		return fmt.Sprintf("%.2f", x)
	}
	if x < 100 {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// cell returns text that does not end a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}
