package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// replayOptions are the flags of replay.
type replayOptions struct {
	letterOptions

	modelDirs []string
	steps     bool
	force     bool
}

func newDLQReplay(s streams) *cobra.Command {
	o := &replayOptions{}
	cmd := &cobra.Command{
		Use:   "replay NUMBER",
		Short: "Run a dead letter again, offline, and compare",
		Long: `replay runs the request of a dead letter again within this process, alone and one
row at a time, and compares what it gives with what was recorded: the terminal
frame (type, error code, text, tokens, log-probabilities, classes; not times) and
the tokens that were decoded before. Only the letter is read from the server;
nothing is published and nobody gets a frame.

The model must be the one of the letter, with the same files, version and weight
type (CELLMQ_WEIGHTS, CELLMQ_MODEL_DIRS and --model-dir count as for a worker).

The exit code is 0 when the replay is equal, 1 when it differs or cannot be made,
3 when the model is another one, which --force overrides. A letter with
attempts_exhausted whose request now ends by itself differs: its attempts died of
something else. What crashes a worker crashes replay too; --steps shows after which
step.`,
		Example: `  cellmq dlq replay 7
  cellmq dlq replay 7 --steps
  cellmq dlq replay 7 --json | jq .differences
  cellmq dlq replay 7 --model-dir ./models --force`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			number, err := letterNumber(positional[0])
			if err != nil {
				return err
			}
			cfg, err := environment()
			if err != nil {
				return err
			}
			cfg.ModelDirs = append(cfg.ModelDirs, o.modelDirs...)
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			defer context.AfterFunc(ctx, stop)() // a second signal ends the process
			return o.replay(ctx, cfg, s, number)
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().StringArrayVar(&o.modelDirs, "model-dir", nil, "directory whose sub-directories are models; repeatable")
	completeFlag(cmd, "model-dir", directories)
	cmd.Flags().BoolVar(&o.steps, "steps", false, "print each step")
	cmd.Flags().BoolVar(&o.force, "force", false, "replay with another model than the letter's")
	manual.Note(cmd, manual.Notes{Environment: replayEnvironment, Exit: replayExit})
	return cmd
}

// replay reads the letter and runs it again.
func (o *replayOptions) replay(ctx context.Context, cfg worker.Config, s streams, number uint64) error {
	l, err := o.one(ctx, cfg, s, number)
	if err != nil {
		return err
	}
	m, err := worker.ReplayModel(l, cfg.ServeConfig)
	if errors.Is(err, worker.ErrOtherModel) && o.force {
		if _, err := fmt.Fprintf(s.err, "cellmq: %v\n", err); err != nil {
			return err
		}
		err = nil
	}
	if errors.Is(err, worker.ErrOtherModel) {
		return fmt.Errorf("%w (--force replays it all the same)", err)
	}
	if err != nil {
		return err
	}
	steps := &stepPrinter{out: s.out, json: o.json}
	var step func(cellrt.StepTrace)
	if o.steps {
		step = steps.print
	}
	report, err := worker.Replay(ctx, l, []*models.Model{m}, step)
	if err = errors.Join(err, steps.err); err != nil {
		return err
	}
	if o.json {
		err = writeJSON(s.out, replayJSONOf(l, &report))
	} else {
		err = writeReplay(s.out, l, &report)
	}
	if err == nil && !report.Equal() {
		err = errReported
	}
	return err
}

// stepPrinter prints steps.
type stepPrinter struct {
	out  io.Writer
	json bool
	n    int
	err  error // the first failure
}

// print is called after each step, by one goroutine.
func (p *stepPrinter) print(t cellrt.StepTrace) {
	if p.err != nil {
		return
	}
	p.n++
	if p.json {
		p.err = writeJSON(p.out, struct {
			Step        int    `json:"step"`
			Cell        string `json:"cell"`
			Ready       int    `json:"ready"`
			Nanoseconds int64  `json:"ns"`
		}{p.n, t.Cell, t.Ready, t.Duration.Nanoseconds()})
		return
	}
	if _, err := fmt.Fprintf(p.out, "step %d  %s  %v  %d ready\n", p.n, t.Cell, t.Duration, t.Ready); err != nil {
		p.err = fmt.Errorf("%w: %w", errWrite, err)
	}
}

// writeReplay prints a report to be read.
func writeReplay(out io.Writer, l *broker.Letter, r *worker.ReplayReport) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, values ...any) {
		_, _ = fmt.Fprintf(t, name+"\t"+format+"\n", values...) // Flush has the error
	}
	row("letter", "%d: request %s of %s to %s", l.Number, shown(l.ID), shown(l.Client), l.Model)
	row("model", "version %s, digest %s", r.Version, r.Digest)
	row("steps", "%d", r.Steps)
	row("tokens", "%d, recorded before the end %d", len(r.Tokens), len(l.Tokens))
	if r.Recorded != nil {
		row("recorded", "%s", frameLine(r.Recorded))
	} else {
		row("recorded", "error %s", shown(string(l.Code)))
	}
	row("replayed", "%s", frameLine(&r.Replayed))
	if len(r.Missing) > 0 {
		row("not recorded", "%s", shown(strings.Join(r.Missing, ", ")))
	}
	if r.Equal() {
		row("result", "equal")
	} else {
		row("result", "different")
	}
	for _, d := range r.Differences {
		row("  "+d.Field, "recorded %s", brief(d.Recorded))
		row("", "replayed %s", brief(d.Replayed))
	}
	return t.Flush()
}

// maxBrief bounds what is shown of a value that differs.
const maxBrief = 200

func brief(text string) string {
	if r := []rune(text); len(r) > maxBrief {
		return fmt.Sprintf("%q…", string(r[:maxBrief]))
	}
	return shown(text)
}

// replayJSON is a report for programs.
type replayJSON struct {
	Number      uint64             `json:"number"`
	ID          string             `json:"id"`
	Model       string             `json:"model"`
	Version     string             `json:"version"`
	Digest      string             `json:"digest"`
	Steps       int                `json:"steps"`
	Tokens      []int32            `json:"tokens"`
	Code        broker.Code        `json:"recorded_code"`
	Type        broker.FrameType   `json:"replayed_type"`
	Error       broker.Code        `json:"replayed_code,omitempty"`
	Text        string             `json:"replayed_text,omitempty"`
	Missing     []string           `json:"missing,omitempty"`
	Equal       bool               `json:"equal"`
	Differences []replayDifference `json:"differences"`
}

type replayDifference struct {
	Field    string `json:"field"`
	Recorded string `json:"recorded"`
	Replayed string `json:"replayed"`
}

func replayJSONOf(l *broker.Letter, r *worker.ReplayReport) replayJSON {
	j := replayJSON{
		Number: l.Number, ID: l.ID, Model: l.Model, Version: r.Version, Digest: r.Digest, Steps: r.Steps,
		Tokens: append([]int32{}, r.Tokens...), Code: l.Code, Type: r.Replayed.Type, Text: r.Replayed.Text,
		Missing: r.Missing, Equal: r.Equal(), Differences: []replayDifference{},
	}
	if r.Replayed.Error != nil {
		j.Error = r.Replayed.Error.Code
	}
	for _, d := range r.Differences {
		j.Differences = append(j.Differences, replayDifference(d))
	}
	return j
}
