package top

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cellmq/cellmq/broker"
)

var update = flag.Bool("update", false, "write the golden screens")

// histogram returns one with so many durations of each kind.
func histogram(durations ...time.Duration) broker.LiveHistogram {
	counts := make([]uint32, broker.LiveBuckets)
	for _, d := range durations {
		counts[broker.LiveBucket(d)] += 10
	}
	return broker.NewLiveHistogram(counts)
}

// snapshotAt is a worker's snapshot, some seconds after it began to be watched.
func snapshotAt(worker string, seconds int) *broker.Snapshot {
	n := uint64(seconds)
	s := &broker.Snapshot{
		V: 1, Worker: worker, Version: "0.1.0", ISA: "avx512vnni", State: broker.LiveServing,
		Time: 1_700_000_000_000 + int64(seconds)*1000, Uptime: 90_000 + int64(seconds)*1000, Interval: 1000,
		Slots: 16, Running: 9, RealtimeSlots: 16, RealtimeRunning: 2, Tokens: 5000 + 950*n, Steps: 2000 + 410*n, Rows: 9000 + 1900*n,
		MemoryBytes: 21 << 20, Letters: 1,
		Executors: []broker.LiveExecutor{{Threads: 1, BusyUS: 780_000 * n, Model: "g2p-en", Cell: "decoder"}, {Threads: 1, BusyUS: 120_000 * n, Model: "kjv-lm", Cell: "step"}},
		Models: []broker.LiveModel{
			{
				Name: "g2p-en", Versions: []broker.LiveModelVersion{{Version: "1", State: "live"}}, Running: 9, Tokens: 900 * n,
				Outcomes: map[string]uint64{"stop": 60 * n, "cancelled": 2 * n}, Queued: &broker.LiveQueued{High: 1, Std: 120, Age: 300},
				Latency: broker.LiveLatency{
					Total: histogram(12*time.Millisecond, 80*time.Millisecond), FirstToken: histogram(8 * time.Millisecond),
					InterToken: histogram(700 * time.Microsecond), Broker: histogram(time.Millisecond), Queue: histogram(30 * time.Microsecond),
				},
				Cells: []broker.LiveCell{{Name: "encoder.0.forward", MaxRows: 64, Steps: 200 * n, Rows: 2400 * n, Ready: 3}, {Name: "decoder", MaxRows: 64, Steps: 210 * n, Rows: 11_000 * n, Ready: 90}},
			},
			{Name: "kjv-lm", Versions: []broker.LiveModelVersion{{Version: "2+bf16", State: "warm"}}, Cells: []broker.LiveCell{{Name: "step", MaxRows: 32}}},
		},
	}
	for i := range broker.LiveSteps {
		s.Recent = append(s.Recent, broker.LiveStep{Number: uint64(i), Cell: i % 2, Rows: 1 + i*63/47})
	}
	return s
}

// fleet is two workers with two snapshots each.
func fleet() *Fleet {
	f := &Fleet{}
	for seconds := range 2 {
		for _, worker := range []string{"edge-7", "worker-a"} {
			f.add(snapshotAt(worker, seconds), time.Unix(1_700_000_000+int64(seconds), 0))
		}
	}
	f.members["edge-7"].last.State, f.members["edge-7"].last.Reason = broker.LiveUnready, "step loop makes no progress"
	return f
}

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// TestScreens holds what is drawn to golden files.
func TestScreens(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*Screen{
		"80x24":       {Width: 80, Height: 24},
		"120x40":      {Width: 120, Height: 40, All: true},
		"40x10":       {Width: 40, Height: 10},
		"200x60":      {Width: 200, Height: 60, Order: ByTokens},
		"ascii":       {Width: 80, Height: 24, ASCII: true},
		"colour":      {Width: 80, Height: 12, Colour: true, Paused: true},
		"once":        {Width: 100},
		"filter":      {Width: 80, Height: 16, Filter: "kjv", Typing: true},
		"help":        {Width: 80, Height: 24, Help: true},
		"scrolled":    {Width: 80, Height: 12, Scroll: 100},
		"filter-none": {Width: 60, Height: 8, Filter: "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(s.Draw(fleet().View(noon)), "\n") + "\n"
			checkLines(t, s, got)
			file := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("draws\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// checkLines wants lines that fit the screen and have no orders in them but
// colours.
func checkLines(t *testing.T, s *Screen, got string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if s.Height > 0 && len(lines) != s.Height {
		t.Errorf("%d lines on a screen of %d", len(lines), s.Height)
	}
	for i, l := range lines {
		if s.Colour {
			for style := range inverse + 1 {
				l = strings.ReplaceAll(l, "\x1b["+style.sgr()+"m", "")
			}
			l = strings.ReplaceAll(l, "\x1b[0m", "")
		}
		if n := utf8.RuneCountInString(l); n > s.Width {
			t.Errorf("line %d has %d columns of %d: %q", i, n, s.Width, l)
		}
		if strings.ContainsFunc(l, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || s.ASCII && r > '~' }) {
			t.Errorf("line %d has what the terminal may obey: %q", i, l)
		}
	}
}

// TestHostileSnapshots draws figures and names that are not to be trusted: neither
// may break the screen. The names do not even get past the decoder.
func TestHostileSnapshots(t *testing.T) {
	t.Parallel()
	evil := []string{
		"\x1b[2J\x1b]0;owned\x07", strings.Repeat("w", 5000), "a\r\nb", "\u202egnp.exe", "\u009b31m", "界界界界界界界界界界界界界界界界界界界界界", "e\u0301\u0301\u0301", "\xff\xfe", "", "%s%n%d",
	}
	for _, name := range evil {
		before, after := snapshotAt("w", 0), snapshotAt("w", 1)
		for _, s := range []*broker.Snapshot{before, after} {
			s.Version, s.ISA, s.State, s.Reason = name, name, name, name
			s.Executors[0].Cell, s.Executors[1].Model = name, name
			s.Models[0].Name, s.Models[0].Cells[0].Name, s.Models[0].Versions[0].Version = name, name, name
		}
		after.Slots, after.Running, after.MemoryBytes, after.Uptime = -5, -1<<62, -1, math.MaxInt64
		after.Tokens, after.Steps, after.Rows = math.MaxUint64, 0, math.MaxUint64
		after.Time = before.Time // no time has passed
		after.Models[0].Cells[0].Ready, after.Models[0].Cells[0].MaxRows = -3, -1
		after.Models[0].Cells[1].Rows = math.MaxUint64
		after.Executors[0].BusyUS = math.MaxUint64
		after.Executors = after.Executors[:1]
		after.Recent[3].Rows = -7
		f := &Fleet{}
		f.add(before, noon)
		f.add(after, noon)
		f.Refused, f.LastRefusal = 3, errors.New(name)
		for _, s := range []*Screen{{Width: 80, Height: 24}, {Width: 1, Height: 1}, {Width: 200, Height: 50, Colour: true}, {Width: 33, Height: 9, ASCII: true}, {Width: 0, Height: 3}} {
			v := f.View(noon)
			v.Tokens, v.Models[0].Tokens = math.NaN(), math.Inf(1)
			checkLines(t, s, strings.Join(s.Draw(v), "\n")+"\n")
		}
		b, err := json.Marshal(after)
		if err != nil {
			t.Fatal(err)
		}
		g := &Fleet{}
		g.Take(broker.LivePayload{Worker: "w", Payload: b}, noon)
		if n, _ := g.Known(); n != 0 || g.Refused != 1 {
			t.Errorf("%q: %d workers, %d refused", name, n, g.Refused)
		}
	}
}

// TestFleet forgets workers that have gone, and refuses those that it has no room
// for or that write under another's name.
func TestFleet(t *testing.T) {
	t.Parallel()
	f := &Fleet{}
	take := func(subject string, s *broker.Snapshot) {
		t.Helper()
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		f.Take(broker.LivePayload{Worker: subject, Payload: b}, noon)
	}
	take("other", snapshotAt("w1", 0))
	if n, _ := f.Known(); n != 0 || f.Refused != 1 {
		t.Errorf("%d workers, %d refused", n, f.Refused)
	}
	stopped := snapshotAt("w2", 0)
	stopped.State = broker.LiveStopped
	take("w1", snapshotAt("w1", 0))
	take("w2", stopped)
	take("w1", snapshotAt("w1", 2))
	if v := f.View(noon); len(v.Workers) != 2 || v.Workers[0].Tokens != 950 || math.Abs(v.Workers[0].Executors[0].Busy-0.78) > 1e-9 || v.Requests != 62 || v.Failures != 2 {
		t.Errorf("view %+v", v.Workers)
	}
	restarted := snapshotAt("w1", 0)
	restarted.Uptime = 5
	take("w1", restarted)
	if v := f.View(noon); v.Workers[0].Tokens != 0 {
		t.Errorf("%v tokens/s of a worker that was started anew", v.Workers[0].Tokens)
	}
	f.Prune(noon.Add(stoppedStay + 1))
	if s := f.Snapshots(); len(s) != 1 || s[0].Worker != "w1" {
		t.Errorf("%d workers after one has stopped", len(s))
	}
	f.Prune(noon.Add(silentStay + 1))
	if n, _ := f.Known(); n != 0 {
		t.Errorf("%d workers after all fell silent", n)
	}
	f.Refused = 0
	for i := range maxWorkers + 5 {
		name := fmt.Sprint("w", i)
		take(name, &broker.Snapshot{V: 1, Worker: name, Interval: math.MaxInt64 / int64(3*time.Millisecond)})
	}
	if n, _ := f.Known(); n != maxWorkers || f.Refused != 0 || f.View(noon).Unshown != 5 {
		t.Errorf("%d workers, %d refused, %d without room", n, f.Refused, f.View(noon).Unshown)
	}
	f.Prune(noon.Add(time.Hour))
	if n, _ := f.Known(); n != 0 {
		t.Errorf("%d workers an hour after they said that their next snapshot is years away", n)
	}
}

// TestNumbers writes figures in few columns.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "0", 1: "1", 3.14159: "3.1", 9.99: "10", 150: "150", 9999: "9999", 10_000: "10k", 123_456: "123k", 5e9: "5.0G", 1e30: "huge", -1: "-", math.Inf(1): "-"} {
		if got := number(x); got != want {
			t.Errorf("%v: %q, want %q", x, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0B", 999: "999B", 21 << 20: "21M", 5 << 30: "5.0G", -1: "-", math.MaxInt64: "8.0E"} {
		if got := memory(n); got != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "-", 300 * time.Microsecond: "300us", 80 * time.Millisecond: "80ms", 1500 * time.Millisecond: "1.5s", math.MaxInt64: "999s"} {
		if got := took(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
