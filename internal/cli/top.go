package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/internal/top"
	"github.com/cellmq/cellmq/worker"
)

// topOptions are the flags of top.
type topOptions struct {
	connOptions
	once, ascii bool
	interval    time.Duration
}

func newTop(s streams) *cobra.Command {
	o := &topOptions{}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the workers at work",
		Long: `top shows all workers as they run: how busy their executors are, how full the steps
of each cell, what waits in the queues, and how long requests take. Workers show
themselves only while somebody watches, and nothing of what clients send.

Keys: q quits, s sorts, / filters, p pauses, arrows scroll, ? helps.

Without a terminal it prints one view, as --once does. With --json it prints
workers' snapshots, an object in each line: with --once one of each worker, else
every one until it is interrupted. docs/protocol.md describes them.

The server is --nats-url, else CELLMQ_NATS_URL, else nats://127.0.0.1:4222. With
permissions it takes an operator's.`,
		Example: `  cellmq top
  cellmq top --once
  cellmq top --once --json | jq '.models[] | {name, queued}'`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.interval < broker.LiveShortest || o.interval > broker.LiveLongest {
				return usagef("--interval %v: must be between %v and %v", o.interval, broker.LiveShortest, broker.LiveLongest)
			}
			cfg, err := environment()
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return o.run(ctx, cfg, s)
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().BoolVar(&o.once, "once", false, "print one view and end")
	cmd.Flags().BoolVar(&o.ascii, "ascii", false, "draw with ASCII only (default where the locale is not UTF-8)")
	cmd.Flags().DurationVar(&o.interval, "interval", broker.LiveUsual, "time between two snapshots of a worker")
	manual.Note(cmd, manual.Notes{Environment: drawnEnvironment})
	return cmd
}

// run shows the workers as the streams allow.
func (o *topOptions) run(ctx context.Context, cfg worker.Config, s streams) error {
	if o.natsURL != "" {
		cfg.NatsURL = o.natsURL
	}
	nc, err := dial(ctx, cfg, "")
	if err != nil {
		return err
	}
	defer nc.Close()
	drawn := isTerminal(s.out) && os.Getenv("TERM") != "dumb"
	view := top.Config{
		Conn: nc, Prefix: cfg.SubjectPrefix, Interval: o.interval,
		Colour: drawn && os.Getenv("NO_COLOR") == "",
		ASCII:  o.ascii || os.Getenv("TERM") == "dumb" || !utf8Locale(os.Getenv),
	}
	in, out := asFile(s.in), asFile(s.out)
	switch {
	case o.json && !o.once:
		err = top.Stream(ctx, view, s.out)
	case o.once || o.json:
		err = o.print(ctx, view, s)
	case !drawn || !isTerminal(s.in):
		if _, err := fmt.Fprintln(s.err, "cellmq: input and output are not both a terminal that draws: one view, as with --once"); err != nil {
			return err
		}
		err = o.print(ctx, view, s)
	default:
		err = top.Run(ctx, view, in, out)
	}
	if errors.Is(err, top.ErrInterrupted) {
		return context.Canceled
	}
	return err
}

// print prints one view.
func (o *topOptions) print(ctx context.Context, view top.Config, s streams) error {
	const usual = 120
	width, _ := terminalSize(s.out)
	err := top.Once(ctx, view, s.out, cmp.Or(width, usual), o.json)
	if errors.Is(err, top.ErrNobody) {
		return fmt.Errorf("%w (is one running that this user may watch? start one with 'cellmq worker')", err)
	}
	return err
}

// asFile returns a stream as the file that it is; nil if it is none.
func asFile(stream any) *os.File {
	f, _ := stream.(*os.File)
	return f
}

// utf8Locale reports whether the environment's locale writes UTF-8. The first variable
// that is set counts.
func utf8Locale(getenv func(string) string) bool {
	locale := strings.ToUpper(cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
	return strings.Contains(locale, "UTF-8") || strings.Contains(locale, "UTF8")
}
