package worker

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
)

// TestRecorderDoesNotAllocate holds the step path to no allocation, watched or not.
func TestRecorderDoesNotAllocate(t *testing.T) {
	c := newRecorder()
	step := cellrt.StepTrace{Program: "m", Cell: "decoder", Rows: 3, Executor: 1, Duration: time.Millisecond, Batch: make([]cellrt.Row, 3)}
	for _, watched := range []bool{false, true} {
		c.watched.Store(watched)
		if n := leastAllocs(100, func() { c.stepped(&step) }); n > 0 {
			t.Errorf("watched %v: %v allocations", watched, n)
		}
	}
}

// TestRecorderRing shows the last steps in their order, with what rows they had.
func TestRecorderRing(t *testing.T) {
	t.Parallel()
	c := newRecorder()
	step := func(rows int) {
		batch := make([]cellrt.Row, rows)
		for i := range batch {
			batch[i].Slot = int32(i)
		}
		c.stepped(&cellrt.StepTrace{Program: "m", Cell: "decoder", Rows: rows, Executor: 2, Batch: batch})
	}
	step(1) // nobody watches
	c.watched.Store(true)
	for rows := 1; rows <= 100; rows++ {
		step(rows)
	}
	out := &broker.Snapshot{
		Models:    []broker.LiveModel{{Name: "other"}, {Name: "m", Cells: []broker.LiveCell{{Name: "decoder"}}}},
		Executors: make([]broker.LiveExecutor, 3),
	}
	c.show(time.Now(), out, cellPlaces{cellName{"m", "decoder"}: {1, 0}})
	if len(out.Recent) != broker.LiveSteps || out.Executors[2].Cell != "decoder" || out.Executors[0].Cell != "" {
		t.Fatalf("%d steps, executors %+v", len(out.Recent), out.Executors)
	}
	for i, s := range out.Recent {
		rows := 100 - broker.LiveSteps + 1 + i
		if s.Rows != rows || s.Number != uint64(rows) || s.Model != 1 || s.Executor != 2 || len(s.Slots) != min(rows, broker.LiveSlots) || s.Slots[len(s.Slots)-1] != int32(len(s.Slots)-1) {
			t.Errorf("step %d is %+v, want %d rows", i, s, rows)
		}
	}
	want := []uint64{1, 1, 2, 4, 8, 16, 32, 36}
	got := out.Models[1].Cells[0].RowsLog2
	if len(got) != len(want) {
		t.Fatalf("rows %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("rows %v, want %v", got, want)
		}
	}
	c.forget()
	out.Recent = nil
	if c.show(time.Now(), out, nil); len(out.Recent) > 0 {
		t.Errorf("%d steps after nobody watched", len(out.Recent))
	}
}

// TestRecorderWindow forgets requests that ended more than ten seconds ago.
func TestRecorderWindow(t *testing.T) {
	t.Parallel()
	m := &modelRecord{}
	begin := time.Unix(1_700_000_000, 0)
	for i := range 30 {
		w := m.second(begin.Add(time.Duration(i) * time.Second))
		w.counts[latencyTotal][broker.LiveBucket(time.Millisecond)]++
	}
	last := begin.Add(29 * time.Second)
	for after, want := range map[time.Duration]uint64{0: 11, 5 * time.Second: 6, 11 * time.Second: 0, time.Hour: 0, -time.Hour: 0} {
		if n := m.latency(last.Add(after)).Total.Count(); n != want {
			t.Errorf("%v later: %d requests, want %d", after, n, want)
		}
	}
}

// TestClipText fits what anybody named into a snapshot.
func TestClipText(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "plain", "größe", "\x1b[2J\r\n\x00", "a\xffb", strings.Repeat("ü", 200), "\u202e"} {
		got := clipText(s)
		if len(got) > 128 || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q became %q", s, got)
		}
	}
}
