package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// deployed is what a deletion wants to know of a deployment.
type deployed struct {
	Format                 int
	Model                  string
	Active, Next, Previous struct{ Digest string }
	Pinned                 bool
}

// loaded is what a deletion wants to know of a worker's report.
type loaded struct {
	Models []struct {
		Model    string
		Versions []struct{ Digest, State string }
	}
}

// unused checks that a version is neither deployed nor loaded.
func (r *Registry) unused(ctx context.Context, m *Manifest) error {
	if err := r.notDeployed(ctx, m); err != nil {
		return err
	}
	var workers []string
	prefix := "$KV." + r.workers + "."
	err := r.each(ctx, "KV_"+r.workers, prefix+"*", func(subject string, _ uint64, _ time.Time, data []byte) error {
		var report loaded
		if len(data) <= reportBytes && json.Unmarshal(data, &report) != nil {
			report = loaded{} // not one of a worker
		}
		for _, model := range report.Models {
			for _, v := range model.Versions {
				if model.Model == m.Model && v.Digest == m.Digest && holds(v.State) && len(workers) < 8 {
					workers = append(workers, fmt.Sprintf("%.64s (%.16s)", strings.TrimPrefix(subject, prefix), v.State))
				}
			}
		}
		return nil
	})
	if err == nil && len(workers) > 0 {
		err = fmt.Errorf("workers %s: %w", strings.Join(workers, ", "), ErrLive)
	}
	return err
}

// holds says whether a version of a state is in a worker's memory, or soon will be.
func holds(state string) bool {
	switch state {
	case "", "absent", "cold", "failed", "freed":
		return false
	}
	return true
}

// notDeployed checks the model's deployment, the last record that can be read.
func (r *Registry) notDeployed(ctx context.Context, m *Manifest) error {
	var d deployed
	err := r.each(ctx, "KV_"+r.models, "$KV."+r.models+".deploy."+m.Model, func(_ string, _ uint64, _ time.Time, data []byte) error {
		var record deployed
		if len(data) <= recordBytes && json.Unmarshal(data, &record) == nil && record.Format > 0 && record.Model == m.Model {
			d = record
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case d.Pinned:
		return fmt.Errorf("deployment of %s: %w", m.Model, ErrPinned)
	}
	for role, digest := range map[string]string{"active": d.Active.Digest, "next": d.Next.Digest, "previous": d.Previous.Digest} {
		if digest == m.Digest {
			return fmt.Errorf("%s of the deployment: %w", role, ErrLive)
		}
	}
	return nil
}
