package top

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// announce has a worker of some name send a snapshot.
func announce(t *testing.T, f *Fleet, name string, now time.Time) {
	t.Helper()
	b, err := json.Marshal(&broker.Snapshot{V: 1, Worker: name, State: broker.LiveServing, Interval: 1000})
	if err != nil {
		t.Fatal(err)
	}
	f.Take(broker.LivePayload{Worker: name, Payload: b}, now)
}

// shown are the names of a fleet's workers in the order of a view.
func shown(f *Fleet, now time.Time) (names []string) {
	v := f.View(now)
	v.Arrange(ByName, "")
	for _, w := range v.Workers {
		names = append(names, w.Name)
	}
	return names
}

// TestCrowdOfNames has more names announced than there is room for, before and after
// some workers: those that were there stay, those that answer service discovery
// get a place and are seen first, and the others are counted.
func TestCrowdOfNames(t *testing.T) {
	t.Parallel()
	f, now := &Fleet{}, noon
	announce(t, f, "old", now)
	crowd := func(n int) {
		for i := range n {
			announce(t, f, fmt.Sprintf("fake-%05d", i), now)
		}
	}
	const fakes = maxWorkers + 500
	crowd(fakes)
	announce(t, f, "young", now)
	if names := shown(f, now); len(names) != maxWorkers || !strings.Contains(strings.Join(names, " "), "old") || strings.Contains(strings.Join(names, " "), "young") {
		t.Fatalf("%d workers are shown", len(names))
	}
	if v := f.View(now); !f.Crowded() || v.Unshown != fakes+2-maxWorkers {
		t.Errorf("%d have no room", v.Unshown)
	}
	f.Answered("young", now)
	now = now.Add(time.Second)
	crowd(fakes) // they come first
	announce(t, f, "young", now)
	announce(t, f, "old", now)
	names := shown(f, now)
	if len(names) != maxWorkers || names[0] != "young" || !strings.Contains(strings.Join(names, " "), "old") {
		t.Errorf("%d are shown, first %v", len(names), names[:3])
	}
	for _, s := range []*Screen{{Width: 80, Height: 24}, {Width: 40, Height: 10, ASCII: true}} {
		if text := strings.Join(s.Draw(f.View(now)), "\n"); !strings.Contains(text, "502 others announced") || !strings.Contains(text, "young") {
			t.Errorf("the screen is\n%s", text)
		}
	}
	f.Prune(now.Add(silentStay + 1))
	if known, _ := f.Known(); known != 0 || f.Crowded() {
		t.Errorf("%d workers after all fell silent", known)
	}
}

// TestCrowdThatAnswers makes up everything: what is kept of it is bounded, and who is
// shown stays.
func TestCrowdThatAnswers(t *testing.T) {
	t.Parallel()
	f := &Fleet{}
	announce(t, f, "real", noon)
	f.Answered("real", noon)
	for i := range 10 * maxWorkers {
		name := fmt.Sprintf("fake-%05d", i)
		f.Answered(name, noon)
		announce(t, f, name, noon)
	}
	if len(f.members) != maxWorkers || len(f.unshown) != maxUnshown || len(f.answered) != maxWorkers {
		t.Errorf("%d members, %d unshown, %d answers", len(f.members), len(f.unshown), len(f.answered))
	}
	if f.members["real"] == nil {
		t.Error("who was shown has given way")
	}
	if text := strings.Join((&Screen{Width: 80}).Draw(f.View(noon)), "\n"); !strings.Contains(text, "4096 or more others") {
		t.Error("the screen does not say that more announced themselves")
	}
	f.Prune(noon.Add(answerStay + 1))
	if len(f.members)+len(f.unshown)+len(f.answered) != 0 {
		t.Error("what has gone is kept")
	}
}

// TestAnswers reads the names in answers of service discovery.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{"name":"cellmq","metadata":{"worker":"edge-1"}}`: "edge-1",
		`{"name":"cellmq"}`: "", `{"metadata":{"worker":""}}`: "", `{"metadata":{"worker":"\u001b[2J"}}`: "", `{"metadata":7}`: "", `nonsense`: "", "": "",
	} {
		if got := workerOf([]byte(answer)); got != want {
			t.Errorf("%s: %q, want %q", answer, got, want)
		}
	}
}
