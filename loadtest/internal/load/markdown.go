package load

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cellmq/cellmq/loadtest/internal/record"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// Markdown is the report as text with tables.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; window of %.1f s after %.1f s of warm-up; seed %d. %s.\n\n",
		shape(&r.Plan), r.Window.Seconds(), r.Warmup.Seconds(), r.Plan.Seed, host())
	b.WriteString("| figure | value |\n|---|---:|\n")
	row := func(name, format string, values ...any) {
		fmt.Fprintf(&b, "| %s | "+format+" |\n", append([]any{name}, values...)...)
	}
	if r.Limited() {
		row("requests sent, of about", "%d, %d", r.Sent, r.Planned)
	}
	row("requests due", "%d", r.Due)
	row("completed", "%d", r.All.Completed)
	row("failed", "%s", failures(r.All))
	if n := r.All.Cancelled; n > 0 {
		row("cancelled as planned", "%d", n)
	}
	row("request throughput, 1/s", "%.1f", r.Throughput())
	fields := r.All.Fields(r.Window, r.Bounds)
	if v, ok := fields["request_goodput"]; ok {
		row("request goodput, 1/s", "%.1f", v)
		row("kept the bounds, of those due", "%d", r.All.Kept)
	}
	row("output tokens/s", "%.1f", fields["output_throughput"])
	row("in flight at the window's begin, end", "%d, %d", r.InFlight[0], r.InFlight[1])
	if d := &r.Disconnected; d.Times > 0 {
		row("connection lost, times (s); failed meanwhile", "%d (%.1f); %d", d.Times, d.For.Seconds(), d.Failed)
	}
	row("send delay p99, max, ms", "%s, %.2f", quantile(r.Late, 0.99), r.Late.Max())
	row("own CPU, s per 1,000 requests", "%.3f", r.CPUPerThousand().Seconds())
	b.WriteString("\n| latency, ms | count | mean | std | median | p90 | p95 | p99 | p99.9 | max |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, name := range []string{"ttft", "tpot", "itl", "e2el"} {
		if fields["count_"+name] != nil {
			fmt.Fprintf(&b, "| %s |", name)
			latencies(&b, fields, name)
			b.WriteString("\n")
		}
	}
	r.splits(&b)
	for _, w := range r.Warnings() {
		fmt.Fprintf(&b, "\nWarning: %s.\n", w)
	}
	return b.String()
}

func latencies(b *strings.Builder, fields map[string]any, name string) {
	fmt.Fprintf(b, " %d |", fields["count_"+name])
	for _, of := range []string{"mean", "std", "median", "p90", "p95", "p99", "p99.9", "max"} {
		if v, ok := fields[of+"_"+name+"_ms"]; ok {
			fmt.Fprintf(b, " %.2f |", v)
		} else {
			b.WriteString(" - |")
		}
	}
}

// splits writes the dimensions that have more than one name.
func (r *Report) splits(b *strings.Builder) {
	first := true
	for _, d := range []struct {
		name   string
		groups map[string]*record.Group
	}{{"model", r.Models}, {"priority", r.Priorities}, {"client", r.Clients}, {"path", r.Paths}} {
		if len(d.groups) < 2 {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(d.groups)) {
			if first {
				b.WriteString("\n| requests of | completed | failed | throughput, 1/s | median e2el, ms | p99 e2el, ms | median ttft, ms |\n" +
					"|---|---:|---:|---:|---:|---:|---:|\n")
				first = false
			}
			g := d.groups[name]
			fmt.Fprintf(b, "| %s %s | %d | %s | %.1f | %s | %s | %s |\n", d.name, name, g.Completed, failures(g), g.Throughput(r.Window),
				quantile(g.E2EL, 0.5), quantile(g.E2EL, 0.99), quantile(g.TTFT, 0.5))
		}
	}
}

func quantile(h record.Histogram, q float64) string {
	if v, ok := h.Quantile(q); ok {
		return fmt.Sprintf("%.2f", v)
	}
	return "-"
}

func failures(g *record.Group) string {
	if len(g.Failed) == 0 {
		return "0"
	}
	var parts []string
	for _, code := range slices.Sorted(maps.Keys(g.Failed)) {
		parts = append(parts, fmt.Sprintf("%s %d", code, g.Failed[code]))
	}
	return fmt.Sprintf("%d (%s)", g.FailedCount(), strings.Join(parts, ", "))
}

// shape says in words what was sent.
func shape(p *workload.Plan) string {
	a := &p.Arrivals
	text := fmt.Sprintf("%s arrivals at %g/s", a.Law, a.Rate)
	switch {
	case p.Trace != nil && a.Law != workload.Closed:
		text = fmt.Sprintf("a trace of %d requests", len(p.Trace))
	case a.Law == workload.Closed:
		text = fmt.Sprintf("%d requests in flight", a.InFlight)
	case a.Law == workload.Gamma:
		text = fmt.Sprintf("gamma arrivals at %g/s, burstiness %g", a.Rate, a.Burstiness)
	}
	path := "durable"
	if p.Realtime > 0 {
		path = fmt.Sprintf("%g %% realtime", 100*p.Realtime)
	}
	return fmt.Sprintf("%s of %s, %s%s", text, p.Models, path, lengthsOf(p))
}

// lengthsOf names the law of lengths, unless each model has its own.
func lengthsOf(p *workload.Plan) string {
	if text := p.Lengths.String(); text != "" {
		return ", lengths " + text
	}
	return ""
}

// conditions is what loads at several rates have in common.
func conditions(r *Report) string {
	return fmt.Sprintf("%s arrivals of %s%s; windows of %.1f s", r.Plan.Arrivals.Law, r.Plan.Models, lengthsOf(&r.Plan), r.Window.Seconds())
}

// PointsMarkdown is a table of loads at several rates.
func PointsMarkdown(points []Point) string {
	var b strings.Builder
	if len(points) > 0 {
		fmt.Fprintf(&b, "%s. %s.\n\n", conditions(points[0].Report), host())
	}
	b.WriteString("| rate, 1/s | throughput, 1/s | goodput, 1/s | failed | ttft p50, ms | e2el p50, ms | p90 | p99 | sustained | own CPU, s per 1,000 |\n" +
		"|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|\n")
	for _, p := range points {
		r, good, word := p.Report, "-", "no"
		if r.Bounds != (record.Bounds{}) {
			good = fmt.Sprintf("%.1f", r.All.Goodput(r.Window))
		}
		if p.Sustained {
			word = "yes"
		}
		fmt.Fprintf(&b, "| %.4g | %.1f | %s | %d | %s | %s | %s | %s | %s | %.3f |\n", p.Rate, r.Throughput(), good, r.All.FailedCount(),
			quantile(r.All.TTFT, 0.5), quantile(r.All.E2EL, 0.5), quantile(r.All.E2EL, 0.9), quantile(r.All.E2EL, 0.99), word, r.CPUPerThousand().Seconds())
	}
	for _, p := range points {
		for _, w := range p.Report.Warnings() {
			fmt.Fprintf(&b, "\nAt %.4g requests/s: %s.\n", p.Rate, w)
		}
	}
	return b.String()
}

// Markdown is what a search found.
func (s *Saturation) Markdown() string {
	text := fmt.Sprintf("Highest sustained rate: %.4g requests/s; %.4g was not sustained.\n\n", s.Rate, s.Limit)
	switch {
	case s.Rate == 0:
		text = fmt.Sprintf("No rate that was tried was sustained; the lowest was %.4g requests/s.\n\n", s.Limit)
	case s.Limit == 0:
		text = fmt.Sprintf("Every rate that was tried was sustained; the highest was %.4g requests/s.\n\n", s.Rate)
	case !s.Found:
		text = fmt.Sprintf("Highest sustained rate: between %.4g and %.4g requests/s, where the trials ended.\n\n", s.Rate, s.Limit)
	}
	for _, w := range s.Warnings() {
		text += "Warning: " + w + ".\n\n"
	}
	return text + PointsMarkdown(s.Points)
}
