package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/internal/modeldir"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

func newModelVerify(s streams) *cobra.Command {
	var name, weights string
	asJSON := false
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Load a model, run its golden outputs, and say what differs",
		Long: `verify does with the directory of a model what a worker does before it serves it: all
files are checked, and the inputs of golden.jsonl are run within this process and
compared with the outputs that stand there. It needs no server and changes nothing.

The weight type is --weights, else CELLMQ_WEIGHTS where it is one for every model,
else the one in config.json. With another one than f32 the model has to pass with f32
first. CELLMQ_SLOTS, CELLMQ_EXECUTORS, CELLMQ_THREADS and CELLMQ_ISA count as for a
worker, so that the speed, of all golden outputs together, is one of a worker.

The exit code is 0 when the model passes and 1 when it does not, or cannot be loaded.
A model without golden outputs passes, with a warning.`,
		Example: `  cellmq model verify ./my-lm
  cellmq model verify ./my-lm --weights int8
  cellmq model verify ./my-lm --json | jq '.runs[].mismatches[]'`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			cfg, err := environment()
			if err != nil {
				return err
			}
			if err := cfg.Validate(); err != nil {
				return usageError{err}
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			v, err := verifyDir(ctx, cfg.ServeConfig, positional[0], name, weights)
			if err != nil {
				return err
			}
			return v.show(s, asJSON)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the model (default the directory's)")
	cmd.Flags().StringVar(&weights, "weights", "", "weight type: f32, bf16 or int8")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	manual.Note(cmd, manual.Notes{Environment: serveEnvironment, Exit: verifyExit})
	cmd.ValidArgsFunction = onlyDirectory
	completeFlag(cmd, "weights", fixed("f32", "bf16", "int8"))
	return cmd
}

// verification is what verify shows.
type verification struct {
	Model      string      `json:"model"`
	Version    string      `json:"version"`
	Digest     string      `json:"digest"`
	Family     string      `json:"family"`
	Task       string      `json:"task"`
	Parameters int         `json:"parameters"`
	Cells      []string    `json:"cells"`
	Golden     int         `json:"golden"`
	SelfMade   bool        `json:"self_made"`
	LoadMillis int64       `json:"load_ms"` // to read and check the files
	Runs       []goldenRun `json:"runs"`
	Passed     bool        `json:"passed"`
}

// verifyDir loads the model in a directory and runs its golden outputs.
func verifyDir(ctx context.Context, cfg worker.ServeConfig, dir, name, weights string) (*verification, error) {
	name, err := nameOf(dir, name)
	if err != nil {
		return nil, err
	}
	chosen, err := weightType(weights, cfg.Weights)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	files, err := modeldir.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = files.Close() }() // they were only read
	m, err := models.LoadStrict(files, name)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if chosen != nil {
		m = m.WithWeights(*chosen)
	}
	v := &verification{
		Model: m.Name(), Version: m.Version(), Digest: m.Digest(), Family: m.Family(), Task: m.Task(), Parameters: m.Parameters(), Cells: m.Cells(),
		Golden: m.GoldenCases(), SelfMade: m.SelfMade(), LoadMillis: time.Since(began).Milliseconds(), Runs: []goldenRun{}, Passed: true,
	}
	proofs := []*models.Model{m}
	if m.Weights() != cellrt.F32 && v.Golden > 0 {
		proofs = []*models.Model{m.WithWeights(cellrt.F32), m}
	}
	for _, m := range proofs {
		run, err := runGolden(ctx, cfg, m)
		if err != nil {
			return nil, err
		}
		v.Runs = append(v.Runs, run)
		v.Passed = v.Passed && run.Passed
	}
	return v, nil
}

// weightType is the weight type that was asked for: by the flag, else by a setting
// for all models. nil: the model's own.
func weightType(flag string, setting []string) (*cellrt.Weights, error) {
	name, by := flag, "--weights"
	if flag == "" {
		if len(setting) != 1 || strings.Contains(setting[0], "=") {
			return nil, nil //nolint:nilnil // neither says anything
		}
		name, by = setting[0], worker.EnvPrefix+"_WEIGHTS"
	}
	for _, w := range []cellrt.Weights{cellrt.F32, cellrt.BF16, cellrt.Int8} {
		if w.String() == name {
			return &w, nil
		}
	}
	return nil, usagef("%s %.32q: f32, bf16 or int8 wanted", by, name)
}

// show prints what was found.
func (v *verification) show(s streams, asJSON bool) error {
	if v.Golden == 0 {
		if _, err := fmt.Fprintf(s.err, "cellmq: %s has no golden outputs: it loads, and nothing says whether it computes right ('cellmq model golden' makes some)\n", v.Model); err != nil {
			return err
		}
	}
	var err error
	if asJSON {
		err = writeJSON(s.out, v)
	} else {
		err = v.write(s.out)
	}
	if err == nil && !v.Passed {
		err = errReported
	}
	return err
}

func (v *verification) write(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, values ...any) {
		_, _ = fmt.Fprintf(t, name+"\t"+format+"\n", values...) // Flush has the error
	}
	row("model", "%s, version %s", v.Model, shown(v.Version))
	row("digest", "%s", v.Digest)
	row("family", "%s, %d parameters, cells %s", v.Family, v.Parameters, strings.Join(v.Cells, " "))
	row("files", "whole, read in %d ms", v.LoadMillis)
	row("golden", "%s", goldenText(v.Golden, v.SelfMade))
	for i := range v.Runs {
		v.Runs[i].write(row)
	}
	if v.Passed {
		row("result", "passed")
	} else {
		row("result", "refused")
	}
	return t.Flush()
}

func (g *goldenRun) write(row func(name, format string, values ...any)) {
	if g.Cases == 0 {
		row(g.Weights, "loaded")
		return
	}
	speed := ""
	if g.PerSecond > 0 { // models with labels write no tokens
		speed = fmt.Sprintf(", %.0f tokens/s", g.PerSecond)
	}
	row(g.Weights, "%d of %d equal, in %v%s", g.Equal, g.Cases, g.took.Round(time.Millisecond/10), speed)
	for _, m := range g.Mismatches {
		if m.Line == 0 {
			row("", "%s", shown(m.Error))
			continue
		}
		row("", "line %d: %s is %s, want %s", m.Line, m.Field, m.Got, m.Want)
	}
	if more := g.Cases - g.Equal - len(g.Mismatches); more > 0 {
		row("", "and %d more", more)
	}
	if !g.Passed && len(g.Mismatches) == 0 {
		row("", "%s", shown(g.Reason))
	}
}
