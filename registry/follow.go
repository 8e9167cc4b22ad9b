package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// Deployments returns the deployments of all models, and when it asked for them.
// Nobody else has them, so they may be changed. With an [UnreadableError] they are
// those of all other models; with another error there are none.
//
// A record that cannot be read counts as none: the last good one holds, and is
// written again over it. That of a later format is not written over.
func (r *Registry) Deployments(ctx context.Context) (map[string]*Deployment, time.Time, error) {
	asked := time.Now()
	all, bad, later := map[string]*Deployment{}, map[string]uint64{}, map[string]bool{}
	ask := fmt.Sprintf(`{"multi_last":[%q],"batch":%d}`, r.deploySubject("*"), batchRecords)
	err := r.batch(ctx, r.recordStream(), ask, func(subject string, seq uint64, at time.Time, data []byte) error {
		model := strings.TrimPrefix(subject, r.deploySubject(""))
		if d := readDeployment(model, seq, at, data); d != nil {
			all[model] = d
		} else if validModel(model) {
			bad[model], later[model] = seq, isLater(data)
		}
		return nil
	})
	if err != nil {
		return nil, asked, fmt.Errorf("read deployments: %w", err)
	}
	for model, seq := range bad {
		if later[model] {
			continue
		}
		d, err := r.lastGood(ctx, model)
		if err != nil {
			return nil, asked, fmt.Errorf("read deployment of %s: %w", model, err)
		}
		if d == nil {
			continue
		}
		delete(bad, model)
		all[model] = r.heal(ctx, d, seq)
	}
	if len(bad) > 0 {
		return all, asked, fmt.Errorf("read deployments: %w", &UnreadableError{Records: bad})
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

// isLater says whether a record is one of a later format.
func isLater(data []byte) bool {
	var record struct {
		Format int `json:"format"`
	}
	return len(data) <= recordBytes && json.Unmarshal(data, &record) == nil && record.Format > deploymentFormat
}

// lastGood returns the last record of a model that can be read, nil if there is
// none.
func (r *Registry) lastGood(ctx context.Context, model string) (last *Deployment, err error) {
	err = r.each(ctx, r.recordStream(), r.deploySubject(model), func(_ string, seq uint64, at time.Time, data []byte) error {
		if d := readDeployment(model, seq, at, data); d != nil {
			last = d
		}
		return nil
	})
	return last, err
}

// heal writes a record again over what somebody else wrote over it, unless others
// do. What it returns is valid either way.
func (r *Registry) heal(ctx context.Context, d *Deployment, revision uint64) *Deployment {
	n := d.over(revision)
	if err := r.Write(ctx, n); err != nil && !errors.Is(err, ErrConflict) {
		r.log.WarnContext(ctx, "deployment not written again over a malformed record", "model", d.Model, "error", err)
	}
	n.Stored = d.Stored // its rule does not need it
	return n
}

func (r *Registry) deploySubject(model string) string { return "$KV." + r.models + ".deploy." + model }

func (r *Registry) recordStream() string { return "KV_" + r.models }
