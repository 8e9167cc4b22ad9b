package main

import (
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/cellmq/cellmq/loadtest/peers/internal/compare"
	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// settings are what the command line says.
type settings struct {
	options   compare.Options
	libraries []string
	json      bool
}

// The defaults of the flags.
const (
	defaultShapes = "product:2048x4096,product:512x768,product:1024x32000," +
		"lstm:256x256,lstm:512x512,lstm:1024x1024,gru:256x256,gru:512x512,gru:1024x1024"
	defaultRows      = "1,2,4,8,16,32,64,256"
	defaultLibraries = "cellmq,openblas,openblas:HASWELL,onednn,torch,onnxruntime"
	defaultRounds    = 5
	defaultDuration  = 100 * time.Millisecond
	defaultPause     = 20 * time.Millisecond
)

// parse reads the command line.
func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	shapes := flags.String("shapes", defaultShapes, "`list` of KIND:INPUTSxUNITS, the kinds being product, lstm and gru")
	rows := flags.String("rows", defaultRows, "`list` of batch sizes")
	weights := flags.String("weights", "f32", "`list` of ways to keep weights: f32, bf16, int8")
	threads := flags.String("threads", "1,2", "`list` of numbers of threads")
	libraries := flags.String("libraries", defaultLibraries, "`list` of libraries, the first being what the others are compared with; openblas:CORE and cellmq:TIER choose kernels")
	flags.IntVar(&s.options.Rounds, "rounds", defaultRounds, "how often each library is timed for each case")
	flags.DurationVar(&s.options.Duration, "duration", defaultDuration, "for how long each time")
	flags.DurationVar(&s.options.Pause, "pause", defaultPause, "how long the machine rests in between")
	flags.BoolVar(&s.json, "json", false, "print JSON instead of Markdown")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	var err error
	if s.options.Shapes, err = list(*shapes, parseShape); err != nil {
		return s, err
	}
	if s.options.Rows, err = list(*rows, strconv.Atoi); err != nil {
		return s, err
	}
	if s.options.Threads, err = list(*threads, strconv.Atoi); err != nil {
		return s, err
	}
	for w := range strings.SplitSeq(*weights, ",") {
		s.options.Weights = append(s.options.Weights, workload.Weights(w))
	}
	s.libraries = strings.Split(*libraries, ",")
	return s, s.options.Validate()
}

// list parses the elements of a list with commas.
func list[T any](text string, parse func(string) (T, error)) ([]T, error) {
	var out []T
	for element := range strings.SplitSeq(text, ",") {
		x, err := parse(element)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// parseShape reads KIND:INPUTSxUNITS.
func parseShape(text string) (workload.Case, error) {
	kind, size, _ := strings.Cut(text, ":")
	inputs, units, _ := strings.Cut(size, "x")
	i, err := strconv.Atoi(inputs)
	if err != nil {
		return workload.Case{}, fmt.Errorf("shape %q: want KIND:INPUTSxUNITS", text)
	}
	u, err := strconv.Atoi(units)
	if err != nil {
		return workload.Case{}, fmt.Errorf("shape %q: want KIND:INPUTSxUNITS", text)
	}
	return workload.Case{Kind: workload.Kind(kind), Inputs: i, Units: u}, nil
}
