package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/loadtest/internal/transport"
)

func newTransport() *cobra.Command {
	var o transport.Options
	var seconds float64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "transport",
		Short: "Measure what it costs to carry requests and tokens",
		Long: `transport has a client ask a worker as often as it can, through a NATS server, with
next to nothing to compute. Client, worker and server are processes of their own,
whose processor time is measured. It does so with cellmq and with a plain client and
worker that send the same messages and do nothing else, which is the ceiling, on the
core path and through JetStream on files. It needs Linux, and Go to build cellmq
unless --program names it.`,
		Example: `  go run ./loadtest transport
  go run ./loadtest transport --seconds 10 --rounds 5 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Duration = time.Duration(seconds * float64(time.Second))
			report, err := transport.Measure(cmd.Context(), o, func(line string) { cmd.PrintErrln(line) })
			if err != nil {
				return err
			}
			return printReport(cmd.OutOrStdout(), asJSON, report)
		},
	}
	set := cmd.Flags()
	manual.Note(cmd, manual.Notes{Environment: measureEnvironment})
	set.Float64Var(&seconds, "seconds", 5, "how long each measurement lasts")
	set.IntVar(&o.Rounds, "rounds", 3, "how often each system is measured; figures are medians")
	set.IntVar(&o.InFlight, "in-flight", 128, "requests that the client has open")
	set.IntVar(&o.Slots, "slots", 64, "requests that the worker runs")
	set.IntVar(&o.Tokens, "tokens", 20, "tokens of an answer, each in a frame of its own")
	set.IntVar(&o.Prompt, "prompt", 512, "size of a request, bytes")
	set.StringVar(&o.Program, "program", "", "cellmq program to measure (default: it is built)")
	set.BoolVar(&asJSON, "json", false, "print JSON instead of Markdown")
	return cmd
}
