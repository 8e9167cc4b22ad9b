package registry

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Rule says which version serves a request.
type Rule struct {
	// Active serves what Next does not.
	Active Ref `json:"active,omitzero"`
	// Next is zero when its share is.
	Next Ref `json:"next,omitzero"`
	// Share of Next in hundredths of a percent.
	Share int `json:"share,omitempty"`
	// From is when it took effect, by the server's clock.
	From time.Time `json:"from"`
}

// same says whether two rules choose alike.
func (r Rule) same(o Rule) bool {
	return r.Active.same(o.Active) && r.Next.same(o.Next) && r.Share == o.Share
}

// Choose returns the version that serves a request. An id that a share has, each
// larger share of the same version has too.
func (r Rule) Choose(model, id string) Ref {
	if r.Share == 0 {
		return r.Active
	}
	h := sha256.New()
	for _, s := range []string{model, "\x00", r.Next.Digest, "\x00", id} {
		h.Write([]byte(s))
	}
	if binary.BigEndian.Uint64(h.Sum(nil))%Whole < uint64(r.Share) {
		return r.Next
	}
	return r.Active
}

// Rule is the record's own. Its From is zero as long as that is not known.
func (d *Deployment) Rule() Rule {
	r := Rule{Active: d.Active, From: d.since()}
	if d.Phase == Canary && d.Share > 0 {
		r.Next, r.Share = d.Next, d.Share
	}
	return r
}

// since is when the record's rule took effect. A server whose clock was put back
// does not put a rule before the last one.
func (d *Deployment) since() time.Time {
	if !d.Since.IsZero() || d.Stored.IsZero() {
		return d.Since
	}
	at := d.Stored.Add(Lead)
	if len(d.Past) > 0 && at.Before(d.Past[0].From) {
		return d.Past[0].From
	}
	return at
}

// At returns the rule for a request that was published then, by the server's
// clock: the newest that had taken effect, or the oldest that is known.
//
// Everybody who knows all rules that had taken effect gets the same. A record that
// is written later changes nothing, as long as the rule is among those it keeps.
func (d *Deployment) At(published time.Time) Rule {
	now := d.Rule()
	if !now.From.IsZero() && !published.Before(now.From) {
		return now
	}
	for _, r := range d.Past {
		if !published.Before(r.From) {
			return r
		}
	}
	if len(d.Past) > 0 {
		return d.Past[len(d.Past)-1]
	}
	return now
}

// Stage identifies a step of a deployment. Records that are written again, or
// pinned, have the stage of the one before.
type Stage struct {
	serial uint64
	phase  Phase
	from   int64
}

// Stage is where the deployment is. The age that [Deployment.Advance] wants runs
// from when a process saw it first.
func (d *Deployment) Stage() Stage {
	return Stage{serial: d.Serial, phase: d.Phase, from: d.since().UnixNano()}
}
