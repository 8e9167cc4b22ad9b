package transport

import (
	"fmt"
	"slices"
	"strings"
)

// Report is what was measured.
type Report struct {
	Options Options  `json:"options"`
	Seconds float64  `json:"seconds"` // of each measurement
	Host    string   `json:"host"`
	Systems []Figure `json:"systems"`
}

// Figure is a system's medians.
type Figure struct {
	System string `json:"system"`
	// Rate is requests a second.
	Rate float64 `json:"rate"`
	// First is the median time until the first token, milliseconds.
	First float64 `json:"first_token_ms"`
	// Client, Worker and Server are processor time, microseconds a request.
	Client float64 `json:"client_us"`
	Worker float64 `json:"worker_us"`
	Server float64 `json:"server_us"`
	// Ceiling is Rate as a share of the plain system's; 0 for a plain one.
	Ceiling float64 `json:"ceiling,omitempty"`
	// Cost is the processor time of all three as a multiple of the plain system's;
	// 0 for a plain one.
	Cost float64 `json:"cost,omitempty"`
}

// Total is the processor time of all three processes.
func (f *Figure) Total() float64 { return f.Client + f.Worker + f.Server }

// sample is one measurement.
type sample struct {
	rate, first            float64
	client, worker, server float64
}

func median(samples []sample, field func(*sample) float64) float64 {
	values := make([]float64, len(samples))
	for i := range samples {
		values[i] = field(&samples[i])
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// figures are the medians of the samples of each system, in the report's order.
func figures(samples map[string][]sample) []Figure {
	var out []Figure
	var plain Figure
	for _, s := range systems() {
		of := samples[s.name]
		f := Figure{
			System: s.name,
			Rate:   median(of, func(s *sample) float64 { return s.rate }),
			First:  median(of, func(s *sample) float64 { return s.first }),
			Client: median(of, func(s *sample) float64 { return s.client }),
			Worker: median(of, func(s *sample) float64 { return s.worker }),
			Server: median(of, func(s *sample) float64 { return s.server }),
		}
		if s.cellmq { // the plain one comes before it
			f.Ceiling, f.Cost = f.Rate/plain.Rate, f.Total()/plain.Total()
		} else {
			plain = f
		}
		out = append(out, f)
	}
	return out
}

// Markdown is the report as a table.
func (r *Report) Markdown() string {
	var b strings.Builder
	o := &r.Options
	fmt.Fprintf(&b, "%d requests in flight, %d slots, %d tokens in as many frames, requests of %d bytes; medians of %d rounds of %g s. %s.\n\n",
		o.InFlight, o.Slots, o.Tokens, o.Prompt, o.Rounds, r.Seconds, r.Host)
	b.WriteString("| system | requests/s | of plain | first token, ms | client | worker | server | CPU us/request | of plain |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for i := range r.Systems {
		f := &r.Systems[i]
		ceiling, cost := "", ""
		if f.Ceiling > 0 {
			ceiling, cost = fmt.Sprintf("%.2fx", f.Ceiling), fmt.Sprintf("%.2fx", f.Cost)
		}
		fmt.Fprintf(&b, "| %s | %.0f | %s | %.1f | %.0f | %.0f | %.0f | %.0f | %s |\n",
			f.System, f.Rate, ceiling, f.First, f.Client, f.Worker, f.Server, f.Total(), cost)
	}
	return b.String()
}
