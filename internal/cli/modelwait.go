package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/cellmq/cellmq/registry"
)

// errLate is the cause of a context whose time, that of --timeout, is over.
var errLate = errors.New("the time of --timeout is over")

// bindWait adds the flags that say whether and how long to wait.
func (o *deployOptions) bindWait(flags *pflag.FlagSet) {
	flags.BoolVar(&o.noWait, "no-wait", false, "only begin")
	flags.DurationVar(&o.timeout, "timeout", 0, "how long to wait before that is an error; 0 is until the end")
}

// checkWait checks these flags.
func (o *deployOptions) checkWait() error {
	switch {
	case o.timeout < 0:
		return usagef("--timeout %v: not negative wanted", o.timeout)
	case o.timeout > 0 && o.noWait:
		return usagef("--timeout %v: only without --no-wait", o.timeout)
	}
	return nil
}

// bounded ends with [errLate] when the time of --timeout is over.
func (o *deployOptions) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, o.timeout, errLate)
}

// begin makes a change, with a timeout as soon as no worker has two other versions
// loaded.
func (o *deployOptions) begin(ctx context.Context, c *change, s streams,
	edit func(*registry.Deployment, []registry.Report) (*registry.Deployment, error),
) (*registry.Deployment, error) {
	said := ""
	for {
		d, err := c.make(ctx, edit)
		switch {
		case ctx.Err() != nil && err != nil:
			return d, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case !errors.Is(err, registry.ErrThird) || o.timeout == 0:
			return d, err
		}
		if text := err.Error(); text != said {
			said = text
			if _, err := fmt.Fprintf(s.err, "%s: waiting: %s\n", c.name, text); err != nil {
				return d, err
			}
		}
		select {
		case <-ctx.Done():
			return d, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pollEvery):
		}
	}
}
