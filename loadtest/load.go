package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/loadtest/internal/ask"
	"github.com/cellmq/cellmq/loadtest/internal/load"
	"github.com/cellmq/cellmq/loadtest/internal/plot"
)

const runLong = `run sends requests to workers and reports latencies and throughput. Latencies count
from when a request was due, so a worker that stands still shows in them, and so
does a load test that is late. Without a server it starts a worker of its own.`

const runExample = `  go run ./loadtest
  go run ./loadtest --rate 300 --duration 30s --goodput ttft:50,e2el:200
  go run ./loadtest --nats-url nats://127.0.0.1:4222 --model g2p-en=3,langid --priority high=1,std=4
  go run ./loadtest --rate 0 --max-concurrency 64 --realtime 1
  go run ./loadtest --burstiness 0.3 --cancel 0.1 --json report.json --plot plots
  go run ./loadtest --trace requests.csv
  go run ./loadtest sweep --rates 50,100,200,400 --plot plots
  go run ./loadtest saturation --goodput e2el:100`

func newRun() *cobra.Command {
	cmd := &cobra.Command{Use: "run", Short: "Put a load on workers (what loadtest does without a command)"}
	bindRun(cmd)
	return cmd
}

// bindRun makes a command put a load on.
func bindRun(cmd *cobra.Command) {
	f := &loadFlags{}
	f.bind(cmd.Flags())
	cmd.Long, cmd.Example, cmd.Args = runLong, runExample, cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return f.withLoad(cmd.Context(), cmd.ErrOrStderr(), func(o load.Options, c *ask.Client) error {
			r, err := load.Run(cmd.Context(), c, o)
			if r == nil {
				return err
			}
			if f.json == "-" {
				warn(cmd.ErrOrStderr(), r)
			}
			return cmp.Or(f.write(cmd.OutOrStdout(), r, r.Markdown(), r.Figures()), err)
		})
	}
}

func newSweep() *cobra.Command {
	f := &loadFlags{}
	var rates []float64
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Put loads of several rates on workers: latency over throughput",
		Long: `sweep puts loads of several rates on workers, one after the other, each as run would
with --warmup and --duration, and prints a line for each. With --plot it draws
latency over throughput into latency-throughput.svg.`,
		Example: `  go run ./loadtest sweep --plot plots
  go run ./loadtest sweep --nats-url nats://127.0.0.1:4222 --model my-lm --output-tokens fixed:32 --plot plots
  go run ./loadtest sweep --rates 100,200,400,800 --duration 30s --realtime 1 --json sweep.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(f.eachRate(rates...), f.refuse(idle{"rate", true, "sweep has --rates"})); err != nil {
				return err
			}
			return f.withLoad(cmd.Context(), cmd.ErrOrStderr(), func(o load.Options, c *ask.Client) error {
				say(cmd.ErrOrStderr(), "this takes about %v", (time.Duration(len(rates)) * whole(&o)).Round(time.Second))
				points, err := load.Sweep(cmd.Context(), rates, trial(o, c), tell(cmd.ErrOrStderr()))
				if len(points) == 0 {
					return err
				}
				if err != nil {
					say(cmd.ErrOrStderr(), "stopped early: only the loads that ended follow")
				}
				return cmp.Or(f.write(cmd.OutOrStdout(), map[string]any{"points": points}, load.PointsMarkdown(points), load.PointsFigures(points)), err)
			})
		},
	}
	f.bind(cmd.Flags())
	cmd.Flags().Float64SliceVar(&rates, "rates", []float64{25, 50, 100, 200, 400}, "rates in requests a second, instead of --rate")
	return cmd
}

func newSaturation() *cobra.Command {
	f := &loadFlags{}
	var search load.Search
	cmd := &cobra.Command{
		Use:   "saturation",
		Short: "Search for the highest rate that workers sustain",
		Long: `saturation searches for the highest rate of which at least 98 % end well in the
window, without a backlog that grows; with --goodput for the highest at which a
share of the requests due in the window, --attainment, keeps the bounds, in the
window or after it. It begins at --rate, doubles or halves it, and bisects.`,
		Example: `  go run ./loadtest saturation --model langid --realtime 1
  go run ./loadtest saturation --goodput ttft:50,e2el:200 --attainment 0.95 --duration 30s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			search.First = f.rate
			alone := idle{"attainment", len(f.goodput) == 0, "it goes with --goodput"}
			if err := errors.Join(search.Validate(), f.eachRate(f.rate), f.refuse(alone)); err != nil {
				return err
			}
			return f.withLoad(cmd.Context(), cmd.ErrOrStderr(), func(o load.Options, c *ask.Client) error {
				s, err := load.Saturate(cmd.Context(), search, trial(o, c), tell(cmd.ErrOrStderr()))
				if s == nil || len(s.Points) == 0 {
					return err
				}
				if err != nil {
					say(cmd.ErrOrStderr(), "stopped early: only the loads that ended follow")
				}
				return cmp.Or(f.write(cmd.OutOrStdout(), s, s.Markdown(), load.PointsFigures(s.Points)), err)
			})
		},
	}
	f.bind(cmd.Flags())
	set := cmd.Flags()
	set.Float64Var(&search.Tolerance, "tolerance", 0.05, "how far apart, relatively, the sustained rate and the next one may be")
	set.IntVar(&search.Trials, "trials", 15, "most loads")
	set.Float64Var(&search.Attainment, "attainment", load.DefaultAttainment, "share of requests that have to keep the bounds of --goodput")
	return cmd
}

// tell writes a line for each load.
func tell(log io.Writer) func(load.Point) {
	return func(p load.Point) {
		word := "not sustained"
		if p.Sustained {
			word = "sustained"
		}
		say(log, "%.4g requests/s: %s, throughput %.1f/s, %d failed", p.Rate, word, p.Report.Throughput(), p.Report.All.FailedCount())
		warn(log, p.Report)
	}
}

// warn writes what makes the figures of a report doubtful, a line for each.
func warn(log io.Writer, r *load.Report) {
	for _, w := range r.Warnings() {
		say(log, "warning: %s", w)
	}
}

// write writes a result where the flags say.
func (f *loadFlags) write(stdout io.Writer, result any, table string, figures map[string]*plot.Figure) error {
	var errs []error
	if f.plots != "" {
		errs = append(errs, load.WriteFigures(f.plots, figures))
	}
	text, err := json.MarshalIndent(result, "", "  ")
	switch {
	case err != nil:
		errs = append(errs, fmt.Errorf("encode report: %w", err))
	case f.json == "-":
		table = string(text) + "\n"
	case f.json != "":
		if err := os.WriteFile(f.json, append(text, '\n'), 0o644); err != nil {
			errs = append(errs, fmt.Errorf("write report: %w", err))
		}
	}
	_, err = fmt.Fprint(stdout, table)
	return errors.Join(append(errs, err)...)
}
