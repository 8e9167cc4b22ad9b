// Loadtest puts a load on cellmq and measures it. Run `go run ./loadtest help` for
// what it can measure.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/loadtest/internal/transport"
)

func main() {
	transport.Main()
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// The exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitInterrupted = 130
)

// run runs the command that args ask for and returns its exit code. Results go
// to stdout, progress and errors to stderr. Ending ctx is the same as an
// interruption.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "loadtest",
		Short:         "Put a load on cellmq, and measure it",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(args)
	bindRun(root)
	root.AddCommand(newRun(), newSweep(), newSaturation(), newBatching(), newAccuracy(), newTransport(), newRepro(), newAlternatives())
	switch err := root.ExecuteContext(ctx); {
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	default:
		_, _ = fmt.Fprintf(stderr, "loadtest: %v\n", err) // nobody is left to tell
		return exitFailure
	}
}

// printReport writes a report as a page in Markdown, or as JSON.
func printReport(out io.Writer, asJSON bool, r interface{ Markdown() string }) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	_, err := fmt.Fprint(out, r.Markdown())
	return err
}
