package registry

import (
	"fmt"
	"slices"
	"time"
)

// Options say how a deployment goes on by itself.
type Options struct {
	// Canary is the share to begin with, in hundredths of a percent. [Whole]: all
	// at once.
	Canary int
	// Hold is how long a canary lasts before it is promoted, at most 7 days. 0: an
	// operator does that.
	Hold time.Duration
	// Watch is for how long errors then bring the old version back, at most 1 h.
	Watch time.Duration
	// By is who wants it, cut at 64 bytes.
	By string
}

func (o Options) check() error {
	switch {
	case o.Canary < 0 || o.Canary > Whole:
		return fmt.Errorf("canary: %d hundredths of a percent, 0 to %d wanted", o.Canary, Whole)
	case o.Hold < 0 || o.Hold > maxHold:
		return fmt.Errorf("hold: %v, 0 to %v wanted", o.Hold, maxHold)
	case o.Watch < 0 || o.Watch > maxWatch:
		return fmt.Errorf("watch: %v, 0 to %v wanted", o.Watch, maxWatch)
	}
	return nil
}

// Begin begins to deploy a version. It fails with [ErrPinned], [ErrUnderWay],
// [ErrThird] when a worker has two others loaded, [ErrDeleting], and [ErrNothing] when
// the version is active. That the version is there must have been read after the
// deployment was: then nobody deletes it in between.
func (d *Deployment) Begin(to Ref, o Options, reports []Report) (*Deployment, error) {
	if err := d.idle(); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("deploy %s: %w", d.Model, err)
	}
	switch {
	case !validRef(to) || to == Ref{}:
		return nil, fmt.Errorf("deploy %s: %.64q, %.64q is no version", d.Model, to.Version, to.Digest)
	case to.same(d.Active):
		return nil, fmt.Errorf("deploy %s: %s is active: %w", d.Model, to.name(), ErrNothing)
	case to.same(d.Deleting):
		return nil, fmt.Errorf("deploy %s: %s: %w", d.Model, to.name(), ErrDeleting)
	}
	if worker, others := third(d.Model, to, reports); worker != "" {
		return nil, fmt.Errorf("deploy %s: worker %s has %s: %w", d.Model, worker, others, ErrThird)
	}
	return d.begin(to, o), nil
}

func (d *Deployment) begin(to Ref, o Options) *Deployment {
	return d.change(o.By, func(n *Deployment) {
		n.Serial++
		n.Phase, n.Next, n.Canary = Loading, to, o.Canary
		n.Hold, n.Watch, n.Reason = Duration(o.Hold), Duration(o.Watch), ""
		n.Refused = slices.DeleteFunc(n.Refused, to.same)
	})
}

// Promote gives Next another share; [Whole] makes it Active. While it is loading
// that becomes the share to begin with. [ErrNothing]: there is no Next, or it has
// the share.
func (d *Deployment) Promote(share int) (*Deployment, error) {
	if err := d.fresh(); err != nil {
		return nil, err
	}
	has := d.Share
	if d.Phase == Loading {
		has = d.Canary
	}
	switch {
	case share < 0 || share > Whole:
		return nil, fmt.Errorf("share of %s: %d hundredths of a percent, 0 to %d wanted", d.Model, share, Whole)
	case d.Next == Ref{}:
		return nil, fmt.Errorf("promote %s: no canary: %w", d.Model, ErrNothing)
	case share == has:
		return nil, fmt.Errorf("promote %s: %s has that share: %w", d.Model, d.Next.name(), ErrNothing)
	case d.Phase == Canary && share == Whole:
		return d.promote(d.By), nil
	}
	return d.change(d.By, func(n *Deployment) {
		if n.Canary = share; n.Phase == Canary {
			n.Share = share
		}
	}), nil
}

// Rollback takes Next back while there is one, and otherwise brings Previous back:
// at once while it is watched over, since it is loaded, else through loading. What
// is taken back before the watch is over is refused. [ErrNothing]: there is no
// Previous, or it is none of the registry, which only [Deployment.Undeploy] leads to.
func (d *Deployment) Rollback(reason, by string) (*Deployment, error) {
	if err := d.fresh(); err != nil {
		return nil, err
	}
	switch {
	case d.Pinned:
		return nil, fmt.Errorf("roll back %s: %w", d.Model, ErrPinned)
	case d.Phase == Loading || d.Phase == Canary:
		return d.refuse(reason, by), nil
	case d.Previous.same(d.Active) || d.Previous == Ref{}:
		return nil, fmt.Errorf("roll back %s: no previous version: %w", d.Model, ErrNothing)
	case d.Phase == Watching:
		return d.refuse(reason, by), nil
	}
	n := d.begin(d.Previous, Options{Canary: Whole, By: by})
	n.Reason = text(reason, maxReason)
	return n, nil
}

// Undeploy ends what is under way and takes the model out of service, except where
// workers have a version of their own. No version is kept to go back to, so that all
// can be deleted. [ErrNothing]: none is deployed.
func (d *Deployment) Undeploy(reason, by string) (*Deployment, error) {
	if err := d.fresh(); err != nil {
		return nil, err
	}
	switch {
	case d.Pinned:
		return nil, fmt.Errorf("undeploy %s: %w", d.Model, ErrPinned)
	case d.empty():
		return nil, fmt.Errorf("undeploy %s: no version is deployed: %w", d.Model, ErrNothing)
	}
	return d.change(by, func(n *Deployment) {
		n.end()
		n.Serial++
		n.Active, n.Previous, n.Reason = Ref{}, Ref{}, text(reason, maxReason)
	}), nil
}

// Pin keeps a deployment as it is, or no longer. What is under way must end first:
// [ErrUnderWay]. [ErrNothing]: it is so.
func (d *Deployment) Pin(on bool) (*Deployment, error) {
	if err := d.fresh(); err != nil {
		return nil, err
	}
	switch {
	case on == d.Pinned:
		return nil, fmt.Errorf("pin %s: %v already: %w", d.Model, on, ErrNothing)
	case on && d.Phase != Steady:
		return nil, d.underWay()
	}
	return d.change(d.By, func(n *Deployment) { n.Pinned = on }), nil
}

func (d *Deployment) idle() error {
	if err := d.fresh(); err != nil {
		return err
	}
	if d.Pinned {
		return fmt.Errorf("deploy %s: %w", d.Model, ErrPinned)
	}
	if d.Phase != Steady {
		return d.underWay()
	}
	return nil
}

func (d *Deployment) underWay() error {
	v := d.Next
	if d.Phase == Watching {
		v = d.Active
	}
	return fmt.Errorf("%s: %s of %s: %w", d.Model, d.Phase, v.name(), ErrUnderWay)
}

// fresh refuses to go on from a record whose time is not known.
func (d *Deployment) fresh() error {
	if d.since().IsZero() {
		return fmt.Errorf("deployment of %s was not read since it was written: %w", d.Model, ErrConflict)
	}
	return nil
}

// promote makes Next the active version.
func (d *Deployment) promote(by string) *Deployment {
	return d.change(by, func(n *Deployment) {
		n.Active, n.Previous, n.Next, n.Share = d.Next, d.Active, Ref{}, 0
		if n.Phase = Watching; n.Watch == 0 {
			n.end()
		}
	})
}

// refuse ends what is under way: the new version never serves again, unless an
// operator begins with it anew.
func (d *Deployment) refuse(reason, by string) *Deployment {
	return d.change(by, func(n *Deployment) {
		bad := d.Next
		if d.Phase == Watching {
			bad, n.Active = d.Active, d.Previous
		}
		n.Refused = slices.DeleteFunc(n.Refused, bad.same)
		n.Refused = slices.Insert(n.Refused, 0, bad)
		n.Refused = n.Refused[:min(len(n.Refused), maxRefused)]
		if n.Previous.same(bad) {
			n.Previous = n.Active
		}
		n.Reason = text(reason, maxReason)
		n.end()
	})
}

// end makes a deployment steady.
func (d *Deployment) end() {
	d.Phase, d.Next, d.Share, d.Canary, d.Hold, d.Watch, d.Baseline = Steady, Ref{}, 0, 0, 0, 0, nil
}
