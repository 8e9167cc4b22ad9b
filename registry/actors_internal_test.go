package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

// bucket is a key with compare-and-swap, and its server's clock.
type bucket struct {
	now     time.Time
	history []*Deployment
}

// read returns a copy of the last record, as it is stored.
func (b *bucket) read(t *testing.T) *Deployment {
	t.Helper()
	if len(b.history) == 0 {
		return Undeployed("m")
	}
	last := b.history[len(b.history)-1]
	text, err := json.Marshal(last)
	if err != nil {
		t.Fatal(err)
	}
	d, err := parseDeployment(text, "m")
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	d.Revision, d.Stored = last.Revision, last.Stored
	return d
}

// write stores a record if the last one is that which it replaces.
func (b *bucket) write(t *testing.T, d *Deployment) bool {
	t.Helper()
	if d.Revision != uint64(len(b.history)) {
		return false
	}
	if _, err := d.encode(); err != nil {
		t.Fatalf("%v: %+v", err, d)
	}
	stored := *d
	stored.Revision, stored.Stored = d.Revision+1, b.now
	b.history = append(b.history, &stored)
	return true
}

// actor is a worker or an operator, who has read a record some time ago.
type actor struct {
	has   *Deployment
	stage Stage
	since time.Time
}

func (a *actor) read(t *testing.T, b *bucket) {
	t.Helper()
	a.has = b.read(t)
	if s := a.has.Stage(); s != a.stage {
		a.stage, a.since = s, b.now
	}
}

// TestActors has several do at random what they may, with what they have last
// read.
func TestActors(t *testing.T) {
	t.Parallel()
	runs := 100
	if testing.Short() {
		runs = 20
	}
	for seed := range runs {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			b := act(t, rand.New(rand.NewPCG(uint64(seed), 6)))
			for i, d := range b.history {
				before := Undeployed("m")
				if i > 0 {
					before = b.history[i-1]
				}
				follows(t, before, d)
			}
			oneAnswer(t, b.history)
			if t.Failed() {
				for _, d := range b.history {
					t.Logf("%d at %v: %s", d.Revision, d.Stored.Sub(clock(0)), state(d))
				}
			}
		})
	}
}

func act(t *testing.T, rng *rand.Rand) *bucket {
	t.Helper()
	b := &bucket{now: clock(0)}
	actors := make([]actor, 4)
	for i := range actors {
		actors[i].read(t, b)
	}
	for range 300 {
		b.now = b.now.Add(time.Duration(rng.Int64N(int64(2 * time.Second))))
		a := &actors[rng.IntN(len(actors))]
		if rng.IntN(3) > 0 {
			a.read(t, b)
		}
		next, err := a.event(rng, b.now)
		switch {
		case errors.Is(err, ErrNothing) || errors.Is(err, ErrUnderWay) || errors.Is(err, ErrPinned) || errors.Is(err, ErrThird) || errors.Is(err, ErrDeleting) || errors.Is(err, ErrLive):
		case err != nil:
			t.Fatal(err)
		case next != a.has:
			b.write(t, next)
			a.read(t, b)
		}
	}
	return b
}

// event is something that the actor may do.
func (a *actor) event(rng *rand.Rand, now time.Time) (*Deployment, error) {
	v := []Ref{ref("a"), ref("b"), ref("c"), ref("d")}[rng.IntN(4)]
	switch rng.IntN(12) {
	case 0, 1:
		o := Options{Canary: rng.IntN(3) * Whole / 2, Hold: time.Duration(rng.IntN(2)) * 4 * time.Second, Watch: time.Duration(rng.IntN(3)) * 3 * time.Second}
		return a.has.Begin(v, o, randomReports(rng, a.has))
	case 2:
		return a.has.Promote(rng.IntN(5) * Whole / 4)
	case 3:
		if rng.IntN(3) > 0 {
			return a.has, nil
		}
		return a.has.Rollback("at random", "operator")
	case 4:
		return a.has.Pin(rng.IntN(4) == 0)
	case 6:
		if rng.IntN(4) > 0 {
			return a.has, nil
		}
		return a.has.Undeploy("at random", "operator")
	case 7:
		if d := a.has; d.Deleting != (Ref{}) {
			return d.change(d.By, func(n *Deployment) { n.Deleting = Ref{} }), nil
		}
		return a.has.deleting(v, randomReports(rng, a.has))
	case 5:
		return a.has.over(a.has.Revision), nil // somebody wrote garbage over it
	}
	next, _ := a.has.Advance(randomReports(rng, a.has), now.Sub(a.since), "worker")
	return next, nil
}

func randomReports(rng *rand.Rand, d *Deployment) []Report {
	var all []Report
	for w := range rng.IntN(3) {
		r := report(fmt.Sprintf("w%d", w), d.Serial)
		m := &r.Models[0]
		if rng.IntN(8) == 0 {
			m.Serial--
		}
		for _, v := range []string{d.Active.Version, d.Next.Version} {
			if v == "" {
				continue
			}
			state := []string{"warm", "live", "live", "live", "loading", "live", "live", "live", "live", "failed"}[rng.IntN(10)]
			m.Versions = append(m.Versions, has(v, state, uint64(rng.IntN(7)), uint64(rng.IntN(50))))
		}
		all = append(all, r)
	}
	return all
}

// follows checks what holds between a record and the next.
func follows(t *testing.T, d, n *Deployment) {
	t.Helper()
	if len(n.Wanted()) > 2 {
		t.Errorf("%d: %d versions wanted", n.Revision, len(n.Wanted()))
	}
	if n.Serial < d.Serial || n.Serial > d.Serial+1 {
		t.Errorf("%d: serial %d after %d", n.Revision, n.Serial, d.Serial)
	}
	if n.Refuses(n.Active) || n.Refuses(n.Next) {
		t.Errorf("%d: a refused version serves: %s", n.Revision, state(n))
	}
	if n.Deleting != (Ref{}) && (n.Deleting.same(n.Active) || n.Deleting.same(n.Next)) {
		t.Errorf("%d: a version that is being deleted serves: %s", n.Revision, state(n))
	}
	if d.Refuses(n.Next) && n.Serial == d.Serial || d.Refuses(n.Active) {
		t.Errorf("%d: a refused version is back: %s, then %s", n.Revision, state(d), state(n))
	}
	if n.Active != (Ref{}) && !n.Active.same(d.Active) && !n.Active.same(d.Next) && !n.Active.same(d.Previous) {
		t.Errorf("%d: active out of nowhere: %s, then %s", n.Revision, state(d), state(n))
	}
	if n.Rule().From.Before(d.Rule().From) {
		t.Errorf("%d: rule from %v after one from %v", n.Revision, n.Rule().From, d.Rule().From)
	}
	if n.Phase == Loading && !n.Rule().same(d.Rule()) {
		t.Errorf("%d: loading moves the rule: %s, then %s", n.Revision, state(d), state(n))
	}
	if n.Rule().same(d.Rule()) != n.Rule().From.Equal(d.Rule().From) {
		t.Errorf("%d: rule %+v after %+v", n.Revision, n.Rule(), d.Rule())
	}
}

// oneAnswer asks for requests of all times. Whoever has a record that he may have
// had when the request's rule held, or a later one, gets the same.
func oneAnswer(t *testing.T, history []*Deployment) {
	t.Helper()
	asked := 0
	for ms := 0; ms < 320_000; ms += 1310 {
		published, id := clock(float64(ms)/1000), strconv.Itoa(ms)
		first := -1 // the last record whose rule holds by then
		for i, d := range history {
			if !published.Before(d.Rule().From) {
				first = i
			}
		}
		if first < 0 {
			continue
		}
		want, rules := history[first].At(published).Choose("m", id), 0
		for i := first; i < len(history); i++ {
			if i > first && !history[i].Rule().same(history[i-1].Rule()) {
				rules++
			}
			if rules > maxPast {
				break
			}
			asked++
			if got := history[i].At(published).Choose("m", id); got != want {
				t.Errorf("request %s: record %d says %q, record %d says %q", id, history[first].Revision, want.Version, history[i].Revision, got.Version)
				return
			}
		}
	}
	if asked == 0 {
		t.Error("no request asked for")
	}
}
