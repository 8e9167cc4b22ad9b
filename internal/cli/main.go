package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/worker"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitOtherModel  = 3
	exitInterrupted = 130
)

// streams are the standard streams of a command.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// usageError marks a command line that makes no sense.
type usageError struct{ error }

// Unwrap returns what makes no sense.
func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errReported is a failure that the command has told the user about itself.
var errReported = errors.New("failed")

// Main runs the command that args, without the program's name, ask for and
// returns its exit code. Ending ctx is the same as an interruption.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := streams{in: stdin, out: stdout, err: stderr}
	root := newRoot(s)
	root.SetArgs(append([]string{}, args...)) // nil would be the process's own
	cmd, err := root.ExecuteContextC(ctx)
	return exitCode(s, cmd, err)
}

// exitCode tells the user of an error and maps it.
func exitCode(s streams, cmd *cobra.Command, err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(s.err, "cellmq: %v\nTry '%s --help'.\n", err, cmd.CommandPath()) // nobody is left to tell
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, errReported):
		return exitFailure
	case errors.Is(err, worker.ErrOtherModel):
		_, _ = fmt.Fprintf(s.err, "cellmq: %v\n", err) // nobody is left to tell
		return exitOtherModel
	default:
		_, _ = fmt.Fprintf(s.err, "cellmq: %v\n", err) // nobody is left to tell
		return exitFailure
	}
}

// newRoot returns the command tree.
func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "cellmq",
		Short: "Asynchronous inference over NATS with cellular batching",
		Long: `cellmq is an asynchronous inference worker for recurrent models. Clients publish
requests to NATS subjects; workers pull them from JetStream, batch them cell by
cell, and stream tokens back. One binary is worker, client and, where none is
configured, the NATS server.`,
		Example: `  cellmq demo
  cellmq worker
  cellmq request g2p-en "cellular batching"`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newDemo(s), newWorker(s), newRequest(s), newCancel(s), newDLQ(s), newModel(s), newTop(s), newHealth(s), newVersion(s), newCompletion(s))
	manual.Note(root, manual.Notes{Environment: serverEnvironment, Exit: usualExit})
	manual.Attach(root)
	noFiles(root)
	return root
}

// args makes what a validator refuses a usage error.
func args(validate cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := validate(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// interruptible returns a context that SIGINT and SIGTERM end.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}
