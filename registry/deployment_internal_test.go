package registry

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// ref is a version whose digest is its letter.
func ref(v string) Ref {
	if v == "" {
		return Ref{}
	}
	return Ref{Version: v, Digest: strings.Repeat(v, sumLength)}
}

// clock is a server's time.
func clock(seconds float64) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// deployment is a record in a phase, stored at clock(0): a serves, b is new, p was
// before.
func deployment(p Phase) *Deployment {
	d := Undeployed("m")
	d.Serial, d.Phase, d.Active, d.Previous = 3, p, ref("a"), ref("c")
	d.Revision, d.Stored, d.Since = 7, clock(0), time.Time{}
	d.Past = []Rule{{From: clock(-100)}}
	switch p {
	case Loading:
		d.Next, d.Canary, d.Watch, d.Hold = ref("b"), 1000, Duration(time.Minute), Duration(time.Minute)
	case Canary:
		d.Next, d.Canary, d.Share, d.Watch, d.Hold = ref("b"), 1000, 1000, Duration(time.Minute), Duration(time.Minute)
	case Watching:
		d.Active, d.Previous, d.Watch = ref("b"), ref("a"), Duration(time.Minute)
	}
	return d
}

func report(worker string, serial uint64, versions ...VersionReport) Report {
	return Report{Format: 1, Worker: worker, Models: []ModelReport{{Model: "m", Serial: serial, Versions: versions}}}
}

func has(v, state string, counts ...uint64) VersionReport {
	r := VersionReport{Ref: ref(v), State: state}
	if len(counts) == 2 {
		r.Counts = Counts{Failed: counts[0], Ended: counts[1]}
	}
	return r
}

// state is what tests look at.
func state(d *Deployment) string {
	var refused []string
	for _, r := range d.Refused {
		refused = append(refused, r.Version)
	}
	return fmt.Sprintf("%s serial %d active %q next %q previous %q share %d refused %v", d.Phase, d.Serial,
		d.Active.Version, d.Next.Version, d.Previous.Version, d.Share, refused)
}

func TestOperators(t *testing.T) {
	t.Parallel()
	quick := Options{Canary: Whole, Watch: time.Minute, By: "ann"}
	pinned := deployment(Steady)
	pinned.Pinned = true
	first := deployment(Steady)
	first.Previous = Ref{}
	only := deployment(Steady)
	only.Previous = only.Active
	refused := deployment(Steady)
	refused.Refused = []Ref{ref("b"), ref("d")}
	again := deployment(Loading)
	again.Previous = again.Next
	begin := func(v string, reports ...Report) func(*Deployment) (*Deployment, error) {
		return func(d *Deployment) (*Deployment, error) { return d.Begin(ref(v), quick, reports) }
	}
	promote := func(share int) func(*Deployment) (*Deployment, error) {
		return func(d *Deployment) (*Deployment, error) { return d.Promote(share) }
	}
	rollback := func(d *Deployment) (*Deployment, error) { return d.Rollback("why", "bob") }
	pin := func(on bool) func(*Deployment) (*Deployment, error) {
		return func(d *Deployment) (*Deployment, error) { return d.Pin(on) }
	}
	undeploy := func(d *Deployment) (*Deployment, error) { return d.Undeploy("why", "bob") }
	remove := func(v string, reports ...Report) func(*Deployment) (*Deployment, error) {
		return func(d *Deployment) (*Deployment, error) { return d.deleting(ref(v), reports) }
	}
	watched := deployment(Watching)
	watched.Previous = Ref{}
	deleting := deployment(Steady)
	deleting.Deleting = ref("b")
	unread := deployment(Steady)
	unread.Stored = time.Time{}
	for _, tt := range []struct {
		name  string
		from  *Deployment
		event func(*Deployment) (*Deployment, error)
		want  any // a state, or an error
	}{
		{"begin, undeployed", Undeployed("m"), begin("b"), `loading serial 1 active "" next "b" previous "" share 0 refused []`},
		{"begin, steady", deployment(Steady), begin("b"), `loading serial 4 active "a" next "b" previous "c" share 0 refused []`},
		{"begin, loading", deployment(Loading), begin("d"), ErrUnderWay},
		{"begin, canary", deployment(Canary), begin("d"), ErrUnderWay},
		{"begin, watching", deployment(Watching), begin("d"), ErrUnderWay},
		{"begin, pinned", pinned, begin("b"), ErrPinned},
		{"begin, active", deployment(Steady), begin("a"), ErrNothing},
		{"begin, refused", refused, begin("b"), `loading serial 4 active "a" next "b" previous "c" share 0 refused [d]`},
		{"begin, unread", unread, begin("b"), ErrConflict},
		{"begin, third", deployment(Steady), begin("b", report("w1", 3, has("a", "live"), has("c", "draining"))), ErrThird},
		{"begin, third is it", deployment(Steady), begin("b", report("w1", 3, has("a", "live"), has("b", "draining"))), `loading serial 4 active "a" next "b" previous "c" share 0 refused []`},
		{"begin, third is not loaded", deployment(Steady), begin("b", report("w1", 3, has("a", "live"), has("c", "cold"))), `loading serial 4 active "a" next "b" previous "c" share 0 refused []`},
		{"promote, steady", deployment(Steady), promote(5000), ErrNothing},
		{"promote, loading", deployment(Loading), promote(5000), `loading serial 3 active "a" next "b" previous "c" share 0 refused []`},
		{"promote, canary", deployment(Canary), promote(5000), `canary serial 3 active "a" next "b" previous "c" share 5000 refused []`},
		{"promote, canary, less", deployment(Canary), promote(0), `canary serial 3 active "a" next "b" previous "c" share 0 refused []`},
		{"promote, canary, the same", deployment(Canary), promote(1000), ErrNothing},
		{"promote, canary, all", deployment(Canary), promote(Whole), `watching serial 3 active "b" next "" previous "a" share 0 refused []`},
		{"promote, watching", deployment(Watching), promote(Whole), ErrNothing},
		{"rollback, steady", deployment(Steady), rollback, `loading serial 4 active "a" next "c" previous "c" share 0 refused []`},
		{"rollback, steady, to each worker's own", first, rollback, ErrNothing},
		{"rollback, watching the first", watched, rollback, ErrNothing},
		{"begin, deleting", deleting, begin("b"), ErrDeleting},
		{"begin, deleting another", deleting, begin("d"), `loading serial 4 active "a" next "d" previous "c" share 0 refused []`},
		{"undeploy, steady", deployment(Steady), undeploy, `steady serial 4 active "" next "" previous "" share 0 refused []`},
		{"undeploy, loading", deployment(Loading), undeploy, `steady serial 4 active "" next "" previous "" share 0 refused []`},
		{"undeploy, canary", deployment(Canary), undeploy, `steady serial 4 active "" next "" previous "" share 0 refused []`},
		{"undeploy, watching", deployment(Watching), undeploy, `steady serial 4 active "" next "" previous "" share 0 refused []`},
		{"undeploy, pinned", pinned, undeploy, ErrPinned},
		{"undeploy, undeployed", Undeployed("m"), undeploy, ErrNothing},
		{"undeploy, unread", unread, undeploy, ErrConflict},
		{"delete, undeployed", Undeployed("m"), remove("b"), state(Undeployed("m"))},
		{"delete, another", deployment(Steady), remove("b"), state(deployment(Steady))},
		{"delete, previous", deployment(Steady), remove("c"), state(only)},
		{"delete, previous that is loaded", deployment(Steady), remove("c", report("w1", 3, has("c", "draining"))), ErrHeld},
		{"delete, previous that was loaded", deployment(Steady), remove("c", report("w1", 3, has("c", "cold"))), state(only)},
		{"delete, previous, watching", deployment(Watching), remove("a"), ErrLive},
		{"delete, active", deployment(Steady), remove("a"), ErrLive},
		{"delete, next", deployment(Loading), remove("b"), ErrLive},
		{"delete, canary", deployment(Canary), remove("b"), ErrLive},
		{"delete, pinned", pinned, remove("b"), ErrPinned},
		{"delete, unread", unread, remove("b"), ErrConflict},
		{"rollback, steady, none", only, rollback, ErrNothing},
		{"rollback, loading", deployment(Loading), rollback, `steady serial 3 active "a" next "" previous "c" share 0 refused [b]`},
		{"rollback, loading the previous", again, rollback, `steady serial 3 active "a" next "" previous "a" share 0 refused [b]`},
		{"rollback, canary", deployment(Canary), rollback, `steady serial 3 active "a" next "" previous "c" share 0 refused [b]`},
		{"rollback, watching", deployment(Watching), rollback, `steady serial 3 active "a" next "" previous "a" share 0 refused [b]`},
		{"rollback, pinned", pinned, rollback, ErrPinned},
		{"pin, steady", deployment(Steady), pin(true), state(deployment(Steady))},
		{"pin, loading", deployment(Loading), pin(true), ErrUnderWay},
		{"pin, canary", deployment(Canary), pin(true), ErrUnderWay},
		{"pin, watching", deployment(Watching), pin(true), ErrUnderWay},
		{"pin, pinned", pinned, pin(true), ErrNothing},
		{"unpin", pinned, pin(false), state(deployment(Steady))},
		{"unpin, steady", deployment(Steady), pin(false), ErrNothing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := *tt.from
			got, err := tt.event(tt.from)
			if want, ok := tt.want.(error); ok {
				if !errors.Is(err, want) || got != nil {
					t.Errorf("%v, %v, want %v", got, err, want)
				}
				return
			}
			if err != nil || state(got) != tt.want {
				t.Fatalf("%v, %v\nwant %v", state(got), err, tt.want)
			}
			if got.Revision != tt.from.Revision || !got.Stored.IsZero() || !reflect.DeepEqual(before, *tt.from) {
				t.Errorf("revision %d, stored %v, of %+v", got.Revision, got.Stored, tt.from)
			}
			moved(t, tt.from, got)
			if _, err := got.encode(); err != nil {
				t.Error(err)
			}
		})
	}
}

// moved checks that a rule that stays holds since when it did, and that another is
// a new one.
func moved(t *testing.T, from, to *Deployment) {
	t.Helper()
	old, now := from.Rule(), to.Rule()
	if now.same(old) {
		if !now.From.Equal(old.From) || len(to.Past) != len(from.Past) {
			t.Errorf("the rule is the same and holds from %v, not %v; past %v", now.From, old.From, to.Past)
		}
		return
	}
	if !now.From.IsZero() || len(to.Past) == 0 || to.Past[0] != old {
		t.Errorf("the rule is another and holds from %v; past %v", now.From, to.Past)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"canary: -1": {Canary: -1}, "canary: 10001": {Canary: Whole + 1}, "hold: -1ns": {Hold: -1}, "hold: 168h0m1s": {Hold: maxHold + time.Second},
		"watch: -1ns": {Watch: -1}, "watch: 1h0m1s": {Watch: maxWatch + time.Second},
	} {
		if _, err := deployment(Steady).Begin(ref("b"), o, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, share := range []int{-1, Whole + 1} {
		if _, err := deployment(Canary).Promote(share); err == nil || !strings.Contains(err.Error(), "10000 wanted") {
			t.Errorf("share %d: %v", share, err)
		}
	}
	for _, to := range []Ref{{}, {Version: "1"}, {Digest: ref("b").Digest}, {Version: "1", Digest: "xyz"}, {Version: strings.Repeat("v", 65), Digest: ref("b").Digest}} {
		if d, err := deployment(Steady).Begin(to, Options{}, nil); err == nil {
			t.Errorf("%+v: %v", to, d)
		}
	}
	d, err := deployment(Canary).Rollback(strings.Repeat("é\n", 600), strings.Repeat("ü", 64)+"\xff")
	if err != nil || len(d.Reason) > maxReason || len(d.Reason) < maxReason-3 || d.By != strings.Repeat("ü", maxBy/2) {
		t.Errorf("reason of %d bytes, by %q, %v", len(d.Reason), d.By, err)
	}
	if _, err := d.encode(); err != nil {
		t.Error(err)
	}
}
