package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/loadtest/internal/batching"
	"github.com/cellmq/cellmq/loadtest/internal/batchmaker"
	"github.com/cellmq/cellmq/loadtest/internal/load"
)

// newReproCosts measures the table that the virtual machine of one core has.
func newReproCosts() *cobra.Command {
	hidden := 512
	cmd := &cobra.Command{
		Use:   "costs",
		Short: "Measure what steps cost on one core of this machine, as CSV",
		Long: `costs measures steps of the cells that reproductions simulate, on one thread and
with random weights, and prints a line for each size of batch. It takes about
ten seconds. The table in loadtest/internal/batchmaker/core.csv is such a print.`,
		Example: `  go run ./loadtest repro costs
  go run ./loadtest repro costs --hidden 1024 > costs.csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			costs, err := batching.Costs(cmd.Context(), []string{batching.LSTM, batching.Seq2Seq, batching.Tree}, hidden,
				[]int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128})
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if _, err := fmt.Fprintln(out, "network,cell,rows,ns"); err != nil {
				return err
			}
			for _, c := range costs {
				if _, err := fmt.Fprintf(out, "%s,%s,%d,%d\n", c.Network, c.Cell, c.Rows, c.Time.Nanoseconds()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&hidden, "hidden", hidden, "size of embeddings and states")
	manual.Note(cmd, manual.Notes{Environment: measureEnvironment})
	return cmd
}

// reproFlags are the flags of repro batchmaker.
type reproFlags struct {
	scale       string
	seed        uint64
	virtualOnly bool
	wallOnly    bool
	dir         string
}

func newReproBatchMaker() *cobra.Command {
	f := &reproFlags{}
	cmd := &cobra.Command{
		Use:   "batchmaker",
		Short: "Compare cellular batching with padded buckets and merged graphs, as BatchMaker did",
		Long: `batchmaker runs the comparison of BatchMaker (EuroSys 2018) and writes a report
of Markdown, plots and tables: LSTM, sequence to sequence and TreeLSTM, latency
over throughput, tails, queueing, and what each decision is worth.

The virtual part takes some seconds and gives the same files for the same scale
and seed on every machine. The other part runs the real runtime on one core by
the clock on the wall, for about six minutes at full scale.`,
		Example: `  go run ./loadtest repro batchmaker --dir /tmp/report
  go run ./loadtest repro batchmaker --virtual-only --scale quick --seed 7 --dir /tmp/report`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	set := cmd.Flags()
	set.StringVar(&f.scale, "scale", string(batchmaker.Full), "how much: quick or full")
	set.Uint64Var(&f.seed, "seed", 1, "where lengths, trees and arrivals begin")
	set.BoolVar(&f.virtualOnly, "virtual-only", false, "leave out what the clock on the wall says")
	set.BoolVar(&f.wallOnly, "wall-only", false, "leave out what the virtual clock says")
	cmd.MarkFlagsMutuallyExclusive("virtual-only", "wall-only")
	set.StringVar(&f.dir, "dir", "repro", "directory of the report, made if it is missing")
	return cmd
}

func (f *reproFlags) run(cmd *cobra.Command) error {
	o := batchmaker.Options{Scale: batchmaker.Scale(f.scale), Seed: f.seed}
	say := func(line string) { cmd.PrintErrln(line) }
	if err := o.Validate(); err != nil {
		return err
	}
	if !f.wallOnly {
		files, err := batchmaker.Virtual(cmd.Context(), o, say)
		if err != nil {
			return err
		}
		if err := writeReport(cmd, f.dir, files); err != nil {
			return err
		}
	}
	if f.virtualOnly {
		return nil
	}
	command := fmt.Sprintf("go run ./loadtest repro batchmaker --wall-only --scale %s --seed %d", f.scale, f.seed)
	wall := batchmaker.WallScale(o.Scale, f.seed, command)
	wall.CPU = load.CPUTime
	files, err := batchmaker.Wall(cmd.Context(), wall, say)
	if err != nil {
		return err
	}
	return writeReport(cmd, f.dir, files)
}

// writeReport writes the files of a report and says which page to read.
func writeReport(cmd *cobra.Command, dir string, files map[string][]byte) error {
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		if filepath.Ext(name) == ".md" {
			cmd.Println(path)
		}
	}
	return nil
}

func newRepro() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repro",
		Short: "Reproduce the comparisons of published systems",
		Long: `repro makes the comparisons that published systems were presented with again, and
writes reports in which the papers' figures stand beside its own.`,
		Example: `  go run ./loadtest repro batchmaker --virtual-only --scale quick --dir /tmp/report`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	manual.Note(cmd, manual.Notes{Environment: measureEnvironment})
	cmd.AddCommand(newReproBatchMaker(), newReproCosts())
	return cmd
}
