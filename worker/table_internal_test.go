package worker

import (
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
)

func tableRun(client, id string) *run {
	return &run{req: &broker.Request{Client: client, ID: id}, stream: new(broker.TokenStream)}
}

func TestTableFollowsARequest(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	table := newTable()
	key := requestKey{"me", "0123456789"}
	r := tableRun(key.client, key.id)
	if !table.add(r, now) {
		t.Fatal("a new request is refused")
	}
	select {
	case <-table.empty():
		t.Error("empty with a run in it")
	default:
	}
	if runs, state := table.find(key, now); len(runs) != 1 || runs[0] != r || state != broker.CancelRunning {
		t.Errorf("running: found %d, %s", len(runs), state)
	}
	if table.ofStream(r.stream) != r || table.count() != 1 {
		t.Error("not found by its stream")
	}
	if _, state := table.find(requestKey{"you", key.id}, now); state != broker.CancelUnknown {
		t.Errorf("another client's: %s", state)
	}
	table.remove(r, true, now)
	if runs, state := table.find(key, now); len(runs) != 0 || state != broker.CancelFinished {
		t.Errorf("finished: found %d, %s", len(runs), state)
	}
	select {
	case <-table.empty():
	default:
		t.Error("not empty")
	}
	if len(table.byKey)+len(table.byStream)+len(table.runs) != 0 {
		t.Error("a removed run is kept")
	}
}

func TestTableRunsAnIDTwice(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	table := newTable()
	a, b := tableRun("me", "0123456789"), tableRun("me", "0123456789")
	table.add(a, now)
	table.add(b, now)
	if runs, _ := table.find(a.key(), now); len(runs) != 2 {
		t.Fatalf("found %d", len(runs))
	}
	table.remove(a, true, now)
	if runs, state := table.find(a.key(), now); len(runs) != 1 || runs[0] != b || state != broker.CancelRunning {
		t.Errorf("found %d, %s", len(runs), state)
	}
}

func TestTombstones(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	table := newTable()
	r := tableRun("me", "0123456789")
	if _, state := table.find(r.key(), now); state != broker.CancelUnknown {
		t.Fatalf("state %s", state)
	}
	if table.add(r, now.Add(tombstoneLife-time.Second)) {
		t.Error("a request cancelled before it came is admitted")
	}
	if !table.add(r, now.Add(tombstoneLife)) {
		t.Error("a tombstone outlives its time")
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	p := progress{patience: 3 * time.Second, at: begin}
	steps := []struct {
		at      int // seconds
		steps   uint64
		running int
		want    bool
	}{
		{0, 0, 0, true}, // nothing to do
		{2, 5, 3, true}, // steps
		{4, 5, 3, true},
		{5, 5, 3, false}, // live sequences and no step for so long: hung
		{7, 5, 0, true},
		{9, 6, 1, true},
		{11, 6, 1, true},
		{13, 6, 1, false},
		{14, 7, 1, true},
	}
	for i, s := range steps {
		if got := p.moved(s.steps, s.running, begin.Add(time.Duration(s.at)*time.Second)); got != s.want {
			t.Errorf("turn %d: %v", i, got)
		}
	}
}
