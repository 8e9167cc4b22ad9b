package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// UnreadableError says that models have a deployment of which no record can be
// read: somebody else wrote over all that the server keeps, or the last one is of a
// later format. It is an [ErrMalformed].
type UnreadableError struct {
	// Records are the last records' revisions by model. To begin anew, write a
	// deployment with that revision.
	Records map[string]uint64
}

// Error names up to 8 models.
func (e *UnreadableError) Error() string {
	names := slices.Sorted(maps.Keys(e.Records))
	return fmt.Sprintf("deployments of %d models cannot be read: %.64q", len(names), names[:min(len(names), 8)])
}

// Unwrap is for errors.Is.
func (e *UnreadableError) Unwrap() error { return ErrMalformed }

// maxHeals is how many records are written again with one reading.
const maxHeals = 4

// Deployments returns the deployments of all models, and when it asked for them.
// Nobody else has them, so they may be changed; nobody may change the records of an
// [UnreadableError]. With one the deployments are those of all other models; with
// another error there are none.
//
// A record that cannot be read counts as none: the last good one holds, and is
// written again over it, for a few models at a time. That of a later format is not
// written over, and neither is what has no good record.
func (r *Registry) Deployments(ctx context.Context) (map[string]*Deployment, time.Time, error) {
	asked := time.Now()
	v, err := r.lookAtDeployments(ctx)
	if err != nil {
		return nil, asked, fmt.Errorf("read deployments: %w", err)
	}
	all := make(map[string]*Deployment, len(v.good))
	for model, c := range v.good {
		all[model] = c.copy()
	}
	r.seen.Store(r.heal(ctx, v, all))
	if len(v.unreadable) > 0 {
		return all, asked, fmt.Errorf("read deployments: %w", &UnreadableError{Records: v.unreadable})
	}
	return all, asked, nil
}

// Write stores a deployment in place of the one that it was made of, and sets its
// revision. [ErrConflict]: there is another by now, read it and look again. After
// another error it may be stored or not, which reading tells too.
func (r *Registry) Write(ctx context.Context, d *Deployment) error {
	b, err := d.encode()
	if err == nil {
		var seq uint64
		if seq, err = r.replace(ctx, r.deploySubject(d.Model), b, d.Revision); err == nil {
			d.Revision = seq
		}
	}
	if errors.Is(err, ErrConflict) {
		r.seen.Store(nil) // it was another than the one that was read
	}
	if err != nil {
		return fmt.Errorf("write deployment of %.64s: %w", d.Model, err)
	}
	return nil
}

// readDeployment reads a record. An empty one, which is how a key is deleted, is
// that of a model without.
func readDeployment(model string, seq uint64, at time.Time, data []byte) *Deployment {
	if !validModel(model) {
		return nil
	}
	d := Undeployed(model)
	if len(data) > 0 {
		var err error
		if d, err = parseDeployment(data, model); err != nil {
			return nil
		}
	}
	d.Revision, d.Stored = seq, at
	return d
}

// isLater says whether a record is one of a later format than that.
func isLater(data []byte, format int) bool {
	var record struct {
		Format int `json:"format"`
	}
	return len(data) <= recordBytes && json.Unmarshal(data, &record) == nil && record.Format > format
}

// heal writes some records again over what somebody else wrote over them, unless
// others do, and returns the view with those that it could not write. They hold
// either way.
func (r *Registry) heal(ctx context.Context, v *view, all map[string]*Deployment) *view {
	var tried []string
	for _, model := range v.toHeal(maxHeals) {
		n := v.good[model].copy()
		n.Stored = time.Time{}
		err := r.Write(ctx, n)
		switch {
		case err == nil:
			all[model].Revision = n.Revision
		case ctx.Err() != nil:
			return v
		case !errors.Is(err, ErrConflict):
			tried = append(tried, model)
			r.log.LogAttrs(ctx, slog.LevelWarn, "deployment not written again over a malformed record", slog.String("model", model), slog.Any("error", err))
		}
	}
	if len(tried) > 0 {
		return v.triedTo(tried)
	}
	return v
}

func (r *Registry) deploySubject(model string) string { return "$KV." + r.models + ".deploy." + model }

func (r *Registry) recordStream() string { return "KV_" + r.models }
