package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/registry"
)

// deployOptions are the flags of the commands that change a deployment.
type deployOptions struct {
	modelOptions

	canary      string
	hold, watch time.Duration
	noWait      bool
	timeout     time.Duration
	anew        bool
}

func newModelDeploy(s streams) *cobra.Command {
	o := &deployOptions{}
	cmd := &cobra.Command{
		Use:   "deploy NAME@VERSION | deploy NAME --canary PERCENT",
		Short: "Have all workers serve a version, without dropping a request",
		Long: `deploy has every worker that serves the model load a version beside the active one
and run its golden outputs. When all have it, new requests go to it; those that run
end with the version that began them. A worker that cannot load it, or too many
failures in the time of --watch, bring the old version back on the whole fleet.

With --canary only that share of the requests goes to the new version, chosen by
their ids: after --hold it becomes active by itself, and without --hold when
'deploy NAME --canary 100' says so. Other percentages there change the share.

The command waits until the deployment has ended, or has come to a canary without an
end, and says what for. The exit code is then 0 when the version serves, 1 when it was
refused or the time of --timeout is over, and 130 when the waiting was interrupted:
the deployment goes on. Workers have at most two versions of a model in memory: while
one has two others the deployment cannot begin, which is an error, or with --timeout
waited for.`,
		Example: `  cellmq model deploy my-lm@2
  cellmq model deploy my-lm@3 --canary 10 --hold 30m --watch 5m
  cellmq model deploy my-lm --canary 100
  cellmq model deploy my-lm@4 --timeout 15m`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			name, version, err := modelVersion(positional[0])
			if err != nil {
				return err
			}
			options, err := o.options(version, cmd.Flags().Changed)
			if err == nil {
				err = o.checkWait()
			}
			if err != nil {
				return err
			}
			return o.withRegistry(cmd, s, func(ctx context.Context, r *registry.Registry) error {
				ctx, cancel := o.bounded(ctx)
				defer cancel()
				if version == "" {
					return o.promote(ctx, r, name, options.Canary, s)
				}
				return o.deploy(ctx, r, name, version, options, s)
			})
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().StringVar(&o.canary, "canary", "100", "percent of the requests that the version gets, in steps of 0.01")
	cmd.Flags().DurationVar(&o.hold, "hold", 0, "how long a canary lasts before the version becomes active; 0 is until you say so")
	cmd.Flags().DurationVar(&o.watch, "watch", registry.DefaultWatch, "for how long failures then bring the old version back")
	o.bindWait(cmd.Flags())
	cmd.Flags().BoolVar(&o.anew, "anew", false, "begin also where the model's deployment cannot be read")
	manual.Note(cmd, manual.Notes{Exit: deployExit})
	cmd.ValidArgsFunction = first(storedVersions)
	return cmd
}

// The bounds of durations.
const (
	maxHold  = 7 * 24 * time.Hour
	maxWatch = time.Hour
)

// options reads the flags. Without a version they are those of a promotion.
func (o *deployOptions) options(version string, given func(flag string) bool) (registry.Options, error) {
	share, err := percent(o.canary)
	switch {
	case err != nil:
		return registry.Options{}, err
	case version == "" && !given("canary"):
		return registry.Options{}, usagef("NAME@VERSION wanted, or --canary to change the share of a version that is being deployed")
	case version == "" && (given("hold") || given("watch") || given("anew")):
		return registry.Options{}, usagef("--hold, --watch and --anew are for the beginning of a deployment: NAME@VERSION wanted")
	case o.hold < 0 || o.hold > maxHold:
		return registry.Options{}, usagef("--hold %v: 0 to %v wanted", o.hold, maxHold)
	case o.watch < 0 || o.watch > maxWatch:
		return registry.Options{}, usagef("--watch %v: 0 to %v wanted", o.watch, maxWatch)
	case o.hold > 0 && share == registry.Whole:
		return registry.Options{}, usagef("--hold %v: only with a --canary below 100", o.hold)
	}
	return registry.Options{Canary: share, Hold: o.hold, Watch: o.watch, By: operator()}, nil
}

// percent reads a share, in hundredths of a percent.
func percent(text string) (int, error) {
	p, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "%")), 64)
	share := p * (registry.Whole / 100)
	if err != nil || !(share >= 0 && share <= registry.Whole) || math.Abs(share-math.Round(share)) > 1e-6 {
		return 0, usagef("--canary %.32s: 0 to 100 percent in steps of 0.01 wanted", text)
	}
	return int(math.Round(share)), nil
}

// operator is who uses the command, for others to know.
func operator() string {
	name := "operator"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

func (o *deployOptions) deploy(ctx context.Context, r *registry.Registry, name, version string, options registry.Options, s streams) error {
	m, err := r.Version(ctx, name, version)
	if err != nil {
		return err
	}
	if err := warnOfGolden(m, s); err != nil {
		return err
	}
	var to registry.Ref
	c := &change{registry: r, name: name, anew: o.anew}
	d, err := o.begin(ctx, c, s, func(d *registry.Deployment, reports []registry.Report) (*registry.Deployment, error) {
		m, err := r.Version(ctx, name, version) // again, since it may be deleted until the deployment was read
		if err != nil {
			return nil, err
		}
		to = registry.Ref{Version: m.Version, Digest: m.Digest}
		return d.Begin(to, options, reports)
	})
	if err != nil {
		return o.unchanged(d, err, s)
	}
	return o.follow(ctx, r, d, to, s)
}

// promote changes the share of the version that is being deployed.
func (o *deployOptions) promote(ctx context.Context, r *registry.Registry, name string, share int, s streams) error {
	var to registry.Ref
	c := &change{registry: r, name: name}
	d, err := c.make(ctx, func(d *registry.Deployment, _ []registry.Report) (*registry.Deployment, error) {
		to = d.Next
		return d.Promote(share)
	})
	if err != nil {
		return err // also when there is no canary: that share serves nothing
	}
	return o.follow(ctx, r, d, to, s)
}

func newModelRollback(s streams) *cobra.Command {
	o := &deployOptions{}
	reason := ""
	cmd := &cobra.Command{
		Use:   "rollback NAME",
		Short: "Go back to the version before",
		Long: `rollback ends what is being deployed of a model, and otherwise brings the version
back that was active before. Where there is none it is refused: 'cellmq model
undeploy' takes a model out of service. What is taken back before the time of --watch is over is
refused: it serves no further request until it is deployed again. Where the old
version is not loaded any longer it is loaded first, as deploy does, and the command
waits for that.`,
		Example: `  cellmq model rollback my-lm
  cellmq model rollback my-lm --reason "wrong accents"`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			name, err := modelName(positional[0])
			if err != nil {
				return err
			}
			if err := o.checkWait(); err != nil {
				return err
			}
			return o.withRegistry(cmd, s, func(ctx context.Context, r *registry.Registry) error {
				ctx, cancel := o.bounded(ctx)
				defer cancel()
				c := &change{registry: r, name: name}
				d, err := c.make(ctx, func(d *registry.Deployment, _ []registry.Report) (*registry.Deployment, error) {
					return d.Rollback(reason, operator())
				})
				if errors.Is(err, registry.ErrNothing) && d.Active != (registry.Ref{}) {
					return fmt.Errorf("%w ('cellmq model undeploy %s' takes it out of service)", err, name)
				}
				if err != nil {
					return err
				}
				return o.follow(ctx, r, d, d.Next, s)
			})
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "rolled back by an operator", "why, for others to read")
	o.bindWait(cmd.Flags())
	manual.Note(cmd, manual.Notes{Exit: deployExit})
	cmd.ValidArgsFunction = first(storedModels)
	return cmd
}

// newModelPin returns the command that pins, or the one that ends that.
func newModelPin(s streams, on bool) *cobra.Command {
	o := &deployOptions{}
	cmd := &cobra.Command{
		Use:   "pin NAME",
		Short: "Keep a model's deployment as it is",
		Long: `pin keeps what is served of a model: deploy, rollback and delete are refused, and
workers never free the model to make room for others. unpin ends that.`,
		Example: `  cellmq model pin my-lm`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			name, err := modelName(positional[0])
			if err != nil {
				return err
			}
			return o.withRegistry(cmd, s, func(ctx context.Context, r *registry.Registry) error {
				c := &change{registry: r, name: name, known: on}
				d, err := c.make(ctx, func(d *registry.Deployment, _ []registry.Report) (*registry.Deployment, error) {
					return d.Pin(on)
				})
				if err != nil {
					return o.unchanged(d, err, s)
				}
				return o.tell(d, s)
			})
		},
	}
	if !on {
		cmd.Use, cmd.Short, cmd.Example = "unpin NAME", "Let a pinned deployment change again", "  cellmq model unpin my-lm"
		cmd.Long = "unpin ends what pin began."
	}
	o.bind(cmd.Flags())
	cmd.ValidArgsFunction = first(storedModels)
	return cmd
}
