package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/loadtest/internal/alternative"
	"github.com/cellmq/cellmq/loadtest/internal/load"
)

// alternativesFlags are the flags of alternatives that are not options as they are.
type alternativesFlags struct {
	options        alternative.Options
	models, shapes []string
	bundled, other string
	versions       string
	json, markdown string
	plots, preface string
	before         string // what the preface's file says
	server         string
}

func newAlternatives() *cobra.Command {
	f := &alternativesFlags{}
	cmd := &cobra.Command{
		Use:   "alternatives",
		Short: "Compare cellmq with a server of the same models on PyTorch",
		Long: `alternatives puts the same load on cellmq and on a server with dynamic batching,
one after the other on the same machine, and reports both. loadtest/alternatives/run
calls it, and says what it needs.`,
		Example: `  bash loadtest/alternatives/run
  go run ./loadtest alternatives --models langid --shapes 2x1 --rounds 1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.parse()
			if err != nil {
				return err
			}
			o.Log = func(line string) { say(cmd.ErrOrStderr(), "%s", line) }
			r, err := alternative.Compare(cmd.Context(), o)
			if err != nil {
				return err
			}
			return f.write(cmd, r)
		},
	}
	f.bind(cmd.Flags())
	manual.Note(cmd, manual.Notes{Environment: measureEnvironment})
	return cmd
}

func (f *alternativesFlags) bind(set *pflag.FlagSet) {
	o := &f.options
	set.SortFlags = false
	set.StringVar(&f.server, "server", "/usr/bin/python3 loadtest/alternatives/serve.py", "command of the alternative, to which a model's directory and --threads are added")
	set.StringArrayVar(&o.ServerArgs, "server-arg", nil, "argument of the alternative, as --server-arg=--max-batch=32; repeatable")
	set.StringSliceVar(&f.shapes, "shapes", []string{"2x1", "1x2"}, "processes x threads of the alternative")
	set.StringVar(&f.versions, "versions", "", "file with what versions.py printed")
	set.StringVar(&o.Program, "program", "", "cellmq program (default: it is built, which needs Go)")
	set.StringArrayVar(&o.WorkerArgs, "worker-arg", []string{"--slots=64", "--realtime-slots=128", "--executors=2"}, "argument of cellmq's worker; repeatable")
	set.StringSliceVar(&f.models, "models", []string{"g2p-en", "kjv-lm", "langid", "listops", "lstm-1024"}, "models")
	set.StringVar(&f.bundled, "bundled", "models/zoo", "folder of the bundled models")
	set.StringVar(&f.other, "other", "", "folder of the model that is made: lstm-1024")

	set.Float64SliceVar(&o.Shares, "shares", []float64{0.1, 0.4, 0.7, 0.9}, "rates, as shares of the highest throughput of a closed loop")
	set.IntVar(&o.Concurrency, "max-concurrency", 64, "requests under way in the closed loop")
	set.IntVar(&o.Rounds, "rounds", 2, "how often each load is put on each system")
	set.DurationVar(&o.Warmup, "warmup", 500*time.Millisecond, "how long requests are sent before they count")
	set.DurationVar(&o.Duration, "duration", 2*time.Second, "how long they count")
	set.DurationVar(&o.Patience, "patience", 10*time.Second, "how long an answer is waited for")
	set.IntVar(&o.Sample, "sample", 40, "requests whose answers are compared")
	set.Uint64Var(&o.Seed, "seed", 1, "where random numbers begin")

	set.StringVar(&f.json, "json", "", "file for the report as JSON")
	set.StringVar(&f.markdown, "markdown", "", "file for the report as Markdown (default: stdout)")
	set.StringVar(&f.preface, "preface", "", "file with the text before the tables")
	set.StringVar(&f.plots, "plot", "", "directory for plots as SVG, beside the Markdown")
}

func (f *alternativesFlags) parse() (alternative.Options, error) {
	o := f.options
	o.CPU = load.CPUTime
	o.Server = strings.Fields(f.server)
	var errs []error
	for _, text := range f.shapes {
		s, err := alternative.ParseShape(text)
		errs = append(errs, err)
		o.Shapes = append(o.Shapes, s)
	}
	// cellmq reads them as well, perhaps from another directory.
	bundled, err := filepath.Abs(f.bundled)
	errs = append(errs, err)
	other, err := filepath.Abs(f.other)
	errs = append(errs, err)
	o.Models, err = alternative.ParseModels(f.models, bundled, other)
	errs = append(errs, err)
	if f.versions != "" {
		text, err := os.ReadFile(f.versions)
		if err == nil {
			err = json.Unmarshal(text, &o.Versions)
		}
		errs = append(errs, err)
	}
	if f.preface != "" {
		text, err := os.ReadFile(f.preface)
		if f.before = string(text) + "\n"; f.markdown == "" {
			err = errors.Join(err, errors.New("--preface does nothing: it goes with --markdown"))
		}
		errs = append(errs, err)
	}
	return o, errors.Join(append(errs, o.Validate())...)
}

func (f *alternativesFlags) write(cmd *cobra.Command, r *alternative.Report) error {
	var errs []error
	if f.json != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			err = os.WriteFile(f.json, append(text, '\n'), 0o644)
		}
		errs = append(errs, err)
	}
	if f.plots != "" {
		errs = append(errs, load.WriteFigures(f.plots, r.Figures()))
	}
	text := r.Markdown(filepath.Base(f.plots))
	if f.plots == "" {
		text = r.Markdown("")
	}
	if f.markdown == "" {
		_, err := fmt.Fprint(cmd.OutOrStdout(), text)
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, os.WriteFile(f.markdown, []byte(f.before+text), 0o644))...)
}
