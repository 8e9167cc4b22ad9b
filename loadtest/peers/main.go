// Peers measures cellmq's CPU backend and the usual libraries side by side: the
// same products and recurrent steps, the same numbers, the same machine at the
// same time. README.md says how to run it and what the figures mean.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/cellmq/cellmq/loadtest/peers/internal/compare"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// The exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// run compares, or computes for a comparison when the first argument says so,
// and returns the exit code. The report goes to stdout, progress and errors to
// stderr. Ending ctx is the same as an interruption.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	complain := func(err error) int {
		_, _ = fmt.Fprintf(stderr, "peers: %v\n", err) // nobody is left to tell
		return exitFailure
	}
	if len(args) > 0 && args[0] == workerCommand {
		if err := work(args[1:], stdin, stdout); err != nil {
			return complain(err)
		}
		return exitOK
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		_ = complain(err)
		return exitUsage
	}
	contenders, err := s.contenders()
	if err != nil {
		return complain(err)
	}
	report, err := compare.Run(ctx, s.options, contenders, stderr)
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	if err != nil && !errors.Is(err, compare.ErrWrong) {
		return complain(err)
	}
	if e := s.write(stdout, report); e != nil {
		return complain(e)
	}
	if err != nil {
		return complain(err)
	}
	return exitOK
}

// write writes the report in the form that was asked for.
func (s settings) write(w io.Writer, r compare.Report) error {
	if !s.json {
		return compare.WriteMarkdown(w, r)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
