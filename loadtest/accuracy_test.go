package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/loadtest/internal/accuracy"
)

// few makes a run of the command short.
func few(more ...string) []string {
	return append([]string{"accuracy", "--root", "..", "--samples", "4", "--steps", "3", "--sequences", "2"}, more...)
}

func TestAccuracy(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), few(), &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	for _, want := range []string{
		"| g2p-en | wrong words | 4 | f32 | ", "| kjv-lm | bits per byte | one text | bf16 | ", "| kjv-lm | continuations of 64 bytes | 4 | int8 | ",
		"| langid | wrong languages of halves | ", "| listops | wrong values | 4 | int8 | ", "| listops | f32 | 33 of 33 | yes |",
		"| g2p-en | int8 | 3 | ", "| kjv-lm | bf16 | 1 | ",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &stdout)
		}
	}
	if !strings.Contains(stderr.String(), "kjv-lm: drift over 3 steps") {
		t.Errorf("nobody said what comes:\n%s", &stderr)
	}
}

func TestAccuracyJSON(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), few("--json", "--model", "listops", "--weights", "bf16"), &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	var r accuracy.Report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Figures) != 1 || r.Figures[0].Cases != 4 || len(r.Figures[0].Types) != 2 || r.Figures[0].Types[1].Weights != "bf16" ||
		r.Figures[0].Types[1].Difference == nil || len(r.Golden) != 2 || len(r.Drift) != 0 {
		t.Errorf("%s", &stdout)
	}
}

func TestAccuracyUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"model", few("--model", "g2p"), `model "g2p": must be one of g2p-en`},
		{"weights", few("--weights", "int4"), "want f32, bf16 or int8"},
		{"steps", few("--steps", "-1"), "steps -1: must be between 0 and"},
		{"sequences", few("--sequences", "0"), "sequences 0: must be between 1 and"},
		{"root", few("--root", "internal"), "models/zoo/testdata"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), tc.args, &stdout, &stderr); code != exitFailure || !strings.Contains(stderr.String(), tc.want) {
				t.Errorf("exit code %d: %s", code, &stderr)
			}
		})
	}
}
