package worker_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker"
)

// flip deploys a version as if all workers had it, whatever they have. Its rule holds
// soon, or as others do after [registry.Lead].
func (s *shop) flip(model, version string, soon bool) {
	s.t.Helper()
	to := s.ref(model, version)
	for {
		d := s.deployment(model)
		if d.Phase == registry.Steady && d.Active == to {
			return
		}
		var next *registry.Deployment
		var err error
		if d.Phase == registry.Steady {
			next, err = d.Begin(to, registry.Options{Canary: registry.Whole}, nil)
		} else {
			next, _ = d.Advance([]registry.Report{{Worker: "all", Models: []registry.ModelReport{{
				Model: model, Serial: d.Serial, Versions: []registry.VersionReport{{Ref: to, State: registry.StateWarm}},
			}}}}, 0, "test")
		}
		if err == nil {
			if soon && next.Since.IsZero() {
				next.Since = time.Now().Add(known / 4).UTC() // the server's clock is this one
			}
			err = s.Write(s.t.Context(), next)
		}
		if err != nil && !errors.Is(err, registry.ErrConflict) {
			s.t.Fatal(err)
		}
	}
}

// trail is what a client saw of a request.
type trail struct {
	versions map[uint64]string // by attempt, as accepted frames say
	texts    map[uint64]string // by attempt, as token frames say
	final    broker.Frame
}

// reader reads the frames of many requests.
type reader struct {
	t      *testing.T
	sub    *nats.Subscription
	trails map[string]*trail
}

// until reads frames until done of all requests.
func (r *reader) until(ids []string, done func(*trail) bool) {
	r.t.Helper()
	r.t.Cleanup(func() {
		if r.t.Failed() {
			for _, id := range ids {
				if seen := r.trails[id]; seen != nil {
					r.t.Logf("%s: versions by attempt %v, final of attempt %d", id, seen.versions, seen.final.Attempt)
				}
			}
		}
	})
	for _, id := range ids {
		if r.trails[id] == nil {
			r.trails[id] = &trail{versions: map[uint64]string{}, texts: map[uint64]string{}}
		}
		for !done(r.trails[id]) {
			if r.t.Failed() {
				return
			}
			f := nextFrame(r.t, r.sub)
			t := r.trails[f.ID]
			if t == nil {
				t = &trail{versions: map[uint64]string{}, texts: map[uint64]string{}}
				r.trails[f.ID] = t
			}
			switch {
			case f.Type == broker.FrameAccepted:
				t.versions[f.Attempt] = f.Version
			case f.Type == broker.FrameToken:
				t.texts[f.Attempt] += f.Text
			case f.Type.Terminal():
				t.final = f
			}
		}
	}
}

// stepper lets a gate's steps through one by one, until it is stopped.
type stepper struct {
	stop func()
}

func newStepper(g *gate) *stepper {
	g.set(true)
	ended := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				g.allow(1)
			case <-ended:
				return
			}
		}
	})
	return &stepper{stop: sync.OnceFunc(func() { close(ended); group.Wait(); g.set(true) })}
}

// known is how long it takes until workers have read a deployment.
const known = 1300 * time.Millisecond

// flips are when a model's deployment changes: in a gap between the events of its
// request, and so that the rule has taken effect when the gap ends, or not.
type flips struct {
	gap     int
	effects bool
}

func (f flips) model() string {
	return fmt.Sprintf("m%d%s", f.gap, map[bool]string{true: "early", false: "late"}[f.effects])
}

// TestRetryStaysOnItsVersion changes what is deployed before a request is published,
// before its first attempt, while that runs, and after the worker has hung up, with
// the rule in effect before the next of these events or after it; the first
// worker has the old version or has never had it, and so has the second. All that a
// request's client sees is of one version.
func TestRetryStaysOnItsVersion(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{true, false} {
		for _, same := range []bool{true, false} {
			if testing.Short() && (old || same) {
				continue
			}
			t.Run(fmt.Sprintf("first worker has it %v, second %v", old, same), func(t *testing.T) {
				t.Parallel()
				retry(t, old, same)
			})
		}
	}
}

func retry(t *testing.T, old, same bool) {
	t.Helper()
	server := newServer(t)
	s := newShop(t, server)
	var all []flips
	for gap := range 4 {
		all = append(all, flips{gap, true}, flips{gap, false})
	}
	for _, f := range all {
		s.pushLetters(f.model(), "1", "2")
		s.flip(f.model(), "1", true)
	}
	var names []string
	for _, f := range all {
		names = append(names, f.model())
	}
	if err := brokerConn(t, server).EnsureStreams(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	gap := func(n int, lasts time.Duration) {
		for _, f := range all {
			if f.gap == n && f.effects {
				s.flip(f.model(), "2", true)
			}
		}
		<-time.After(lasts)
		for _, f := range all {
			if f.gap == n && !f.effects {
				s.flip(f.model(), "2", false)
			}
		}
	}
	backend := newGate()
	steps := newStepper(backend)
	defer func() { steps.stop(); backend.set(false) }()
	serve := func(g *gate) *started {
		return start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: g}, func(c *worker.Config) {
			c.Models, c.Slots, c.AckWait, c.FrameInterval = nil, len(all), 1200*time.Millisecond, time.Millisecond
		})
	}
	nc := connect(t, server)
	r := &reader{t: t, sub: subscribe(t, nc, "infer.out.me.*"), trails: map[string]*trail{}}
	var first *started
	var fillers []string
	if old {
		first = serve(backend)
		for i := range all {
			id := fmt.Sprintf("filler%04d", i)
			fillers = append(fillers, id)
			publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 16000}`), "Nats-Msg-Id", id)
		}
		r.until(fillers, func(t *trail) bool { return len(t.versions) > 0 })
		for _, f := range all {
			s.reported(f.model(), "1", "warm", "live")
		}
	}
	gap(0, known)
	ids := map[string]flips{}
	var order []string
	for _, f := range all {
		id := "request" + f.model()
		ids[id], order = f, append(order, id)
		publish(t, nc, "infer.req."+f.model()+".std.me", "", []byte(`{"input": "a", "max_tokens": 900}`), "Nats-Msg-Id", id)
	}
	gap(1, known)
	if old {
		for _, id := range fillers {
			cancel(t, nc, "me", id)
		}
	} else {
		first = serve(backend)
	}
	r.until(order, func(t *trail) bool { return len(t.texts[1]) > 2 })
	gap(2, known)
	steps.stop()          // the worker hangs, and loses its leases
	gap(3, registry.Lead) // longer than a lease
	if same {
		backend.set(false)
	} else {
		serve(newGate())
	}
	r.until(order, func(t *trail) bool { return t.final.Type != "" })
	pins := 0
	for id, f := range ids {
		want := map[bool]string{true: "2", false: "1"}[f.gap == 0 && f.effects || !old && f.gap < 2]
		if !old && f.gap < 2 && f != all[0] {
			pins++
		}
		check(t, id, r.trails[id], want)
	}
	if n := metric(t, first, "cellmq_pinned_requests_total"); n < float64(pins) {
		t.Errorf("%v requests pinned, %d began on another version than the rule's", n, pins)
	}
	eventually(t, "all leave", func() bool { return same || first.Running() <= len(all) })
}

// check wants all attempts of a request on one version, and its text of that.
func check(t *testing.T, id string, seen *trail, version string) {
	t.Helper()
	text := letters[version]
	whole := strings.Repeat(text[1:]+text[:1], 900)[:900]
	if seen.final.Final == nil {
		t.Errorf("%s ended with %v after %v", id, seen.final.Error, seen.versions)
		return
	}
	// A worker that has not read the deployments for a while hands a request back
	// before it begins: there may be attempts without a frame.
	if len(seen.versions) < 2 || seen.final.Attempt < 2 {
		t.Errorf("%s: attempts %v, final of %d", id, seen.versions, seen.final.Attempt)
	}
	for attempt, v := range seen.versions {
		if v != version {
			t.Errorf("%s: attempt %d on version %s, want %s", id, attempt, v, version)
		}
	}
	for attempt, text := range seen.texts {
		if !strings.HasPrefix(whole, text) {
			t.Errorf("%s: attempt %d wrote %.20q, version %s writes %.20q", id, attempt, text, version, whole)
		}
	}
	if seen.final.Text != whole || seen.final.Version != version {
		t.Errorf("%s: final of version %s: %.20q, want %s: %.20q", id, seen.final.Version, seen.final.Text, version, whole)
	}
}
