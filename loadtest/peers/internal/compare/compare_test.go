package compare_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/loadtest/peers/internal/compare"
	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// behaviour is the environment variable that makes the test binary a library.
const behaviour = "PEERS_TEST_LIBRARY"

// TestMain computes for a comparison when the environment says so.
func TestMain(m *testing.M) {
	kind := os.Getenv(behaviour)
	if kind == "" {
		os.Exit(m.Run())
	}
	if err := serve(kind, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(kind string, in io.Reader, out io.Writer) error {
	if kind == "missing" {
		return wire.Serve(in, out, wire.Missing{Name: "Missing", Reason: "not | here"})
	}
	return wire.Serve(in, out, library(kind))
}

// library computes products with the reference, in one of several ways.
type library string

func (l library) Hello() wire.Hello {
	return wire.Hello{Library: "Library " + string(l), Version: "1", Weights: []workload.Weights{workload.F32}}
}

func (l library) Load(shape workload.Case, p workload.Parameters) (wire.Model, error) {
	if l == "choosy" && shape.Units == 4 {
		return nil, wire.ErrUnsupported
	}
	return model{l, p}, nil
}

type model struct {
	library
	p workload.Parameters
}

func (m model) Bind(c workload.Case, _ workload.Inputs) (wire.Call, error) { return call{m, c}, nil }
func (model) Close()                                                       {}

type call struct {
	model
	c workload.Case
}

func (b call) Run() error {
	if b.library == "crashing" {
		os.Exit(3)
	}
	if b.library == "slow" {
		for start := time.Now(); time.Since(start) < time.Millisecond; {
		}
	}
	return nil
}

func (b call) Output(to []float32) error {
	for i, v := range b.c.Want(b.p, b.c.Samples()) {
		to[i] = float32(v)
	}
	if b.library == "wrong" {
		to[1]++
	}
	return nil
}

func contenders(t *testing.T, kinds ...string) []compare.Contender {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out []compare.Contender
	for _, kind := range kinds {
		out = append(out, compare.Contender{Name: kind, Command: func(int) ([]string, []string) {
			return []string{program}, append(os.Environ(), behaviour+"="+kind)
		}})
	}
	return out
}

func options() compare.Options {
	return compare.Options{
		Shapes:  []workload.Case{{Kind: workload.Product, Inputs: 3, Units: 4}, {Kind: workload.Product, Inputs: 3, Units: 5}},
		Rows:    []int{1, 2},
		Weights: []workload.Weights{workload.F32, workload.Int8},
		Threads: []int{1, 2},
		Rounds:  2, Duration: time.Millisecond,
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	report, err := compare.Run(t.Context(), options(), contenders(t, "quick", "slow", "missing", "choosy"), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Libraries) != 4 || report.Libraries[2].Unavailable != "not | here" {
		t.Errorf("libraries %+v", report.Libraries)
	}
	count := map[string]int{}
	for _, m := range report.Measurements {
		count[m.Contender]++
		if m.Problem != "" || m.Best <= 0 || m.Best > m.Median || m.Calls < 2 || m.RelativeError > 1e-6 {
			t.Errorf("measurement %+v", m)
		}
		if m.Contender == "slow" && (m.Best < time.Millisecond || m.BestGFLOPS > m.Case.Flop()/1e6) {
			t.Errorf("a call of a millisecond was measured as %s, %g GFLOP/s", m.Best, m.BestGFLOPS)
		}
	}
	if count["quick"] != 8 || count["slow"] != 8 || count["choosy"] != 4 || count["missing"] != 0 {
		t.Errorf("measurements by library: %v, want 8 of each but the choosy one's 4", count)
	}
	if _, err := json.Marshal(report); err != nil {
		t.Error(err)
	}
}

func TestWrongResults(t *testing.T) {
	t.Parallel()
	report, err := compare.Run(t.Context(), options(), contenders(t, "quick", "wrong", "crashing"), t.Output())
	if !errors.Is(err, compare.ErrWrong) {
		t.Fatalf("error %v, want %v", err, compare.ErrWrong)
	}
	for _, m := range report.Measurements {
		if wrong := m.Contender != "quick"; wrong != (m.Problem != "") || wrong && m.Calls != 0 {
			t.Errorf("measurement %+v", m)
		}
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	c := workload.Case{Kind: workload.LSTM, Inputs: 8, Units: 16, Rows: 4, Weights: workload.F32}
	report := compare.Report{
		Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Host: compare.Host{CPU: "A CPU", Cores: 2, Go: "go1"},
		Options: compare.Options{
			Shapes: []workload.Case{c.Shape()}, Rows: []int{1, 4}, Weights: []workload.Weights{workload.F32, workload.Int8},
			Threads: []int{1}, Rounds: 2, Duration: time.Second,
		},
		Libraries: []compare.Library{
			{Contender: "cellmq", Name: "cellmq", Version: "1"},
			{Contender: "openblas:ZEN", Name: "OpenBLAS", Version: "2"},
			{Contender: "other", Name: "Other", Unavailable: "not | here"},
		},
		Measurements: []compare.Measurement{
			{Case: c, Threads: 1, Contender: "cellmq", MedianGFLOPS: 150, BestGFLOPS: 160.4},
			{Case: c, Threads: 1, Contender: "openblas:ZEN", MedianGFLOPS: 75, BestGFLOPS: 80},
		},
	}
	var b bytes.Buffer
	if err := compare.WriteMarkdown(&b, report); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2026-01-02. A CPU, 2 cores, go1.",
		`| Other | not available: not \| here |`,
		"### lstm 8 x 16, f32 weights, 1 thread\n\n| rows | cellmq | OpenBLAS ZEN |\n|--:|--:|--:|\n",
		"| 1 | – | – |\n| 4 | 150 (160) | 75.0 (80.0) 2.00x |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "int8") {
		t.Error("there is a table for weights that nobody has")
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*compare.Options){
		"no shapes":   func(o *compare.Options) { o.Shapes = nil },
		"no rows":     func(o *compare.Options) { o.Rows = []int{0} },
		"threads":     func(o *compare.Options) { o.Threads = []int{0} },
		"weights":     func(o *compare.Options) { o.Weights = []workload.Weights{"f64"} },
		"kind":        func(o *compare.Options) { o.Shapes[0].Kind = "rnn" },
		"rounds":      func(o *compare.Options) { o.Rounds = 0 },
		"no duration": func(o *compare.Options) { o.Duration = 0 },
	} {
		o := options()
		change(&o)
		if _, err := compare.Run(t.Context(), o, nil, t.Output()); err == nil || errors.Is(err, compare.ErrWrong) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
