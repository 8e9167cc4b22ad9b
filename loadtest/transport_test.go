package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/loadtest/internal/transport"
)

func TestMain(m *testing.M) {
	transport.Main()
	m.Run()
}

func TestTransport(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	args := []string{"transport", "--seconds", "0.5", "--rounds", "1", "--in-flight", "8", "--slots", "4"}
	if code := run(t.Context(), args, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	for _, want := range []string{"8 requests in flight, 4 slots, 20 tokens", "| plain, core |", "| cellmq, core |", "| plain, durable |", "| cellmq, durable |"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &stdout)
		}
	}
}

func TestTransportUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, flag, value, want string }{
		{"seconds", "--seconds", "0", "duration 0s"},
		{"for ever", "--seconds", "1e9", "must be above 0 and at most 1h"},
		{"no number", "--seconds", "NaN", "duration"},
		{"slots", "--slots", "0", "slots 0"},
		{"many in flight", "--in-flight", "1000000000", "in flight 1000000000"},
		{"large prompt", "--prompt", "1000000000000", "prompt 1000000000000"},
		{"program", "--program", "/nowhere/cellmq", "/nowhere/cellmq"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			args := []string{"transport", "--seconds", "0.1", "--rounds", "1", tc.flag, tc.value}
			if code := run(t.Context(), args, &stdout, &stderr); code != exitFailure || !strings.Contains(stderr.String(), tc.want) {
				t.Errorf("exit code %d: %s", code, &stderr)
			}
		})
	}
}
