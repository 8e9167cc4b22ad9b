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

	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/loadtest/internal/transport"
)

func main() {
	transport.Main()
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// The notes of the commands for help. Those of the root hold for every command
// without its own.
const (
	serverEnvironment = `CELLMQ_NATS_URL          server of the workers to load (default none: a worker is started)
CELLMQ_NATS_CREDENTIALS  file with the user's JWT and seed
CELLMQ_NATS_NKEY         file with the user's seed
CELLMQ_NATS_CA           file with the authorities of the server's certificate
CELLMQ_NATS_CERT         file with the certificate that the server gets to see
CELLMQ_NATS_KEY          file with the key of that certificate
CELLMQ_SUBJECT_PREFIX    first token of all subjects (default infer)
CELLMQ_...               settings of the worker that is started`

	measureEnvironment = `CELLMQ_ISA  instruction tier to compute with (default the fastest)`

	usualExit = `0    it was measured; failed requests are in the report
1    it was not: a flag makes no sense, no worker answers, a file cannot be written
130  it was interrupted`
)

// newRoot returns the command tree.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:               "loadtest",
		Short:             "Put a load on cellmq, and measure it",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	bindRun(root)
	root.AddCommand(newRun(), newSweep(), newSaturation(), newBatching(), newAccuracy(), newTransport(), newRepro(), newAlternatives())
	manual.Note(root, manual.Notes{Environment: serverEnvironment, Exit: usualExit})
	manual.Attach(root)
	return root
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
	root := newRoot()
	root.SetOut(stdout)
	root.SetErr(&oneAtATime{w: stderr})
	root.SetArgs(args)
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
