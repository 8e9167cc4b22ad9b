package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cellmq/cellmq/registry"
)

// deployments is what the commands that change deployments want of a registry.
type deployments interface {
	Deployments(ctx context.Context) (map[string]*registry.Deployment, time.Time, error)
	Reports(ctx context.Context) ([]registry.Report, error)
	Write(ctx context.Context, d *registry.Deployment) error
}

var _ deployments = (*registry.Registry)(nil)

// maxConflicts is how often a change is made anew because others were faster.
const maxConflicts = 10

// change changes the deployment of a model.
type change struct {
	registry deployments
	name     string
	anew     bool // a deployment that cannot be read counts as none
	known    bool // the model must be deployed or reported by a worker
}

// make writes what edit returns in place of the deployment that is there, and
// returns it; with an error of edit, what was there.
func (c *change) make(ctx context.Context, edit func(*registry.Deployment, []registry.Report) (*registry.Deployment, error)) (*registry.Deployment, error) {
	for n := 1; ; n++ {
		d, err := deploymentOf(ctx, c.registry, c.name, c.anew)
		if err != nil {
			return nil, err
		}
		reports, err := c.registry.Reports(ctx)
		if err != nil {
			return nil, err
		}
		if c.known && d.Revision == 0 && !reported(reports, c.name) {
			return nil, fmt.Errorf("model %s is neither deployed nor served: %w", c.name, registry.ErrNotFound)
		}
		next, err := edit(d, reports)
		if err != nil {
			return d, err
		}
		err = c.registry.Write(ctx, next)
		if !errors.Is(err, registry.ErrConflict) || n == maxConflicts {
			return next, err
		}
	}
}

// deploymentOf reads the deployment of a model, which may be none.
func deploymentOf(ctx context.Context, r deployments, name string, anew bool) (*registry.Deployment, error) {
	all, _, err := r.Deployments(ctx)
	var unreadable *registry.UnreadableError
	switch {
	case err == nil:
	case !errors.As(err, &unreadable):
		return nil, err
	default: // perhaps of other models only
		revision, bad := unreadable.Records[name]
		if bad && !anew {
			return nil, &registry.UnreadableError{Records: map[string]uint64{name: revision}}
		}
		if bad {
			d := registry.Undeployed(name)
			d.Revision = revision
			return d, nil
		}
	}
	return cmp.Or(all[name], registry.Undeployed(name)), nil
}

// reported says whether a worker reports a model.
func reported(reports []registry.Report, name string) bool {
	for i := range reports {
		for _, m := range reports[i].Models {
			if m.Model == name {
				return true
			}
		}
	}
	return false
}

// unchanged ends a command with an error of a change; that nothing is to be done
// is none.
func (o *deployOptions) unchanged(d *registry.Deployment, err error, s streams) error {
	if !errors.Is(err, registry.ErrNothing) {
		return err
	}
	if _, err := fmt.Fprintf(s.err, "cellmq: %v\n", err); err != nil {
		return err
	}
	return o.tell(d, s)
}

// told is what the commands that change a deployment tell programs of it.
type told struct {
	Model    string         `json:"model"`
	Serial   uint64         `json:"serial"`
	Phase    registry.Phase `json:"phase"`
	Active   registry.Ref   `json:"active"`
	Next     registry.Ref   `json:"next"`
	Previous registry.Ref   `json:"previous"`
	Share    int            `json:"share"` // of next, in hundredths of a percent
	Pinned   bool           `json:"pinned"`
	Reason   string         `json:"reason"`
}

// tell prints how a deployment stands.
func (o *deployOptions) tell(d *registry.Deployment, s streams) error {
	if o.json {
		return writeJSON(s.out, told{d.Model, d.Serial, d.Phase, d.Active, d.Next, d.Previous, d.Share, d.Pinned, d.Reason})
	}
	_, err := fmt.Fprintf(s.out, "%s: %s\n", d.Model, deploymentLine(d))
	return err
}

// pollEvery is how often a deployment is asked for while a command waits.
const pollEvery = 500 * time.Millisecond

// follow waits until the version that a deployment is about serves or is refused,
// or has a canary that only an operator ends. Without a version, or when nobody
// wants to wait, it prints the deployment.
func (o *deployOptions) follow(ctx context.Context, r deployments, d *registry.Deployment, to registry.Ref, s streams) error {
	if o.noWait || to == (registry.Ref{}) {
		return o.tell(d, s)
	}
	w := &follower{registry: r, name: d.Model, to: to, serial: d.Serial, streams: s}
	last, err := w.wait(ctx)
	if ctx.Err() != nil {
		why := "interrupted"
		if cause := context.Cause(ctx); errors.Is(cause, errLate) {
			why = cause.Error()
		}
		_, told := fmt.Fprintf(s.err, "cellmq: %s, the deployment of %s goes on ('cellmq model show %s' tells how)\n", why, d.Model, d.Model)
		if errors.Is(context.Cause(ctx), errLate) {
			return errors.Join(errReported, told)
		}
		return errors.Join(context.Cause(ctx), told)
	}
	if last != nil {
		err = errors.Join(err, o.tell(last, s))
	}
	return err
}

// follower follows one deployment.
type follower struct {
	registry deployments
	name     string
	to       registry.Ref
	serial   uint64
	streams  streams
	said     string

	rule registry.Rule // the last one that was seen
	seen time.Time     // and when first
}

// wait returns the deployment when it has ended, and why it ended badly.
func (w *follower) wait(ctx context.Context) (*registry.Deployment, error) {
	for {
		d, err := deploymentOf(ctx, w.registry, w.name, false)
		var reports []registry.Report
		if err == nil {
			reports, err = w.registry.Reports(ctx)
		}
		if err != nil {
			if ctx.Err() == nil {
				err = w.say(fmt.Sprintf("cannot ask, trying on: %v", err))
			}
			if err != nil {
				return nil, err
			}
		} else {
			holds := w.holds(d.Rule())
			ended, err := w.ended(d)
			if ended && (holds || err != nil) {
				return d, err
			}
			if !ended { // how it ended is said once
				if err := w.say(w.progress(d, reports)); err != nil {
					return nil, err
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pollEvery):
		}
	}
}

// ended says whether there is nothing left to wait for.
func (w *follower) ended(d *registry.Deployment) (bool, error) {
	is := func(r registry.Ref) bool { return r.Digest == w.to.Digest }
	switch {
	case d.Serial != w.serial:
		return true, fmt.Errorf("another deployment of %s has begun meanwhile", w.name)
	case d.Refuses(w.to):
		return true, fmt.Errorf("%s@%s is refused: %s", w.name, w.to.Version, shown(d.Reason))
	case d.Phase == registry.Steady && is(d.Active):
		return true, nil
	case d.Phase == registry.Canary && d.Hold == 0 && is(d.Next):
		return true, nil
	case !is(d.Active) && !is(d.Next):
		return true, fmt.Errorf("%s@%s is not deployed any longer: %s", w.name, w.to.Version, shown(d.Reason))
	}
	return false, nil
}

// holds says whether a rule that serves has taken effect, whatever the clocks of
// server and command are.
func (w *follower) holds(r registry.Rule) bool {
	if w.seen.IsZero() || r.Active != w.rule.Active || r.Next != w.rule.Next || r.Share != w.rule.Share {
		w.rule, w.seen = r, time.Now()
	}
	return time.Since(w.seen) >= registry.Lead
}

// progress tells what a deployment waits for.
func (w *follower) progress(d *registry.Deployment, reports []registry.Report) string {
	if d.Phase != registry.Loading {
		return deploymentLine(d)
	}
	workers, ready, waiting := 0, 0, ""
	for i := range reports {
		for _, m := range reports[i].Models {
			if m.Model != w.name {
				continue
			}
			workers++
			var has registry.VersionReport
			for _, v := range m.Versions {
				if v.Digest == w.to.Digest && m.Serial == w.serial {
					has = v
				}
			}
			if isReady(has.State) {
				ready++
			} else if waiting == "" {
				waiting = fmt.Sprintf(", %s: %s", reports[i].Worker, stateText(has))
			}
		}
	}
	if workers == 0 {
		return "loading: no worker reports the model"
	}
	return fmt.Sprintf("loading: %d of %d workers have it%s", ready, workers, waiting)
}

// isReady says whether a version of a state serves, or can at once.
func isReady(state string) bool { return state == registry.StateWarm || state == registry.StateLive }

// stateText is the state of a version on a worker, and why.
func stateText(v registry.VersionReport) string {
	if v.State == "" {
		return "has not begun"
	}
	return strings.TrimSuffix(shown(v.State)+": "+reasonText(v.Reason), ": ")
}

// say tells people something new.
func (w *follower) say(text string) error {
	if text == w.said {
		return nil
	}
	w.said = text
	_, err := fmt.Fprintf(w.streams.err, "%s: %s\n", w.name, text)
	return err
}
