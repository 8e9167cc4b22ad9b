package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/worker"
)

func newCancel(s streams) *cobra.Command {
	var client, natsURL string
	var sequence uint64
	cmd := &cobra.Command{
		Use:   "cancel ID --client NAME",
		Short: "Stop a request",
		Long: `cancel asks the workers to stop a request and prints what they know of it:
  queued    it waited in the broker and has been taken out; only with --seq
  admitted  a worker had it and had not begun
  running   it stops within a step
  finished  it had ended before
  unknown   nobody knows it, or it waits in the broker and --seq was not given
The workers remember the cancellation of an unknown request for five minutes
and end it when they take it. Only then is the exit code 1.

--seq is the place in the queue that the broker's receipt told. Ids that
workers made tell it themselves.`,
		Example: `  cellmq request g2p-en --client me --id 0123456789 "a long text" &
  cellmq cancel 0123456789 --client me
  cellmq cancel 0123456789 --client me --seq 42`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) (err error) {
			if client == "" {
				return usagef("--client is required: ids belong to a client")
			}
			cfg, err := worker.DefaultConfig().FromEnv()
			if err != nil {
				return usageError{err}
			}
			if natsURL != "" {
				cfg.NatsURL = natsURL
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			nc, err := dial(ctx, cfg, client)
			if err != nil {
				return err
			}
			defer nc.Close()
			c, err := broker.NewClient(nc, broker.ClientConfig{Name: client, Prefix: cfg.SubjectPrefix})
			if err != nil {
				return usageError{err}
			}
			defer func() { err = errors.Join(err, c.Close()) }()
			reply, err := c.CancelAt(ctx, positional[0], sequence)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(s.out, reply.State); err != nil {
				return err
			}
			if reply.State == broker.CancelUnknown {
				return errReported
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&client, "client", "", "name of the client that sent the request")
	cmd.Flags().Uint64Var(&sequence, "seq", 0, "place of the request in the queue, to take it out at once (default the one that its id tells)")
	cmd.Flags().StringVar(&natsURL, "nats-url", "", "NATS server to connect to (default $CELLMQ_NATS_URL or nats://127.0.0.1:4222)")
	manual.Note(cmd, manual.Notes{Exit: cancelExit})
	return cmd
}
