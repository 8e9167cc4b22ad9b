package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// shadows loads versions that are nothing but their keys.
type shadows struct{}

func (shadows) Fetch(context.Context, versions.Key) error { return nil }

func (shadows) Open(context.Context, versions.Key) (versions.Opened, error) { return shadow{}, nil }

func (shadows) Load(context.Context, versions.Opened, func(versions.State)) (*versions.Loaded, error) {
	return &versions.Loaded{}, nil
}

func (shadows) Unload(*versions.Loaded) error { return nil }

func (shadows) Footprint([]*versions.Loaded) int64 { return 0 }

type shadow struct{}

func (shadow) Size() (weights, state int64) { return 0, 0 }

func (shadow) Close() {}

// holding returns a worker that has versions of a model m in memory, and read the
// deployments at some time.
func holding(t *testing.T, polled time.Time, digests ...string) *Worker {
	t.Helper()
	w := &Worker{versions: versions.New(versions.Config{Loader: shadows{}}), shelf: &shelf{on: t.Context()}}
	w.loader = newLoader(w)
	w.polled.Store(polled.UnixNano())
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.versions.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	for _, d := range digests {
		k := versions.Key{Model: "m", Digest: d}
		w.versions.Want("m", []versions.Key{k}, false)
		if _, err := w.versions.Await(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// TestChoose covers which version a request gets, and whether that is written down.
func TestChoose(t *testing.T) {
	t.Parallel()
	now := time.Now()
	one, two, three := registry.Ref{Version: "1", Digest: "d1"}, registry.Ref{Version: "2", Digest: "d2"}, registry.Ref{Version: "3", Digest: "d3"}
	long := now.Add(-time.Hour)
	steady := &registry.Deployment{Model: "m", Phase: registry.Steady, Active: one, Since: long}
	flipped := &registry.Deployment{
		Model: "m", Phase: registry.Steady, Active: two, Since: now.Add(-10 * time.Second), Past: []registry.Rule{{Active: one, From: long}},
	}
	refused := &registry.Deployment{
		Model: "m", Phase: registry.Steady, Active: one, Since: now.Add(3 * time.Second), Refused: []registry.Ref{two},
		Past: []registry.Rule{{Active: one, Next: two, Share: registry.Whole, From: long}},
	}
	first := &registry.Deployment{
		Model: "m", Phase: registry.Steady, Active: one, Since: now.Add(-10 * time.Second), Past: []registry.Rule{{From: long}},
	}
	fresh, stale := now.Add(-time.Second), now.Add(-20*time.Second)
	before, after := now.Add(-15*time.Second), now.Add(-5*time.Second)
	for _, tc := range []struct {
		name       string
		deployment *registry.Deployment
		own        string
		held       []string // digests in memory
		polled     time.Time
		published  time.Time
		attempt    int
		past       *broker.State
		excused    int
		version    string
		realtime   bool

		digest  string
		held1   bool // it is in memory
		pin     bool
		begun   bool
		unknown bool
		code    broker.Code
		again   bool // the error is retryable
	}{
		{name: "by the rule", deployment: steady, held: []string{"d1"}, digest: "d1", held1: true},
		{name: "by the rule, which is not known for sure", deployment: steady, held: []string{"d1"}, polled: stale, digest: "d1", held1: true, pin: true},
		{name: "realtime, not known for sure", deployment: steady, held: []string{"d1"}, polled: stale, realtime: true, digest: "d1", held1: true},
		{name: "by the rule before", deployment: flipped, held: []string{"d1", "d2"}, published: before, digest: "d1", held1: true},
		{name: "by the new rule", deployment: flipped, held: []string{"d1", "d2"}, published: after, digest: "d2", held1: true},
		{name: "the old version is not here", deployment: flipped, held: []string{"d2"}, published: before, digest: "d2", held1: true, pin: true},
		{name: "the active one waits for room", deployment: flipped, published: after, digest: "d2"},
		{name: "neither is here", deployment: flipped, published: before, digest: "d2", pin: true},
		{name: "refused", deployment: refused, held: []string{"d1", "d2"}, digest: "d1", held1: true, pin: true},
		{name: "published before the first deployment", deployment: first, held: []string{"d1"}, published: before, digest: "d1", held1: true, pin: true},
		{name: "named", deployment: flipped, held: []string{"d1", "d2"}, version: "1", digest: "d1", held1: true, pin: true},
		{name: "named, and by the rule", deployment: flipped, held: []string{"d1", "d2"}, version: "2", digest: "d2", held1: true},
		{name: "named, unknown", deployment: flipped, held: []string{"d2"}, version: "1", code: broker.CodeUnknownVersion},

		{name: "again, pinned", deployment: flipped, held: []string{"d1", "d2"}, attempt: 2, past: &broker.State{Digest: "d1"}, digest: "d1", held1: true, begun: true},
		{name: "again, pinned to a third", deployment: flipped, held: []string{"d1", "d2"}, attempt: 2, past: &broker.State{Digest: three.Digest}, digest: "d3", begun: true},
		{name: "again, pinned, not known for sure", deployment: flipped, held: []string{"d2"}, polled: stale, attempt: 2, past: &broker.State{Digest: "d2"}, digest: "d2", held1: true, begun: true},
		{name: "again, the old version is not here", deployment: flipped, held: []string{"d2"}, published: before, attempt: 2, past: &broker.State{}, digest: "d1", begun: true},
		{name: "again, what was refused", deployment: refused, held: []string{"d1", "d2"}, attempt: 2, digest: "d2", held1: true, begun: true},
		{name: "again, not known at all", deployment: flipped, held: []string{"d2"}, polled: stale, published: after, attempt: 2, unknown: true},
		{name: "again, known though not for sure", deployment: flipped, held: []string{"d2"}, polled: now.Add(-7 * time.Second), published: after, attempt: 2, digest: "d2", held1: true, begun: true},
		{name: "again, named", deployment: flipped, held: []string{"d2"}, published: after, attempt: 2, version: "1", digest: "d1", begun: true},
		{name: "again, named with a weight type", deployment: flipped, held: []string{"d2"}, published: before, attempt: 2, version: "1+bf16", digest: "d1", begun: true},
		{name: "again, named, unknown", deployment: flipped, held: []string{"d2"}, attempt: 2, version: "11", code: broker.CodeUnknownVersion},
		{name: "again, on what another worker had of its own", deployment: first, held: []string{"d1"}, published: before, attempt: 2, code: broker.CodeUnknownVersion, again: true},
		{name: "again, handed back before it began", deployment: first, held: []string{"d1"}, published: before, attempt: 3, past: &broker.State{}, excused: 2, digest: "d1", held1: true, pin: true},
		{name: "again, handed back, and lost", deployment: first, held: []string{"d1"}, published: before, attempt: 3, past: &broker.State{}, excused: 1, code: broker.CodeUnknownVersion, again: true},
		{name: "again, handed back before it began, the old version is not here", deployment: flipped, held: []string{"d2"}, published: before, attempt: 2, past: &broker.State{}, excused: 1, digest: "d2", held1: true, pin: true},

		{name: "no registry", own: "d1", held: []string{"d1"}, digest: "d1", held1: true},
		{name: "no registry, again", own: "d1", held: []string{"d1"}, attempt: 2, digest: "d1", held1: true, begun: true},
		{name: "no registry, begun on other files", own: "d1", held: []string{"d1"}, attempt: 2, past: &broker.State{Digest: "d0"}, digest: "d1", held1: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.polled.IsZero() {
				tc.polled = fresh
			}
			w := holding(t, tc.polled, tc.held...)
			rt := &route{shown: broker.ServedModel{Name: "m"}, deployment: tc.deployment, named: map[string]versions.Key{}}
			if tc.own != "" {
				rt.own = versions.Key{Model: "m", Digest: tc.own}
				rt.active = rt.own
			} else {
				rt.active, _ = rt.key(tc.deployment.Active)
			}
			for _, d := range tc.held {
				rt.named[d[1:]] = versions.Key{Model: "m", Digest: d}
			}
			if tc.published.IsZero() {
				tc.published = now
			}
			r := &run{attempt: max(tc.attempt, 1), past: tc.past, excused: tc.excused, req: &broker.Request{
				Model: "m", ID: "request01", Version: tc.version, Durable: !tc.realtime, Published: tc.published,
			}}
			c, refusal := w.choose(rt, r, now)
			if tc.code != "" {
				if refusal == nil || refusal.Code != tc.code || refusal.Retryable != tc.again || c.served != nil {
					t.Errorf("refused with %+v", refusal)
				}
				return
			}
			if refusal != nil || c.key.Digest != tc.digest || (c.served != nil) != tc.held1 || c.served != nil && c.served.key != c.key ||
				c.pin != tc.pin || c.begun != tc.begun || c.unknown != tc.unknown {
				t.Errorf("%+v, served %v, refused with %v", c, c.served != nil, refusal)
			}
		})
	}
}

// TestAbsent wants a request that has begun to hear whether its version is gone.
func TestAbsent(t *testing.T) {
	t.Parallel()
	for _, err := range []error{versions.ErrUnknown, versions.ErrRefused, versions.ErrThird, versions.ErrBudget, errors.New("timeout")} {
		begun, other := choice{begun: true}.absent("m", err), choice{}.absent("m", err)
		lost := !errors.Is(err, versions.ErrBudget) && err.Error() != "timeout"
		if begun.Code != broker.CodeUnknownVersion || !begun.Retryable || !other.Retryable || (begun.Message != other.Message) != lost {
			t.Errorf("%v: %q, not begun: %q", err, begun.Message, other.Message)
		}
	}
}
