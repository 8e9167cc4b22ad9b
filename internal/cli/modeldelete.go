package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/registry"
)

func newModelUndeploy(s streams) *cobra.Command {
	o := &deployOptions{}
	reason := ""
	cmd := &cobra.Command{
		Use:   "undeploy NAME",
		Short: "Take a model out of service",
		Long: `undeploy ends what is being deployed of a model and has workers serve no version of
it that is in NATS: what they have of their own, or nothing. None is kept to go back
to, so all versions can be deleted when the workers have freed them.

With --anew it also replaces a deployment that cannot be read.`,
		Example: `  cellmq model undeploy my-lm
  cellmq model undeploy my-lm && cellmq model delete my-lm@1`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			name, err := modelName(positional[0])
			if err != nil {
				return err
			}
			return o.withRegistry(cmd, s, func(ctx context.Context, r *registry.Registry) error {
				d, err := o.undeploy(ctx, r, name, reason)
				if err != nil {
					return o.unchanged(d, err, s)
				}
				return o.tell(d, s)
			})
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "undeployed by an operator", "why, for others to read")
	cmd.Flags().BoolVar(&o.anew, "anew", false, "also where the model's deployment cannot be read")
	cmd.ValidArgsFunction = first(storedModels)
	return cmd
}

func (o *deployOptions) undeploy(ctx context.Context, r deployments, name, reason string) (*registry.Deployment, error) {
	c := &change{registry: r, name: name, anew: o.anew}
	return c.make(ctx, func(d *registry.Deployment, _ []registry.Report) (*registry.Deployment, error) {
		next, err := d.Undeploy(reason, operator())
		if errors.Is(err, registry.ErrNothing) && o.anew && d.Revision != 0 && d.Stored.IsZero() {
			return d, nil // it cannot be read: none is written over it
		}
		return next, err
	})
}

// deleteWait is how long a deletion waits for workers: for most, somewhat longer
// than a version stays loaded that nobody wants any more.
const deleteWait = 2 * time.Minute

// deleteOptions are the flags of delete.
type deleteOptions struct {
	modelOptions

	unused, noWait bool
	timeout        time.Duration
}

func newModelDelete(s streams) *cobra.Command {
	o := &deleteOptions{}
	cmd := &cobra.Command{
		Use:   "delete NAME@VERSION | delete --unused",
		Short: "Delete a version from NATS",
		Long: `delete removes a version and the parts that no other one uses. It is refused while
the version is deployed, and while the model is pinned; one that is only kept to go
back to is so no longer. While a worker still has the version loaded, as for some time
after undeploy, it waits until the worker has freed it. --unused deletes no version: it
removes what pushes left that were not finished within an hour, and deployments of
models without a version that cannot be read, or that have said nothing for an hour.`,
		Example: `  cellmq model delete my-lm@1
  cellmq model undeploy my-lm && cellmq model delete my-lm@1 --timeout 10m
  cellmq model delete --unused`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			switch {
			case o.unused == (len(positional) > 0):
				return usagef("either NAME@VERSION or --unused wanted")
			case o.timeout <= 0:
				return usagef("--timeout %v: above 0 wanted, --no-wait waits for nobody", o.timeout)
			case o.noWait && cmd.Flags().Changed("timeout"):
				return usagef("--timeout %v: only without --no-wait", o.timeout)
			}
			if o.unused {
				return o.withRegistry(cmd, s, func(ctx context.Context, r *registry.Registry) error { return o.sweep(ctx, r, s) })
			}
			name, version, err := oneVersion(positional[0])
			if err != nil {
				return err
			}
			return o.withRegistry(cmd, s, func(ctx context.Context, r *registry.Registry) error {
				if err := o.delete(ctx, r, name, version, s); err != nil {
					return err
				}
				if o.json {
					return writeJSON(s.out, struct {
						Model   string `json:"model"`
						Version string `json:"version"`
						Deleted bool   `json:"deleted"`
					}{name, version, true})
				}
				_, err := fmt.Fprintf(s.out, "%s@%s is deleted\n", name, version)
				return err
			})
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().BoolVar(&o.unused, "unused", false, "remove what unfinished pushes left, and what nobody can read of models without a version")
	cmd.Flags().BoolVar(&o.noWait, "no-wait", false, "refuse at once while a worker has it loaded")
	cmd.Flags().DurationVar(&o.timeout, "timeout", deleteWait, "how long to wait for workers that have it loaded")
	cmd.ValidArgsFunction = first(storedVersions)
	return cmd
}

// delete deletes a version, as soon as no worker has it loaded.
func (o *deleteOptions) delete(ctx context.Context, r *registry.Registry, name, version string, s streams) error {
	late := time.NewTimer(o.timeout)
	defer late.Stop()
	for said := ""; ; {
		err := r.Delete(ctx, name, version)
		if !errors.Is(err, registry.ErrHeld) || o.noWait || ctx.Err() != nil {
			return err
		}
		if text := err.Error(); text != said {
			said = text
			if _, err := fmt.Fprintf(s.err, "%s: waiting: %s\n", name, text); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-late.C:
			return fmt.Errorf("%w: %w", errLate, err)
		case <-time.After(pollEvery):
		}
	}
}

func (o *modelOptions) sweep(ctx context.Context, r *registry.Registry, s streams) error {
	freed, err := r.Sweep(ctx)
	if err != nil {
		return err
	}
	if o.json {
		return writeJSON(s.out, struct {
			Freed int64 `json:"freed_bytes"`
		}{freed})
	}
	_, err = fmt.Fprintf(s.out, "%s freed\n", sizeText(freed))
	return err
}
