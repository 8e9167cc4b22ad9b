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
	for text, want := range map[string]usage{
		"cpu  100 20 30 4000 500 6 7 8 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n": {machine: 1710 * time.Millisecond, processors: 1, known: true},
		"cpu 1 2 3 4 5 6 7 8\ncpu0 1\ncpu7 1\nintr 9\nctxt 9\n":            {machine: 270 * time.Millisecond, processors: 2, known: true},
		"cpu 1 2 3 4 5 6 7 8\n":          {}, // of how many
		"cpu 1 2 3 4 5 6 7\ncpu0 1\n":    {},
		"cpu 1 2 x 4 5 6 7 8\ncpu0 1\n":  {},
		"intr 1 2 3 4 5 6 7 8\ncpu0 1\n": {},
		"":                               {},
	} {
		machine, processors, ok := readStat(text)
		if got := (usage{machine: machine, processors: processors, known: ok}); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// TestShare wants what a program itself used, and what was used before, not to count
// as that of others, and the share to be one of the machine's processors, of which this
// process may have a few.
func TestShare(t *testing.T) {
	t.Parallel()
	cores := time.Duration(4 * runtime.NumCPU())
	read := func(machine, own time.Duration) usage {
		return usage{machine: machine, processors: int(cores), own: own, known: true}
	}
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
