package main

import (
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/loadtest/internal/batching"
)

// batchingFlags are the flags of batching that are not options as they are.
type batchingFlags struct {
	options   batching.Options
	model     string
	baselines []string
	seconds   float64
	json      bool
}

func newBatching() *cobra.Command {
	f := &batchingFlags{}
	cmd := &cobra.Command{
		Use:   "batching",
		Short: "Compare cellular batching with padded buckets by wall clock",
		Long: `batching serves the same requests with the cellular runtime and with padded
length buckets, on the same kernels and random weights, and prints the
throughput with a backlog and the latencies with Poisson arrivals at 30, 50 and
70 % of the throughput of the best buckets. It says beforehand how long it
takes: about four minutes with the defaults, which leaves few requests for the
high percentiles, about half an hour with --seconds 20 --rounds 3.

The largest batch is measured first: for each cell the smallest one within 10 %
of the most rows a second. The servers take turns, round by round, and their
answers are compared bit by bit.`,
		Example: `  go run ./loadtest batching
  go run ./loadtest batching --model lstm --seconds 20 --rounds 3
  go run ./loadtest batching --padded round-robin,longest-queue --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.parse()
			if err != nil {
				return err
			}
			report, err := batching.Compare(cmd.Context(), o, func(line string) {
				cmd.PrintErrln(line)
			})
			if err != nil {
				return err
			}
			return printReport(cmd.OutOrStdout(), f.json, report)
		},
	}
	f.bind(cmd.Flags())
	manual.Note(cmd, manual.Notes{Environment: measureEnvironment})
	return cmd
}

func (f *batchingFlags) bind(set *pflag.FlagSet) {
	o := &f.options
	set.StringVar(&f.model, "model", "both", "network: lstm, seq2seq, both of them, or tree with --padded merged")
	set.IntVar(&o.Hidden, "hidden", 512, "size of embeddings and states")
	set.IntVar(&o.Requests, "requests", 0, "length of the backlog (0: as many as last about --seconds)")
	set.Float64Var(&f.seconds, "seconds", 4, "how long requests arrive in each run with arrivals")
	set.IntVar(&o.Rounds, "rounds", 2, "how often everything is measured; figures are medians")
	set.IntVar(&o.Width, "width", 10, "how many lengths share a bucket")
	set.StringSliceVar(&f.baselines, "padded", []string{"round-robin", "longest-queue-tight"},
		"ways to batch whole requests: merged, which runs their graphs together, or buckets: round-robin or longest-queue, and each with -tight, which pads to the batch's longest request instead of the bucket's upper bound")
	set.IntVar(&o.Rows, "rows", 0, "largest batch (0: measured)")
	set.IntVar(&o.Shape.Executors, "executors", 1, "steps that run at the same time")
	set.IntVar(&o.Shape.Threads, "threads", 0, "threads of a step (0: one for each processor)")
	set.Uint64Var(&o.Seed, "seed", 1, "where weights, lengths and arrivals begin")
	set.BoolVar(&f.json, "json", false, "print JSON instead of Markdown")
}

// parse returns the options that the flags ask for.
func (f *batchingFlags) parse() (batching.Options, error) {
	o := f.options
	o.Loads = batching.DefaultLoads()
	if o.Shape.Threads == 0 {
		o.Shape.Threads = runtime.GOMAXPROCS(0)
	}
	o.Models = []string{f.model}
	if f.model == "both" {
		o.Models = []string{batching.LSTM, batching.Seq2Seq}
	}
	o.Duration = time.Duration(f.seconds * float64(time.Second))
	for _, name := range f.baselines {
		b, err := batching.ParseBaseline(name)
		if err != nil {
			return o, err
		}
		o.Baselines = append(o.Baselines, b)
	}
	return o, o.Validate()
}
