package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/worker"
)

// letterOptions are the flags that the commands about dead letters share.
type letterOptions struct{ connOptions }

func newDLQ(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look at dead letters and run them again",
		Long: `dlq is about dead letters: requests that were given up because the model's output
was no number, because of a fault of ours, or because no attempt finished them.
Each keeps what is needed to run it again.

The server is --nats-url, else CELLMQ_NATS_URL, else nats://127.0.0.1:4222. Nothing
that these commands do changes a letter or publishes a request.`,
		Example: `  cellmq dlq list
  cellmq dlq show 7 --input
  cellmq dlq replay 7 --steps`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDLQList(s), newDLQShow(s), newDLQReplay(s))
	return cmd
}

// withLetters runs f with a connection to where the letters are.
func (o *letterOptions) withLetters(ctx context.Context, cfg worker.Config, s streams, f func(*broker.Conn) error) error {
	return o.withConn(ctx, cfg, s, "cellmq dlq", f)
}

// one reads the letter of a number.
func (o *letterOptions) one(ctx context.Context, cfg worker.Config, s streams, number uint64) (l *broker.Letter, err error) {
	err = o.withLetters(ctx, cfg, s, func(conn *broker.Conn) error {
		letters, err := conn.Letters(ctx, "", number, 1)
		if err != nil {
			return err
		}
		if len(letters) == 0 || letters[0].Number != number {
			return fmt.Errorf("there is no dead letter %d ('cellmq dlq list' shows those there are)", number)
		}
		l = &letters[0]
		return nil
	})
	return l, err
}

// letterNumber reads the argument that names a letter.
func letterNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, usagef("%q is no number of a dead letter, as 'cellmq dlq list' shows them", text)
	}
	return n, nil
}

// environment returns the settings of the environment.
func environment() (worker.Config, error) {
	cfg, err := worker.DefaultConfig().FromEnv()
	if err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}

// newDLQList returns the command that lists letters.
func newDLQList(s streams) *cobra.Command {
	o := &letterOptions{}
	var from uint64
	var limit int
	cmd := &cobra.Command{
		Use:   "list [MODEL]",
		Short: "List dead letters, the oldest first",
		Long: `list prints a line for each dead letter, of one model or of all: its number, by
which show and replay know it, the place of the request in its queue, when it was
published, its model, client and id, the error that it ended with, and how many
attempts were made.`,
		Example: `  cellmq dlq list
  cellmq dlq list g2p-en --from 100 --limit 20
  cellmq dlq list --json | jq -r 'select(.code == "internal") | .number'`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			model := ""
			if len(positional) > 0 {
				model = positional[0]
				if !broker.ValidModel(model) {
					return usagef("%q is no name of a model", model)
				}
			}
			if limit < 0 {
				return usagef("--limit %d: must not be negative", limit)
			}
			cfg, err := environment()
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return o.withLetters(ctx, cfg, s, func(conn *broker.Conn) error {
				return listLetters(ctx, conn, model, from, limit, newLetterList(s, o.json))
			})
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().Uint64Var(&from, "from", 1, "number to begin with")
	cmd.Flags().IntVar(&limit, "limit", 0, "most letters to list; 0 is all")
	cmd.ValidArgsFunction = first(servedModels)
	return cmd
}

// letterPage is how many letters are read at a time: they have their payloads.
const letterPage = 32

// listLetters shows letters from a number on, up to limit unless that is 0.
func listLetters(ctx context.Context, conn *broker.Conn, model string, from uint64, limit int, list *letterList) error {
	for shown := 0; limit == 0 || shown < limit; {
		page := letterPage
		if limit > 0 {
			page = min(page, limit-shown)
		}
		letters, err := conn.Letters(ctx, model, from, page)
		if err != nil {
			return err
		}
		if err := list.add(letters); err != nil {
			return err
		}
		if len(letters) < page {
			break
		}
		shown += len(letters)
		from = letters[len(letters)-1].Number + 1
	}
	return list.end()
}
