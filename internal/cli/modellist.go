package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/registry"
)

func newModelList(s streams) *cobra.Command {
	o := &modelOptions{}
	cmd := &cobra.Command{
		Use:   "list [NAME]",
		Short: "List the versions that are stored in NATS",
		Long: `list prints a line for each version of one model or of all, the oldest first: what
it serves now, how large it is, how many golden outputs it has, and the beginning of
its digest.`,
		Example: `  cellmq model list
  cellmq model list my-lm --json | jq -r 'select(.role == "") | .version'`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) (err error) {
			name := ""
			if len(positional) > 0 {
				if name, err = modelName(positional[0]); err != nil {
					return err
				}
			}
			return o.withRegistry(cmd, s, func(ctx context.Context, r *registry.Registry) error {
				return o.list(ctx, r, name, s)
			})
		},
	}
	o.bind(cmd.Flags())
	cmd.ValidArgsFunction = first(storedModels)
	return cmd
}

// versionSummary is what list shows of a version.
type versionSummary struct {
	Model      string    `json:"model"`
	Version    string    `json:"version"`
	Digest     string    `json:"digest"`
	Role       string    `json:"role"` // in the deployment; empty: none
	Family     string    `json:"family"`
	Task       string    `json:"task"`
	Weights    string    `json:"weights"`
	Parameters int64     `json:"parameters"`
	Cells      []string  `json:"cells"`
	Bytes      int64     `json:"bytes"`
	Golden     int       `json:"golden"`
	SelfMade   bool      `json:"self_made"`
	Pushed     time.Time `json:"pushed"`
}

func versionSummaryOf(m *registry.Manifest, d *registry.Deployment) versionSummary {
	return versionSummary{
		Model: m.Model, Version: m.Version, Digest: m.Digest, Role: role(d, m.Digest), Family: m.Family, Task: m.Task, Weights: m.Weights,
		Parameters: m.Parameters, Cells: append([]string{}, m.Cells...), Bytes: m.Bytes(), Golden: m.Golden, SelfMade: m.SelfMade, Pushed: m.Pushed,
	}
}

// role is what a version is in a deployment, which may be nil.
func role(d *registry.Deployment, digest string) string {
	switch {
	case d == nil:
		return ""
	case d.Active.Digest == digest:
		return "active"
	case d.Next.Digest == digest:
		return string(d.Phase)
	case d.Refuses(registry.Ref{Digest: digest}):
		return "refused"
	case d.Previous.Digest == digest:
		return "previous"
	}
	return ""
}

// goldenText says how many golden outputs there are, and who made them.
func goldenText(n int, selfMade bool) string {
	switch {
	case n == 0:
		return "none"
	case selfMade:
		return strconv.Itoa(n) + " self-made"
	}
	return strconv.Itoa(n)
}

func (o *modelOptions) list(ctx context.Context, r *registry.Registry, name string, s streams) error {
	versions, err := r.Versions(ctx, name)
	if err != nil {
		return err
	}
	deployed, err := deployedOf(ctx, r, s)
	if err != nil {
		return err
	}
	if o.json {
		for _, m := range versions {
			if err := writeJSON(s.out, versionSummaryOf(m, deployed[m.Model])); err != nil {
				return err
			}
		}
		return nil
	}
	if len(versions) == 0 {
		_, err := fmt.Fprintln(s.err, "no versions")
		return err
	}
	t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "MODEL\tVERSION\tROLE\tFAMILY\tPARAMETERS\tSIZE\tGOLDEN\tPUSHED\tDIGEST") // Flush has the error
	for _, m := range versions {
		v := versionSummaryOf(m, deployed[m.Model])
		role := v.Role
		if role == "" {
			role = "-"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%.12s\n", v.Model, shown(v.Version), role, shown(v.Family), v.Parameters, // as above
			sizeText(v.Bytes), goldenText(v.Golden, v.SelfMade), v.Pushed.UTC().Format(time.RFC3339), v.Digest)
	}
	return t.Flush()
}

// deployedOf returns the deployments, and tells of those that cannot be read.
func deployedOf(ctx context.Context, r *registry.Registry, s streams) (map[string]*registry.Deployment, error) {
	deployed, _, err := r.Deployments(ctx)
	if errors.Is(err, registry.ErrMalformed) {
		_, err = fmt.Fprintf(s.err, "cellmq: %v\n", err)
	}
	return deployed, err
}

// deploymentLine tells a deployment in a line.
func deploymentLine(d *registry.Deployment) string {
	var b strings.Builder
	switch d.Phase {
	case registry.Loading:
		fmt.Fprintf(&b, "%s serves, %s is loaded", refName(d.Active), refName(d.Next))
		if d.Canary != registry.Whole {
			fmt.Fprintf(&b, " for a canary at %s", shareText(d.Canary))
		}
	case registry.Canary:
		fmt.Fprintf(&b, "%s serves, %s has %s of the requests", refName(d.Active), refName(d.Next), shareText(d.Share))
		if d.Hold > 0 {
			fmt.Fprintf(&b, " for %v", time.Duration(d.Hold))
		}
	case registry.Watching:
		fmt.Fprintf(&b, "%s serves, watched for %v, before it %s", refName(d.Active), time.Duration(d.Watch), refName(d.Previous))
	case registry.Steady:
		fmt.Fprintf(&b, "%s serves", refName(d.Active))
		if d.Previous.Digest != d.Active.Digest {
			fmt.Fprintf(&b, ", before it %s", refName(d.Previous))
		}
	default:
		b.WriteString(shown(string(d.Phase)))
	}
	if d.Pinned {
		b.WriteString(", pinned")
	}
	return b.String()
}

// shareText is a share in percent.
func shareText(share int) string {
	return strconv.FormatFloat(float64(share)/(registry.Whole/100), 'f', -1, 64) + " %"
}
