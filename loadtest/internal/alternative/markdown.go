package alternative

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cellmq/cellmq/loadtest/internal/plot"
)

// Markdown is the report as text with tables. Plots are in a folder beside it;
// without one they are left out.
func (r *Report) Markdown(plots string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Machine: %s. Load average before: %s, after: %s. Windows of %v after %v of warm-up, medians of %d rounds.\n\n",
		r.Host, r.Load[0], r.Load[1], r.Duration, r.Warmup, r.Rounds)
	v := &r.Alternative
	fmt.Fprintf(&b, "Alternative: PyTorch %s with vector instructions %s, Python %s, BLAS %s", v.Torch, v.Capability, v.Python, v.blas())
	if len(r.ServerArgs) > 0 {
		fmt.Fprintf(&b, ", server arguments `%s`", strings.Join(r.ServerArgs, " "))
	}
	fmt.Fprintf(&b, ". cellmq: worker arguments `%s`.\n", strings.Join(r.WorkerArgs, " "))
	r.most(&b)
	r.size(&b)
	for _, m := range r.Models {
		m.rates(&b, plots)
	}
	return b.String()
}

func (v *Versions) blas() string {
	name := "unknown"
	for _, path := range v.BLAS {
		name = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "lib"), ".so")
	}
	if v.Kernels != "" {
		name += " (" + v.Kernels + ")"
	}
	return name
}

// most writes the closed loops.
func (r *Report) most(b *strings.Builder) {
	fmt.Fprintf(b, "\n## At their most\n\nA closed loop of %d requests under way. The last column is the share of the sample whose answer is that of cellmq's realtime path.\n\n", r.Concurrency)
	b.WriteString("| model | system | requests/s | p50, ms | p90, ms | p99, ms | CPU, ms/request | failed | equal answers |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, m := range r.Models {
		for _, s := range m.Systems {
			c := &s.Closed
			fmt.Fprintf(b, "| %s | %s | %.1f | %s | %s | %s | %.3f | %d | %d of %d |\n",
				m.Name, s.Name, c.Throughput, ms(c.P50), ms(c.P90), ms(c.P99), c.CPU, c.Failed, s.Equal, m.Sample)
		}
	}
}

// size writes what the systems take.
func (r *Report) size(b *strings.Builder) {
	b.WriteString("\n## Start and memory\n\nThe time from the start of the processes to the first answer, and the memory after all loads.\n\n")
	b.WriteString("| model | system | start, s | memory, MiB |\n|---|---|---:|---:|\n")
	for _, m := range r.Models {
		for _, s := range m.Systems {
			fmt.Fprintf(b, "| %s | %s | %.2f | %.0f |\n", m.Name, s.Name, s.StartSeconds, float64(s.MemoryBytes)/(1<<20))
		}
	}
	fmt.Fprintf(b, "\nOn disk cellmq is one file of %.1f MiB, with the bundled models. The packages of PyTorch alone are %d MiB, with all that they depend on %d MiB.\n",
		float64(r.CellmqBytes)/(1<<20), r.Alternative.TorchMiB, r.Alternative.InstalledMiB)
}

// rates writes the open loads of a model.
func (m *ModelReport) rates(b *strings.Builder, plots string) {
	fmt.Fprintf(b, "\n## %s\n\n%s. Poisson arrivals, the same requests at the same times for each system.\n\n", m.Name, upper(m.Text))
	b.WriteString("| rate, 1/s | system | requests/s | p50, ms | p90, ms | p99, ms | CPU, ms/request | failed | kept up |\n|---:|---|---:|---:|---:|---:|---:|---:|---|\n")
	for i := 0; ; i++ {
		found := false
		for _, s := range m.Systems {
			if i >= len(s.Open) {
				continue
			}
			f := &s.Open[i]
			found = true
			fmt.Fprintf(b, "| %.4g | %s | %.1f | %s | %s | %s | %.3f | %d | %s |\n",
				f.Rate, s.Name, f.Throughput, ms(f.P50), ms(f.P90), ms(f.P99), f.CPU, f.Failed, map[bool]string{true: "yes", false: "no"}[f.Sustained])
		}
		if !found {
			break
		}
	}
	if plots != "" {
		fmt.Fprintf(b, "\n![Latency over throughput, %s](%s/%s)\n", m.Name, plots, m.file())
	}
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

func ms(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

func (m *ModelReport) file() string { return m.Name + ".svg" }

// Figures are the plots, by file name: latency over throughput for each model.
func (r *Report) Figures() map[string]*plot.Figure {
	out := map[string]*plot.Figure{}
	for _, m := range r.Models {
		f := &plot.Figure{
			Title: m.Name, Subtitle: m.Text, XLabel: "throughput, requests/s", YLabel: "latency, ms", LogY: true,
		}
		for _, s := range m.Systems {
			p50, p90 := plot.Series{Name: s.Name + ", p50", Markers: true}, plot.Series{Name: s.Name + ", p90", Markers: true}
			for _, o := range s.Open {
				p50.X, p50.Y = append(p50.X, o.Throughput), append(p50.Y, o.P50)
				p90.X, p90.Y = append(p90.X, o.Throughput), append(p90.Y, o.P90)
			}
			if len(s.Open) > 0 {
				f.Series = append(f.Series, p50, p90)
			}
		}
		out[m.file()] = f
	}
	return out
}
