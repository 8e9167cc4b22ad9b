package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/loadtest/internal/batching"
)

// small makes a run of the command short.
func small(more ...string) []string {
	return append([]string{"batching", "--hidden", "8", "--requests", "50", "--seconds", "0.02", "--rounds", "1"}, more...)
}

func TestBatching(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), small(), &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	for _, want := range []string{
		"### lstm, hidden size 8", "### seq2seq, hidden size 8", "backlog of 50 requests", "| cellular |", "| 70 % |",
		"| longest-queue-tight |", "bit by bit",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &stdout)
		}
	}
	if !strings.Contains(stderr.String(), "this takes about") {
		t.Errorf("nobody said how long it takes:\n%s", &stderr)
	}
}

func TestBatchingJSON(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	args := small("--json", "--model", "lstm", "--padded", "longest-queue", "--rows", "8", "--executors", "2", "--threads", "1")
	if code := run(t.Context(), args, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	var r struct {
		Options struct {
			Baselines []string `json:"baselines"`
		} `json:"options"`
		Models []batching.Model `json:"models"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Models) != 1 || r.Models[0].Cells[0].MaxRows != 8 || len(r.Models[0].Saturation) != 2 ||
		r.Models[0].Saturation[1].Server != "longest-queue" || len(r.Options.Baselines) != 1 {
		t.Errorf("%s", &stdout)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, want string
		args       []string
	}{
		{"model", `model "gru"`, small("--model", "gru")},
		{"baseline", `baseline "best"`, small("--padded", "best")},
		{"seconds", "duration 0s", small("--seconds", "0")},
		{"hidden", "hidden -1", small("--hidden", "-1")},
		{"flag", "unknown flag", small("--speed", "9")},
		{"argument", "unknown command", small("now")},
		{"preface", "--preface does nothing", []string{"alternatives", "--preface", os.DevNull}},
		{"patience", "patience 2h0m0s", []string{"alternatives", "--patience", "2h"}},
		{"subcommand", "unknown command", []string{"benching"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), tc.args, &stdout, &stderr); code != exitFailure {
				t.Errorf("exit code %d, want %d", code, exitFailure)
			}
			if !strings.HasPrefix(stderr.String(), "loadtest: ") || !strings.Contains(stderr.String(), tc.want) || stdout.Len() > 0 {
				t.Errorf("stdout %q, stderr %q, want something about %s", &stdout, &stderr, tc.want)
			}
		})
	}
}

func TestBatchingTrees(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), small("--model", "tree", "--padded", "merged"), &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	if !strings.Contains(stdout.String(), "### tree, hidden size 8") || !strings.Contains(stdout.String(), "| merged |") {
		t.Errorf("no trees in\n%s", &stdout)
	}
	stdout.Reset()
	stderr.Reset()
	if code := run(t.Context(), small("--model", "tree"), &stdout, &stderr); code != exitFailure || !strings.Contains(stderr.String(), "trees have no length") {
		t.Errorf("exit code %d for trees in buckets: %s", code, &stderr)
	}
}
