package batching

import (
	"fmt"
	"strings"
)

// fewRequests is how many requests beyond a percentile make it worth trusting.
const fewRequests = 10

// Markdown returns the report as text with tables.
func (r *Report) Markdown() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	commit := r.Host.Commit
	if commit == "" {
		commit = "unknown"
	}
	o := r.Options
	line("%s, %d cores, GOMAXPROCS %d, %s, commit %s.", r.Host.CPU, r.Host.Cores, r.Host.Procs, r.Host.Go, commit)
	line("Executors %d, threads %d, buckets of %d lengths, seed %d, rounds %d (figures are medians). Took %.0f s.",
		o.Shape.Executors, o.Shape.Threads, o.Width, o.Seed, o.Rounds, r.Seconds)
	line("All servers gave the same answers, bit by bit.")
	for i := range r.Models {
		r.Models[i].markdown(line)
	}
	return b.String()
}

func (m *Model) markdown(line func(string, ...any)) {
	line("\n### %s, hidden size %d, %d tokens\n", m.Name, m.Hidden, m.Tokens)
	for _, c := range m.Cells {
		line("- %s: batches of at most %d rows, %.0f us a row.", c.Name, c.MaxRows, c.RowMicroseconds)
	}
	line("- buckets: batches of at most %d requests.", m.BucketRows)
	line("\nThroughput with a backlog of %d requests:\n", m.Requests)
	line("| server | requests/s | cellular is | rows per step | padding |")
	line("|---|---:|---:|---:|---:|")
	for _, s := range m.Saturation {
		line("| %s | %.1f | %.2fx | %.1f | %.1f %% |",
			s.Server, s.Throughput, ratio(m.Saturation[0].Throughput, s.Throughput), s.RowsPerStep, 100*s.Padding)
	}
	line("\nLatency with Poisson arrivals, at shares of the best buckets' throughput:\n")
	line("| load | requests/s | server | p50 ms | p90 ms | p99 ms | cellular's p90 is | rows per step | padding |")
	line("|---:|---:|---|---:|---:|---:|---:|---:|---:|")
	for _, l := range m.Loads {
		for _, s := range l.Servers {
			line("| %.0f %% | %.1f | %s | %.1f | %s | %s | %s | %.1f | %.1f %% |", 100*l.Share, l.Rate, s.Server,
				s.P50, percentile(s.P90), percentile(s.P99), p90Ratio(&l.Servers[0], &s), s.RowsPerStep, 100*s.Padding)
		}
	}
	m.caveats(line)
}

// caveats says what the latencies rest on.
func (m *Model) caveats(line func(string, ...any)) {
	line("")
	for _, l := range m.Loads {
		late := 0.0
		for _, s := range l.Servers {
			late = max(late, s.Late)
		}
		line("- At %.0f %%: %d requests a round, handed over at most %.1f ms late (p99)%s.", 100*l.Share, l.Requests, late, few(l.Requests))
	}
}

// few returns a warning for percentiles that rest on few requests.
func few(requests int) string {
	for _, p := range []struct {
		name   string
		beyond int // in per cent of the requests
	}{{"p90", 10}, {"p99", 1}} {
		if requests*p.beyond < fewRequests*100 {
			return fmt.Sprintf("; fewer than %d of them lie beyond %s", fewRequests, p.name)
		}
	}
	return ""
}

// none stands where there is no figure.
const none = "–"

// percentile formats a percentile in milliseconds that may not be there.
func percentile(ms float64) string {
	if ms == 0 {
		return none
	}
	return fmt.Sprintf("%.1f", ms)
}

// p90Ratio formats what the first server's p90 is of another's.
func p90Ratio(first, other *Measurement) string {
	if first.P90 == 0 || other.P90 == 0 {
		return none
	}
	return fmt.Sprintf("%.2fx", first.P90/other.P90)
}

// ratio returns a/b, 0 when b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
