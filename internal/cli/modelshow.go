package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/registry"
)

func newModelShow(s streams) *cobra.Command {
	o := &modelOptions{}
	cmd := &cobra.Command{
		Use:   "show NAME[@VERSION]",
		Short: "Show a model: its versions, its deployment, and what workers have of it",
		Long: `show prints the versions of a model or one of them, how the deployment stands and
why, and a line for each version on each worker: its state, how long it took to
load, the memory that its weights take (of which some belong to another version as
well) and that of its sequences, golden outputs that came out equal, running requests,
and how many ended and failed since the worker started. A version that a worker cannot
load says why. Workers that have not reported for 15 seconds are not shown. One that
has more models than its report has room for says how many it leaves out.`,
		Example: `  cellmq model show my-lm
  cellmq model show my-lm@2
  cellmq model show my-lm --json | jq -r '.workers[] | select(.state == "failed") | .reason'`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			name, version, err := modelVersion(positional[0])
			if err != nil {
				return err
			}
			return o.withRegistry(cmd, s, func(ctx context.Context, r *registry.Registry) error {
				d, err := detailsOfModel(ctx, r, name, version, s)
				if err != nil {
					return err
				}
				if o.json {
					return writeJSON(s.out, d)
				}
				return d.write(s.out)
			})
		},
	}
	o.bind(cmd.Flags())
	cmd.ValidArgsFunction = first(storedAny)
	return cmd
}

// modelDetails is what show shows.
type modelDetails struct {
	Model      string             `json:"model"`
	Versions   []versionDetails   `json:"versions"`
	Deployment *deploymentDetails `json:"deployment"` // null: there is none
	Workers    []workerVersion    `json:"workers"`
	Partial    []partialReport    `json:"partial"` // of workers that may have the model and have no room to say so

	version string // the one that was asked for
}

type versionDetails struct {
	versionSummary

	Files []fileDetails `json:"files"`
}

type fileDetails struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

type deploymentDetails struct {
	*registry.Deployment

	Stored time.Time `json:"stored"` // by the server's clock
}

// partialReport is one that does not name the model, and leaves out others.
type partialReport struct {
	Worker  string `json:"worker"`
	Omitted int    `json:"omitted"`
}

// workerVersion is what a worker has of a version.
type workerVersion struct {
	Worker string `json:"worker"`
	Serial uint64 `json:"serial"` // of the deployment that the worker acts on
	Role   string `json:"role"`
	registry.VersionReport
}

// detailsOfModel asks the registry for all of a model, or of one of its versions.
func detailsOfModel(ctx context.Context, r *registry.Registry, name, version string, s streams) (*modelDetails, error) {
	d := &modelDetails{Model: name, Versions: []versionDetails{}, Workers: []workerVersion{}, Partial: []partialReport{}, version: version}
	versions, err := r.Versions(ctx, name)
	if err != nil {
		return nil, err
	}
	deployed, err := deployedOf(ctx, r, s)
	if err != nil {
		return nil, err
	}
	reports, err := r.Reports(ctx)
	if err != nil {
		return nil, err
	}
	deployment := deployed[name]
	if deployment != nil && (deployment.Serial > 0 || deployment.Pinned) {
		d.Deployment = &deploymentDetails{Deployment: deployment, Stored: deployment.Stored}
	}
	for _, m := range versions {
		if version == "" || m.Version == version {
			v := versionDetails{versionSummary: versionSummaryOf(m, deployment), Files: []fileDetails{}}
			for _, f := range m.Files {
				v.Files = append(v.Files, fileDetails{f.Name, f.Size, f.SHA256})
			}
			d.Versions = append(d.Versions, v)
		}
	}
	d.addWorkers(reports, deployment)
	switch {
	case len(d.Versions) == 0 && version != "":
		return nil, fmt.Errorf("version %s@%s: %w", name, version, registry.ErrNotFound)
	case len(d.Versions) == 0 && d.Deployment == nil && len(d.Workers) == 0:
		return nil, fmt.Errorf("model %s: %w", name, registry.ErrNotFound)
	}
	return d, nil
}

func (d *modelDetails) addWorkers(reports []registry.Report, deployment *registry.Deployment) {
	for i := range reports {
		named := false
		for _, m := range reports[i].Models {
			if m.Model != d.Model {
				continue
			}
			named = true
			for _, v := range m.Versions {
				if isReady(v.State) {
					v.Reason = "" // of a state before
				}
				if d.version == "" || len(d.Versions) > 0 && v.Digest == d.Versions[0].Digest {
					d.Workers = append(d.Workers, workerVersion{reports[i].Worker, m.Serial, role(deployment, v.Digest), v})
				}
			}
		}
		if !named && reports[i].Omitted > 0 {
			d.Partial = append(d.Partial, partialReport{reports[i].Worker, reports[i].Omitted})
		}
	}
}

func (d *modelDetails) write(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, values ...any) {
		_, _ = fmt.Fprintf(t, name+"\t"+format+"\n", values...) // Flush has the error
	}
	row("model", "%s", d.Model)
	for i := range d.Versions {
		v := &d.Versions[i]
		row("version", "%s", strings.TrimSuffix(shown(v.Version)+", "+v.Role, ", "))
		row("  family", "%s, %d parameters, cells %s", shown(v.Family), v.Parameters, shown(strings.Join(v.Cells, " ")))
		row("  task", "%s", shown(v.Task))
		row("  weights", "%s", shown(v.Weights))
		row("  size", "%s in %d files", sizeText(v.Bytes), len(v.Files))
		row("  golden", "%s", goldenText(v.Golden, v.SelfMade))
		row("  pushed", "%s", v.Pushed.UTC().Format(time.RFC3339))
		row("  digest", "%s", v.Digest)
		if d.version == "" {
			continue
		}
		for _, f := range v.Files {
			row("  file", "%s %s, sha256 %s", shown(f.Name), sizeText(f.Bytes), f.SHA256)
		}
	}
	d.writeDeployment(row)
	if err := t.Flush(); err != nil {
		return err
	}
	return d.writeWorkers(out)
}

func (d *modelDetails) writeDeployment(row func(name, format string, values ...any)) {
	if d.Deployment == nil {
		row("deployment", "none: workers serve what they have of their own")
		return
	}
	row("deployment", "%d, %s: %s", d.Deployment.Serial, d.Deployment.Phase, deploymentLine(d.Deployment.Deployment))
	row("  written", "%s, by %s", d.Deployment.Stored.UTC().Format(time.RFC3339), shown(d.Deployment.By))
	if d.Deployment.Reason != "" {
		row("  reason", "%s", shown(d.Deployment.Reason))
	}
	for _, r := range d.Deployment.Refused {
		row("  refused", "%s, digest %.12s", refName(r), cmp.Or(r.Digest, "-"))
	}
}

// writeWorkers prints a line for each version on each worker.
func (d *modelDetails) writeWorkers(out io.Writer) error {
	if len(d.Workers) == 0 {
		if _, err := fmt.Fprintln(out, "\nno worker reports it"); err != nil {
			return err
		}
		return d.writePartial(out)
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\nWORKER\tVERSION\tSTATE\tLOADED IN\tWEIGHTS\tSHARED\tSTATE BYTES\tGOLDEN\tRUNNING\tENDED\tFAILED\tREASON") // Flush has the error
	for i := range d.Workers {
		w := &d.Workers[i]
		took := time.Duration(w.LoadMillis) * time.Millisecond
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%v\t%s %s\t%s\t%s\t%d/%d\t%d\t%d\t%d\t%s\n", w.Worker, refName(w.Ref), shown(w.State), took, // as above
			cmp.Or(w.Weights, "-"), sizeText(w.WeightBytes), sizeText(w.SharedBytes), sizeText(w.StateBytes), w.GoldenEqual, w.Golden,
			w.Running, w.Ended, w.Failed, reasonText(w.Reason))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return d.writePartial(out)
}

// writePartial prints a line for each worker whose report may leave the model out.
func (d *modelDetails) writePartial(out io.Writer) error {
	for _, p := range d.Partial {
		if _, err := fmt.Fprintf(out, "worker %s may have it: its report has no room for %d of its models\n", p.Worker, p.Omitted); err != nil {
			return err
		}
	}
	return nil
}

// reasonText is a reason at the end of a line.
func reasonText(reason string) string {
	if reason == "" {
		return ""
	}
	return shown(reason)
}
