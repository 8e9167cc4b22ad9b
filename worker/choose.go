package worker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// choice is the version that a request is to run on.
//
// All attempts of a request run on one version. What the deployment's rule says for
// the time of its publication and its id is the same for every attempt
// ([registry.Deployment.At]); an attempt that begins on another version, or that
// cannot know the rule, writes down which, before its first frame: it pins it.
type choice struct {
	key versions.Key
	// served is the version, and refers to it. Nil: it has to be loaded.
	served *served
	// pin: a later attempt would not find the version by the rule.
	pin bool
	// begun: an earlier attempt may have begun on it, so no other version will do.
	begun bool
	// unknown: what earlier attempts ran on cannot be told here.
	unknown bool
}

// choose returns the version of the model that serves a request, or why none does.
// What it chose is referred to as far as it is in memory. It does not block.
func (w *Worker) choose(rt *route, r *run, now time.Time) (choice, *broker.Error) {
	want := rt.wanted(r.req)
	r.wants, _ = rt.key(want)
	if r.attempt > 1 && !r.fresh() {
		return w.chooseAgain(rt, r, want, now)
	}
	c, refusal := w.chooseFirst(rt, r, want)
	c.pin = r.req.Durable && (c.key != r.wants || w.uninformed(now))
	return c, refusal
}

// fresh reports whether it is known that no attempt has begun: each was handed back,
// and none wrote down on which version it ran, which all do that have begun.
func (r *run) fresh() bool {
	return r.past != nil && r.past.Digest == "" && r.excused >= r.attempt-1
}

// wanted is the version that the rule gives a request.
func (rt *route) wanted(req *broker.Request) registry.Ref {
	if rt.deployment == nil {
		return registry.Ref{}
	}
	return rt.deployment.At(req.Published).Choose(req.Model, req.ID)
}

// chooseFirst chooses for a request that has not begun, whatever its attempt. It does not wait for a
// version that is not in memory, except for the active one.
func (w *Worker) chooseFirst(rt *route, r *run, want registry.Ref) (choice, *broker.Error) {
	first := r.wants
	if r.req.Version != "" {
		var ok bool
		if first, ok = rt.named[r.req.Version]; !ok {
			return choice{}, rt.unknownVersion(r.req)
		}
	} else if rt.deployment != nil && rt.deployment.Refuses(want) {
		first = rt.active
	}
	if s, ok := w.acquire(first); ok {
		return choice{key: first, served: s}, nil
	}
	switch {
	case first == rt.active:
	case r.req.Version != "": // it has gone this moment
		return choice{}, rt.unknownVersion(r.req)
	default:
		if s, ok := w.acquire(rt.active); ok {
			return choice{key: rt.active, served: s}, nil
		}
	}
	return choice{key: rt.active}, nil
}

// chooseAgain chooses for a request that may have begun: the version that is pinned,
// else the one that its first attempt chose, in memory or not.
func (w *Worker) chooseAgain(rt *route, r *run, want registry.Ref, now time.Time) (choice, *broker.Error) {
	c := choice{key: r.wants, begun: true}
	switch {
	case r.past != nil && r.past.Digest != "":
		c.key = versions.Key{Model: r.req.Model, Digest: r.past.Digest}
	case w.outdated(r.req.Published, now):
		return choice{unknown: true}, nil
	case r.req.Version != "" && !w.isNamed(r.wants, want, r.req.Version):
		k, ok := rt.find(r.req.Version)
		if !ok {
			return choice{}, rt.unknownVersion(r.req)
		}
		c.key = k
	case c.key == versions.Key{}:
		return choice{}, gone(r.req.Model)
	}
	if s, ok := w.acquire(c.key); ok {
		c.served = s
		return c, nil
	}
	if rt.deployment == nil {
		// There is what the worker has of its own, or nothing. A worker that was
		// started anew with other files begins anew.
		c.key, c.begun = rt.active, false
		if s, ok := w.acquire(rt.active); ok {
			c.served = s
		}
	}
	return c, nil
}

// isNamed reports whether a version has the name that a request gives.
func (w *Worker) isNamed(k versions.Key, ref registry.Ref, name string) bool {
	if f, ok := w.loader.known(k); ok {
		return f.shown.Version == name
	}
	return named(ref, name)
}

// named reports whether a reference has the name that a request gives, which may
// have a weight type behind.
func named(ref registry.Ref, name string) bool {
	rest, ok := strings.CutPrefix(name, ref.Version)
	return ok && ref != registry.Ref{} && (rest == "" || rest[0] == '+')
}

// find returns the version of a name, in memory or not.
func (rt *route) find(name string) (versions.Key, bool) {
	if k, ok := rt.named[name]; ok {
		return k, true
	}
	if d := rt.deployment; d != nil {
		refs := []registry.Ref{d.Active, d.Next, d.Previous}
		for _, rule := range d.Past {
			refs = append(refs, rule.Active, rule.Next)
		}
		for _, ref := range append(refs, d.Refused...) {
			if named(ref, name) {
				return rt.key(ref)
			}
		}
	}
	return versions.Key{}, false
}

// unknownVersion answers a request for a version that is not served.
func (rt *route) unknownVersion(req *broker.Request) *broker.Error {
	all := slices.Sorted(maps.Keys(rt.named))
	return broker.NewError(broker.CodeUnknownVersion,
		fmt.Sprintf("model %q is served in version %s, not %q", req.Model, cmp.Or(quoted(all), "none"), req.Version))
}

func quoted(all []string) string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(out, ", ")
}

// gone answers a request that began on a version that there is no more.
func gone(model string) *broker.Error {
	return &broker.Error{
		Code: broker.CodeUnknownVersion, Message: fmt.Sprintf("the version of model %q that began the request is gone; send the request again with another id", model),
		Retryable: true, RetryAfter: time.Second,
	}
}

// absent answers a request whose version could not be loaded.
func (c choice) absent(model string, err error) *broker.Error {
	if c.begun && (errors.Is(err, versions.ErrUnknown) || errors.Is(err, versions.ErrRefused) || errors.Is(err, versions.ErrThird)) {
		return gone(model)
	}
	return notThere(model)
}

// uninformed reports whether there may be rules that take effect and that this
// worker has not read.
func (w *Worker) uninformed(now time.Time) bool {
	polled := w.polled.Load()
	return w.shelf.open() && !w.unregistered.Load() && now.Sub(time.Unix(0, polled)) > registry.Lead/2
}

// outdated reports whether the rule for a request may be one that this worker has
// not read. One that never heard from the registry goes by what it has.
func (w *Worker) outdated(published, now time.Time) bool {
	polled := w.polled.Load()
	return polled > 0 && w.uninformed(now) && published.Sub(time.Unix(0, polled)) > registry.Lead
}
