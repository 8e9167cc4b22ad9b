package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// TestLoads puts short loads on a worker that the command starts.
func TestLoads(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "cellmq")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/cellmq/cellmq").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	trace := filepath.Join(dir, "trace.csv")
	if err := os.WriteFile(trace, []byte("time,model,client\n0,langid,a\n0.1,g2p-en,b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CELLMQ_PROFILE", "0")
	short := []string{"--program", program, "--duration", "500ms", "--warmup", "100ms"}
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"default", short, []string{"poisson arrivals at 100/s of g2p-en, durable", "| completed |", "| ttft |", "own CPU"}},
		{
			"mix", append([]string{
				"run", "--model", "langid=2,listops,g2p-en", "--realtime", "0.5", "--priority", "high,low", "--client", "a,b", "--cancel", "0.1", "--cancel-after", "1ms",
				"--burstiness", "0.5", "--output-tokens", "fixed:4", "--goodput", "e2el:60000", "--plot", filepath.Join(dir, "plots"),
			}, short...), []string{"| model listops |", "| priority low |", "| client b |", "| path realtime |", "| request goodput"},
		},
		{"trace", append([]string{"run", "--trace", trace}, short...), []string{"a trace of 2 requests"}},
		{"sweep", append([]string{"sweep", "--rates", "10,20", "--model", "langid"}, short...), []string{"| 10 |", "| 20 |"}},
		{"saturation", append([]string{"saturation", "--trials", "1", "--model", "langid"}, short...), []string{"| sustained |", "tried was"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), tc.args, &stdout, &stderr); code != exitOK {
				t.Fatalf("exit code %d: %s", code, &stderr)
			}
			for _, want := range tc.want {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("no %q in\n%s", want, &stdout)
				}
			}
			if strings.Contains(stdout.String(), "bad_request") || strings.Contains(stdout.String(), "unsupported") {
				t.Errorf("inputs do not suit their models:\n%s", &stdout)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "plots", "cdf.svg")); err != nil {
		t.Error(err)
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), append([]string{"--model", "listops", "--json", "-"}, short...), &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	var report struct {
		Completed int     `json:"completed"`
		Mean      float64 `json:"mean_e2el_ms"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil || report.Completed == 0 || report.Mean <= 0 {
		t.Errorf("%v: %s", err, &stdout)
	}
}

// TestTraceIsWhole wants a trace to be replayed to its end, unless told
// otherwise.
func TestTraceIsWhole(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(name, []byte("time\n1\n90\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want time.Duration
	}{{nil, 91 * time.Second}, {[]string{"--duration", "5s"}, 7 * time.Second}} {
		f, set := &loadFlags{}, pflag.NewFlagSet("test", pflag.ContinueOnError)
		f.bind(set)
		if err := set.Parse(append([]string{"--trace", name}, tc.args...)); err != nil {
			t.Fatal(err)
		}
		if o, err := f.options(); err != nil || whole(&o) != tc.want {
			t.Errorf("%v: %v, %v, want %v", tc.args, whole(&o), err, tc.want)
		}
	}
}

func TestLoadUsage(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"rate -1: must be above 0":         {"--rate", "-1"},
		"max concurrency 0: must be":       {"--rate", "0"},
		`arrivals "often"`:                 {"--arrivals", "often"},
		`lengths "long"`:                   {"--lengths", "long"},
		`goodput "fast"`:                   {"--goodput", "fast"},
		`priority "urgent"`:                {"--priority", "urgent"},
		`client "a.b"`:                     {"--client", "a.b"},
		`model "G2P"`:                      {"--model", "G2P"},
		`input kind "sound"`:               {"--input-kind", "sound"},
		"patience 0s":                      {"--patience", "0"},
		"/nowhere/trace":                   {"--trace", "/nowhere/trace"},
		"duration 0s":                      {"--duration", "0"},
		"realtime 2":                       {"--realtime", "2"},
		"trials 0":                         {"saturation", "--trials", "0"},
		"rate 0: must be above 0":          {"sweep", "--rates", "5,0"},
		"loads of several rates":           {"saturation", "--trace", "x"},
		"--rate 5 does nothing":            {"--rate", "5", "--arrivals", "closed", "--max-concurrency", "4"},
		"--burstiness 0.5 does nothing":    {"--arrivals", "constant", "--burstiness", "0.5"},
		"--cancel-after 1s does nothing":   {"--cancel-after", "1s"},
		"--lengths wmt does nothing":       {"--input-file", "x", "--lengths", "wmt"},
		"--input-kind text does nothing":   {"--input-file", "x", "--input-kind", "text"},
		"--arrivals gamma does nothing":    {"--trace", "x", "--arrivals", "gamma"},
		"--rate 7 does nothing":            {"sweep", "--rate", "7"},
		"--attainment 0.5 does nothing":    {"saturation", "--attainment", "0.5"},
		"--worker-arg [a] does nothing":    {"--nats-url", "nats://127.0.0.1:1", "--worker-arg", "a"},
		"patience 1s: below the 2s":        {"--patience", "1s", "--goodput", "e2el:2000"},
		"temperature +Inf":                 {"--temperature", "inf"},
		"max concurrency 1000001":          {"--max-concurrency", "1000001"},
		"output tokens: ":                  {"--output-tokens", "fixed:0"},
		`lengths "fixed:a:5"`:              {"--lengths", "fixed:a:5"},
		`lengths "wmt:5"`:                  {"--lengths", "wmt:5"},
		`goodput "ttft:2": twice`:          {"--goodput", "ttft:1,ttft:2"},
		"rate 2e+06: must be":              {"sweep", "--rates", "5,2e6"},
		"/nowhere/report":                  {"--json", "/nowhere/report"},
		"plots: mkdir":                     {"--plot", "/dev/null/plots"},
		"no servers available":             {"--nats-url", "nats://127.0.0.1:1"},
		"/nowhere/cellmq":                  {"--program", "/nowhere/cellmq"},
		"unknown flag: --speed":            {"run", "--speed", "9"},
		`unknown command "now" for "loadt`: {"run", "now"},
	} {
		var stdout, stderr bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // what is not refused goes on
		code := run(ctx, args, &stdout, &stderr)
		cancel()
		if code != exitFailure || !strings.Contains(stderr.String(), want) {
			t.Errorf("%v: exit code %d: %s", args, code, &stderr)
		}
	}
}

// TestReportIsNotLost wants the table of a load whose files cannot be written.
func TestReportIsNotLost(t *testing.T) {
	t.Parallel()
	gone := filepath.Join(t.TempDir(), "gone")
	f := &loadFlags{json: filepath.Join(gone, "report.json"), plots: filepath.Join(os.DevNull, "plots")}
	var stdout bytes.Buffer
	err := f.write(&stdout, map[string]int{}, "the table", nil)
	if err == nil || !strings.Contains(err.Error(), "report.json") || !strings.Contains(err.Error(), os.DevNull) || stdout.String() != "the table" {
		t.Errorf("%v, %q", err, &stdout)
	}
}
