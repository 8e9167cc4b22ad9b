package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/loadtest/internal/accuracy"
	"github.com/cellmq/cellmq/models/zoo"
)

// accuracyFlags are the flags of accuracy that are not options as they are.
type accuracyFlags struct {
	options accuracy.Options
	weights []string
	json    bool
}

func newAccuracy() *cobra.Command {
	f := &accuracyFlags{}
	cmd := &cobra.Command{
		Use:   "accuracy",
		Short: "Measure what a weight type costs in accuracy",
		Long: `accuracy gives the bundled models their test sets with each weight type and
prints how many answers are wrong, the bits per byte of a language model, and
how far states and logits drift from those of float32 when both read the same
tokens. It runs in the root of the repository, where the test sets are.`,
		Example: `  go run ./loadtest accuracy
  go run ./loadtest accuracy --model g2p-en,langid --weights int8 --samples 500
  go run ./loadtest accuracy --model kjv-lm --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.parse()
			if err != nil {
				return err
			}
			report, err := accuracy.Measure(cmd.Context(), cpu.New(cpu.Config{}), o, func(line string) {
				cmd.PrintErrln(line)
			})
			if err != nil {
				return err
			}
			return printReport(cmd.OutOrStdout(), f.json, report)
		},
	}
	f.bind(cmd.Flags())
	manual.Note(cmd, manual.Notes{Environment: measureEnvironment})
	return cmd
}

func (f *accuracyFlags) bind(set *pflag.FlagSet) {
	o := &f.options
	set.StringSliceVar(&o.Models, "model", zoo.Names(), "bundled models to measure")
	set.StringSliceVar(&f.weights, "weights", []string{"bf16", "int8"}, "weight types to compare with f32")
	set.IntVar(&o.Samples, "samples", 0, "cases of each test set, and a tenth of the bytes of text (0: all)")
	set.IntVar(&o.Steps, "steps", 500, "steps that drift is followed for (0: not at all)")
	set.IntVar(&o.Sequences, "sequences", 16, "sequences that drift is followed in")
	set.StringVar(&o.Root, "root", ".", "root of the repository")
	set.BoolVar(&f.json, "json", false, "print JSON instead of Markdown")
}

// parse returns the options that the flags ask for.
func (f *accuracyFlags) parse() (accuracy.Options, error) {
	o := f.options
	for _, name := range f.weights {
		w, err := cellrt.ParseWeights(name)
		if err != nil {
			return o, err
		}
		o.Weights = append(o.Weights, w)
	}
	return o, o.Validate()
}
