package batchmaker

import (
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/batching"
)

func TestReadStat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"cpu  100 20 30 4000 500 6 7 8 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n": 1710 * time.Millisecond,
		"cpu 1 2 3 4 5 6 7 8":  270 * time.Millisecond,
		"cpu 1 2 3 4 5 6 7":    -1,
		"cpu 1 2 x 4 5 6 7 8":  -1,
		"intr 1 2 3 4 5 6 7 8": -1,
		"":                     -1,
	} {
		got, ok := readStat(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestShare wants what a program itself used, and what was used before, not to count
// as that of others.
func TestShare(t *testing.T) {
	t.Parallel()
	cores := time.Duration(runtime.NumCPU())
	read := func(machine, own time.Duration) usage { return usage{machine: machine, own: own, known: true} }
	for _, tc := range []struct {
		name          string
		before, after usage
		want          float64
	}{
		{"alone, after a load", read(cores*time.Hour, time.Second), read(cores*time.Hour+10*time.Second, 11*time.Second), 0},
		{"half of the machine", read(0, 0), read(cores*5*time.Second+time.Second, time.Second), 0.5},
		{"rounded", read(0, 0), read(9990*time.Millisecond, 10*time.Second), 0},
		{"unknown", usage{}, read(time.Second, time.Second), -1},
	} {
		if got := share(tc.before, tc.after, 10*time.Second); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: %g, want %g", tc.name, got, tc.want)
		}
	}
}

func TestIntroductionWarns(t *testing.T) {
	t.Parallel()
	for others, want := range map[float64]string{-1: "is not known", 0.02: "used 2.0 % of the machine", 0.4: "**Other programs disturbed this.**"} {
		d := &document{}
		WallOptions{}.introduction(d, batching.Host{Cores: 2}, others, time.Minute)
		if text := d.text.String(); !strings.Contains(text, want) || !strings.Contains(text, "commit unknown.") || strings.Contains(text, "disturbed") != (others > busy) {
			t.Errorf("%g: %s", others, text)
		}
	}
}
