package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// maxConflicts is how often a change is made anew because others were faster.
const maxConflicts = 10

// Delete removes a version and the parts that no other one names. A version that
// serves, or soon may, stays ([ErrLive]), one that only a worker has loaded for the
// time being ([ErrHeld]), and so does any of a model whose deployment is pinned ([ErrPinned]) or cannot be read (an
// [UnreadableError]). One that is only kept to go back to is no longer.
//
// While it is deleted the deployment says so, so that nobody begins to deploy it.
// The last version of a model that is not deployed takes the deployment with it.
func (r *Registry) Delete(ctx context.Context, model, version string) error {
	if _, err := r.store(ctx); err != nil {
		return fmt.Errorf("delete %s: %w", versionName(model, version), err)
	}
	err := r.locked(ctx, "delete "+versionName(model, version), func(ctx context.Context) error {
		m, last, err := r.version(ctx, model, version)
		if last == 0 || err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		return r.remove(ctx, model, version, m)
	})
	if err != nil {
		return fmt.Errorf("delete %s: %w", versionName(model, version), err)
	}
	return nil
}

// remove needs the lock. M is nil for a record that cannot be read, which nobody can
// have deployed or loaded.
func (r *Registry) remove(ctx context.Context, model, version string, m *Manifest) error {
	var gone []part
	if m != nil {
		if err := r.announce(ctx, m); err != nil {
			return err
		}
		gone = m.parts()
	}
	if err := r.purge(ctx, r.recordStream(), r.versionSubject(model, version)); err != nil {
		return err
	}
	if _, err := r.sweep(ctx, gone); err != nil {
		return err
	}
	return r.withdraw(ctx, model)
}

// announce writes into the deployment that a version is being deleted. From then on
// nobody can begin to deploy it: who has read the deployment before must read it
// again.
func (r *Registry) announce(ctx context.Context, m *Manifest) error {
	return r.redo(func() error {
		d, err := r.deployment(ctx, m.Model)
		if err != nil {
			return err
		}
		reports, err := r.Reports(ctx)
		if err != nil {
			return err
		}
		next, err := d.deleting(Ref{Version: m.Version, Digest: m.Digest}, reports)
		if err != nil {
			return err
		}
		return r.Write(ctx, next)
	})
}

// withdraw ends what announce began, by whoever that was: it needs the lock. A
// deployment that says nothing goes when the model has no versions, or had none
// deployed.
func (r *Registry) withdraw(ctx context.Context, model string) error {
	return r.redo(func() error {
		d, err := r.deployment(ctx, model)
		if errors.Is(err, ErrMalformed) {
			return nil // which says nothing of it
		}
		if err != nil || d.Revision == 0 || d.Deleting == (Ref{}) && d.Serial == 0 {
			return err
		}
		if d.empty() {
			models, err := r.pushedModels(ctx, model)
			if err != nil {
				return err
			}
			if d.Serial == 0 || !models[model] {
				_, err := r.replace(ctx, r.deploySubject(model), nil, d.Revision)
				return err
			}
		}
		if d.Deleting == (Ref{}) {
			return nil
		}
		return r.Write(ctx, d.change(d.By, func(n *Deployment) { n.Deleting = Ref{} }))
	})
}

// redo does something again as long as others are faster.
func (r *Registry) redo(do func() error) error {
	for n := 1; ; n++ {
		if err := do(); n == maxConflicts || !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// deployment reads the deployment of a model, which may be none. One that cannot be
// read is an [UnreadableError].
func (r *Registry) deployment(ctx context.Context, model string) (*Deployment, error) {
	all, _, err := r.Deployments(ctx)
	var unreadable *UnreadableError
	if errors.As(err, &unreadable) {
		if last, bad := unreadable.Records[model]; bad {
			return nil, &UnreadableError{Records: map[string]uint64{model: last}}
		}
		err = nil
	}
	if err != nil {
		return nil, err
	}
	if d := all[model]; d != nil {
		return d, nil
	}
	return Undeployed(model), nil
}

// pushedModels are the models that have a version, readable or not, of one model or
// of all for "*".
func (r *Registry) pushedModels(ctx context.Context, model string) (map[string]bool, error) {
	there := map[string]bool{} // by subject
	prefix := "$KV." + r.models + ".version."
	err := r.each(ctx, r.recordStream(), prefix+model+".*", func(subject string, _ uint64, _ time.Time, data []byte) error {
		there[subject] = len(data) > 0
		return nil
	})
	all := map[string]bool{}
	for subject, is := range there {
		if is {
			name, _, _ := strings.Cut(strings.TrimPrefix(subject, prefix), ".")
			all[name] = true
		}
	}
	return all, err
}

// deleting says that a version is being deleted, if it may be.
func (d *Deployment) deleting(v Ref, reports []Report) (*Deployment, error) {
	if err := d.fresh(); err != nil {
		return nil, err
	}
	roles := []struct {
		name string
		is   Ref
	}{{"active", d.Active}, {"next", d.Next}}
	if d.Phase == Watching {
		roles = append(roles, struct {
			name string
			is   Ref
		}{"previous", d.Previous})
	}
	if d.Pinned {
		return nil, fmt.Errorf("deployment of %s: %w", d.Model, ErrPinned)
	}
	for _, role := range roles {
		if role.is.same(v) {
			return nil, fmt.Errorf("%s of the deployment: %w", role.name, ErrLive)
		}
	}
	if workers := holders(d.Model, v, reports); len(workers) > 0 {
		return nil, fmt.Errorf("workers %s: %w", strings.Join(workers[:min(len(workers), 8)], ", "), ErrHeld)
	}
	return d.change(d.By, func(n *Deployment) {
		if n.Deleting = v; n.Previous.same(v) {
			n.Previous = n.Active
		}
	}), nil
}

// empty says whether nothing is deployed, kept to go back to, or pinned.
func (d *Deployment) empty() bool {
	return d.Phase == Steady && !d.Pinned && d.Active == (Ref{}) && d.Previous == (Ref{})
}

// holders are the workers that have a version loaded, and in which state.
func holders(model string, v Ref, reports []Report) []string {
	var workers []string
	for i := range reports {
		if m := reports[i].model(model); m != nil {
			if has := m.version(v); has != nil && holds(has.State) {
				workers = append(workers, fmt.Sprintf("%.64s (%.16s)", reports[i].Worker, has.State))
			}
		}
	}
	return workers
}

// holds says whether a version of a state is in a worker's memory, or soon will be.
func holds(state string) bool {
	switch state {
	case "", "absent", "cold", "failed", "freed":
		return false
	}
	return true
}

// leftover is what a key of a deployment has.
type leftover struct {
	last  uint64
	at    time.Time
	keep  bool
	stale Ref // a version whose deletion has ended
}

// clear removes the deployments that say nothing, of models without a version:
// those without a record that can be read, and those that are older than a time. It
// needs the lock.
func (r *Registry) clear(ctx context.Context, until time.Time) (removed int, err error) {
	keys := map[string]leftover{}
	prefix := r.deploySubject("")
	err = r.each(ctx, r.recordStream(), prefix+">", func(subject string, seq uint64, at time.Time, data []byte) error {
		k := leftover{last: seq, at: at, keep: keys[subject].keep, stale: keys[subject].stale}
		if d := readDeployment(strings.TrimPrefix(subject, prefix), seq, at, data); d != nil {
			k.keep, k.stale = !d.empty() || at.After(until), d.Deleting
		} else if isLater(data, deploymentFormat) {
			k.keep = true
		}
		keys[subject] = k
		return nil
	})
	if err != nil {
		return 0, err
	}
	pushed, err := r.pushedModels(ctx, "*")
	if err != nil {
		return 0, err
	}
	for subject, k := range keys {
		model := strings.TrimPrefix(subject, prefix)
		switch {
		case k.stale != (Ref{}):
			err = r.withdraw(ctx, model)
		case !k.keep && !pushed[model]:
			removed++
			err = r.purge(ctx, r.recordStream(), subject, jetstream.WithPurgeSequence(k.last+1))
		}
		if err != nil {
			return removed, fmt.Errorf("deployment of %.64q: %w", model, err)
		}
	}
	return removed, nil
}
