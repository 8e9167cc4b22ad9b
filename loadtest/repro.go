package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/loadtest/internal/batching"
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
	return cmd
}

func newRepro() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repro",
		Short: "Reproduce the comparisons of published systems",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newReproCosts())
	return cmd
}
