package cli

import (
	"context"
	"errors"
	"fmt"

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

func newModelDelete(s streams) *cobra.Command {
	o := &modelOptions{}
	unused := false
	cmd := &cobra.Command{
		Use:   "delete NAME@VERSION | delete --unused",
		Short: "Delete a version from NATS",
		Long: `delete removes a version and the parts that no other one uses. It is refused while
the version is deployed or loaded by a worker, and while the model is pinned; one that
is only kept to go back to is so no longer. --unused deletes no version: it removes
what pushes left that were not finished within an hour, and deployments of models
without a version that cannot be read, or that have said nothing for an hour.`,
		Example: `  cellmq model delete my-lm@1
  cellmq model delete --unused`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			if unused == (len(positional) > 0) {
				return usagef("either NAME@VERSION or --unused wanted")
			}
			if unused {
				return o.withRegistry(cmd, s, func(ctx context.Context, r *registry.Registry) error { return o.sweep(ctx, r, s) })
			}
			name, version, err := oneVersion(positional[0])
			if err != nil {
				return err
			}
			return o.withRegistry(cmd, s, func(ctx context.Context, r *registry.Registry) error {
				if err := r.Delete(ctx, name, version); err != nil {
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
	cmd.Flags().BoolVar(&unused, "unused", false, "remove what unfinished pushes left, and what nobody can read of models without a version")
	cmd.ValidArgsFunction = first(storedVersions)
	return cmd
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
