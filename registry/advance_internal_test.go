package registry

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestAdvance(t *testing.T) {
	t.Parallel()
	atOnce, unwatched, rolling := deployment(Loading), deployment(Loading), deployment(Loading)
	atOnce.Canary, unwatched.Canary, unwatched.Watch = Whole, Whole, 0
	rolling.Canary, rolling.Watch = Whole, 0
	manual := deployment(Canary)
	manual.Hold = 0
	ready := report("w1", 3, has("a", "live"), has("b", "warm"))
	const (
		refused  = `steady serial 3 active "a" next "" previous "c" share 0 refused [b]`
		promoted = `watching serial 3 active "b" next "" previous "a" share 0 refused []`
	)
	for _, tt := range []struct {
		name    string
		from    *Deployment
		reports []Report
		age     time.Duration
		want    string // "": nothing
	}{
		{"steady", deployment(Steady), []Report{ready}, time.Hour, ""},
		{"loading, nobody", deployment(Loading), nil, time.Hour, ""},
		{"loading, other models", deployment(Loading), []Report{{Worker: "w1", Models: []ModelReport{{Model: "n", Serial: 3}}}}, time.Hour, ""},
		{"loading, ready", deployment(Loading), []Report{ready}, 0, `canary serial 3 active "a" next "b" previous "c" share 1000 refused []`},
		{"loading, one may not name it", deployment(Loading), []Report{ready, {Worker: "w2", Omitted: 1}}, ReportLife - 1, ""},
		{"loading, one does not name it", deployment(Loading), []Report{ready, {Worker: "w2", Omitted: 1}}, ReportLife, `canary serial 3 active "a" next "b" previous "c" share 1000 refused []`},
		{"loading, one leaves out others", atOnce, []Report{{Worker: "w1", Omitted: 1, Models: ready.Models}}, 0, promoted},
		{"loading, at once", atOnce, []Report{ready}, 0, promoted},
		{"loading, unwatched", unwatched, []Report{ready}, 0, `steady serial 3 active "b" next "" previous "a" share 0 refused []`},
		{"loading, one is not", deployment(Loading), []Report{ready, report("w2", 3, has("a", "live"), has("b", "verifying"))}, loadLimit - 1, ""},
		{"loading, one is not in time", deployment(Loading), []Report{ready, report("w2", 3, has("a", "live"), has("b", "verifying"))}, loadLimit, refused},
		{"loading, one does not know", deployment(Loading), []Report{ready, report("w2", 2, has("a", "live"), has("b", "warm"))}, 0, ""},
		{"loading, one has not begun", deployment(Loading), []Report{ready, report("w2", 3, has("a", "live"))}, 0, ""},
		{"loading, one failed", deployment(Loading), []Report{ready, report("w2", 3, has("b", "failed"))}, 0, refused},
		{"loading, one failed before", deployment(Loading), []Report{ready, report("w2", 2, has("b", "failed"))}, 0, ""},
		{"loading, errors of before", atOnce, []Report{report("w1", 3, has("b", "live", 50, 50))}, 0, promoted},
		{"canary, early", deployment(Canary), []Report{ready}, time.Minute - 1, ""},
		{"canary, hold is over", deployment(Canary), []Report{ready}, time.Minute, promoted},
		{"canary, hold is over, one is not ready", deployment(Canary), []Report{ready, report("w2", 3, has("b", "loading"))}, time.Hour, ""},
		{"canary, manual", manual, []Report{ready}, time.Hour, ""},
		{"canary, one failed", deployment(Canary), []Report{ready, report("w2", 3, has("b", "failed"))}, time.Hour, refused},
		{"canary, errors", deployment(Canary), []Report{report("w1", 3, has("b", "live", 5, 5))}, 0, refused},
		{"watching, early", deployment(Watching), []Report{ready}, time.Minute - 1, ""},
		{"watching, over", deployment(Watching), []Report{ready}, time.Minute, `steady serial 3 active "b" next "" previous "a" share 0 refused []`},
		{"watching, nobody", deployment(Watching), nil, time.Hour, ""},
		{"watching, errors", deployment(Watching), []Report{report("w1", 3, has("b", "live", 5, 5))}, time.Hour, `steady serial 3 active "a" next "" previous "a" share 0 refused [b]`},
		{"watching, one failed", deployment(Watching), []Report{ready, report("w2", 3, has("b", "failed"))}, 0, `steady serial 3 active "a" next "" previous "a" share 0 refused [b]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := *tt.from
			got, changed := tt.from.Advance(tt.reports, tt.age, "w9")
			if !changed {
				if tt.want != "" || got != tt.from {
					t.Errorf("no change, want %v", tt.want)
				}
				return
			}
			if state(got) != tt.want || got.By != "w9" || got.Revision != 7 || !reflect.DeepEqual(before, *tt.from) {
				t.Errorf("%v by %s\nwant %v", state(got), got.By, tt.want)
			}
			if (got.Reason != "") != (len(got.Refused) > 0) {
				t.Errorf("reason %q", got.Reason)
			}
			moved(t, tt.from, got)
			if _, err := got.encode(); err != nil {
				t.Error(err)
			}
			for i, j := 0, len(tt.reports)-1; i < j; i, j = i+1, j-1 {
				tt.reports[i], tt.reports[j] = tt.reports[j], tt.reports[i]
			}
			if other, _ := tt.from.Advance(tt.reports, tt.age, "w9"); !reflect.DeepEqual(got, other) {
				t.Errorf("in another order %+v, %+v", other, got)
			}
		})
	}
}

// TestServerRestartKeepsPhase loses all reports, which have expired: nothing
// changes until workers report again.
func TestServerRestartKeepsPhase(t *testing.T) {
	t.Parallel()
	for _, p := range []Phase{Steady, Loading, Canary, Watching} {
		if got, changed := deployment(p).Advance(nil, 24*time.Hour, "w1"); changed {
			t.Errorf("%s became %s", p, state(got))
		}
	}
}

// judged is a canary that w1 had counted for before: b 90 of 100, a 10 of 1000.
func judged() *Deployment {
	d := deployment(Canary)
	d.Baseline = []Base{{Worker: "w1", New: Counts{Failed: 90, Ended: 100}, Old: Counts{Failed: 10, Ended: 1000}}}
	return d
}

func TestJudgement(t *testing.T) {
	t.Parallel()
	full := judged()
	for i := range maxBaseline - 1 {
		full.Baseline = append(full.Baseline, Base{Worker: fmt.Sprintf("x%d", i)})
	}
	watched := deployment(Watching)
	own := judged()
	own.Active = Ref{}
	for _, tt := range []struct {
		name    string
		d       *Deployment
		reports []Report
		refused bool
	}{
		{"as before", judged(), []Report{report("w1", 3, has("b", "live", 90, 100), has("a", "live", 10, 1000))}, false},
		{"old failures only", judged(), []Report{report("w1", 3, has("b", "live", 94, 10_000), has("a", "live", 10, 1100))}, false},
		{"four failures", judged(), []Report{report("w1", 3, has("b", "live", 94, 104), has("a", "live", 10, 1100))}, false},
		{"five failures", judged(), []Report{report("w1", 3, has("b", "live", 95, 105), has("a", "live", 10, 1100))}, true},
		{"five failures of many", judged(), []Report{report("w1", 3, has("b", "live", 95, 400), has("a", "live", 10, 1100))}, false},
		{"clients' faults are no failures", judged(), []Report{report("w1", 3, has("b", "live", 90, 100_000), has("a", "live", 10, 1100))}, false},
		{"twice the rate", judged(), []Report{report("w1", 3, has("b", "live", 90+22, 200), has("a", "live", 20, 1100))}, false},
		{"more than twice the rate", judged(), []Report{report("w1", 3, has("b", "live", 90+23, 200), has("a", "live", 20, 1100))}, true},
		{"the old one's rate of its life while it ends few", judged(), []Report{report("w1", 3, has("b", "live", 90+5, 200), has("a", "live", 59, 1099))}, false},
		{"summed over workers", judged(), []Report{report("w1", 3, has("b", "live", 92, 103)), report("w2", 3, has("b", "live", 3, 3))}, true},
		{"a worker restarted", judged(), []Report{report("w1", 3, has("b", "live", 5, 5))}, true},
		{"a worker restarted, fewer", judged(), []Report{report("w1", 3, has("b", "live", 4, 4))}, false},
		{"not in a full baseline", full, []Report{report("w1", 3, has("b", "live", 90, 100)), report("w2", 3, has("b", "live", 50, 50))}, false},
		{"in a full baseline", full, []Report{report("x7", 3, has("b", "live", 50, 50))}, true},
		{"watched beside one that failed as often", watched, []Report{report("w1", 3, has("b", "live", 10, 100), has("a", "warm", 50, 1000))}, false},
		{"watched beside a better one", watched, []Report{report("w1", 3, has("b", "live", 10, 100), has("a", "warm", 10, 1000))}, true},
		{"beside each worker's own", own, []Report{report("w1", 3, has("b", "live", 100, 200), has("f", "live", 110, 2000))}, false},
		{"worse than each worker's own", own, []Report{report("w1", 3, has("b", "live", 113, 200), has("f", "live", 110, 2000))}, true},
		{"more failures than ends", judged(), []Report{report("w1", 3, has("b", "live", 1<<63, 101), has("a", "live", 10, 1100))}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, changed := tt.d.Advance(tt.reports, 0, "w1")
			if changed != tt.refused || changed && (!got.Refuses(ref("b")) || !strings.Contains(got.Reason, "requests failed")) {
				t.Errorf("changed %v to %v, %q", changed, state(got), got.Reason)
			}
		})
	}
}

// TestBaselineLasts counts from the end of loading to the end of watching.
func TestBaselineLasts(t *testing.T) {
	t.Parallel()
	reports := []Report{report("w2", 3, has("a", "live", 1, 10), has("b", "warm", 4, 4)), report("w1", 3, has("a", "live"), has("b", "warm", 5, 5))}
	want := []Base{{Worker: "w1", New: Counts{5, 5}}, {Worker: "w2", New: Counts{4, 4}, Old: Counts{10, 1}}}
	d := deployment(Loading)
	for _, phase := range []Phase{Canary, Watching} {
		d, _ = d.Advance(reports, time.Minute, "w1")
		if d.Phase != phase || !reflect.DeepEqual(d.Baseline, want) {
			t.Fatalf("%s: %+v, want %+v", d.Phase, d.Baseline, want)
		}
		d.Stored = clock(60)
	}
	if d, _ = d.Advance(reports, time.Minute, "w1"); d.Phase != Steady || d.Baseline != nil {
		t.Errorf("%s: %+v", d.Phase, d.Baseline)
	}
	if d.Watch != 0 || d.Hold != 0 || d.Canary != 0 {
		t.Errorf("steady with %+v", d)
	}
}
