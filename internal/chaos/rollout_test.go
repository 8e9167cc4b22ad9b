//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/registry"
)

// whole wants every version of a model that is listed to be one that was pushed,
// and fetches all of it. It returns them.
func (o *rollout) whole(model string) (listed []registry.Ref) {
	o.t.Helper()
	all, err := o.Versions(o.t.Context(), model)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, m := range all {
		ref := registry.Ref{Version: m.Version, Digest: m.Digest}
		if listed = append(listed, ref); o.refs[m.Model+"@"+m.Version] != ref {
			o.t.Errorf("%s@%s has digest %s, %s wanted", m.Model, m.Version, m.Digest, o.refs[m.Model+"@"+m.Version].Digest)
		}
		dir := filepath.Join(o.t.TempDir(), "fetched")
		if err := o.Fetch(o.t.Context(), m, dir, nil); err != nil {
			o.t.Error(err)
			continue
		}
		if sum, err := models.Digest(os.DirFS(dir)); err != nil || sum != m.Digest {
			o.t.Errorf("%s@%s was fetched with digest %s: %v", m.Model, m.Version, sum, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			o.t.Error(err)
		}
	}
	return listed
}

// converged waits until both workers serve a version and no other, and has it
// answer requests. A deployment that did not begin, begins.
func (o *rollout) converged(model string, ref registry.Ref) {
	o.t.Helper()
	if !eventually(o.t, model+"@"+ref.Version+" serves", func(ctx context.Context) error {
		all, _, err := o.Deployments(ctx)
		if errors.Is(err, registry.ErrMalformed) {
			o.t.Errorf("deployments do not decode: %v", err)
		}
		if err != nil {
			return err
		}
		d := all[model]
		switch {
		case d != nil && slices.Contains(d.Refused, ref):
			o.t.Errorf("%s@%s is refused: %s", model, ref.Version, d.Reason)
			return nil
		case d != nil && d.Phase != registry.Steady:
			return fmt.Errorf("phase %s, reason %q", d.Phase, d.Reason)
		case d == nil || d.Active != ref:
			output, err := o.run("deploy", model+"@"+ref.Version, "--watch", "0")
			return fmt.Errorf("not deployed: %w: %s", errors.Join(err, errors.New("again")), output)
		case time.Now().Before(d.Rule().From):
			return errors.New("requests go to it soon")
		}
		return o.agreed(ctx, d)
	}) {
		return
	}
	for range 8 {
		f, err := o.ask(model)
		if err != nil || f.Digest != ref.Digest || f.Version != ref.Version {
			o.t.Errorf("version %s of %s, digest %s, answered; %s wanted: %v", f.Version, model, f.Digest, ref, err)
		}
	}
}

// agreed wants both workers to report what a deployment says: the active version is
// in memory, and every other one leaves.
func (o *rollout) agreed(ctx context.Context, d *registry.Deployment) error {
	reports, err := o.Reports(ctx)
	if err != nil {
		return err
	}
	ready := 0
	for _, r := range reports {
		for _, m := range r.Models {
			if m.Model != d.Model || m.Serial != d.Serial {
				continue
			}
			for _, v := range m.Versions {
				if v.State != registry.StateLive && v.State != registry.StateWarm {
					continue
				}
				if v.Ref != d.Active {
					return fmt.Errorf("worker %s has %v, which is %s", r.Worker, v.Ref, v.State)
				}
				ready++
			}
		}
	}
	if ready != len(o.workers) {
		return fmt.Errorf("%d workers serve %v of serial %d: %+v", ready, d.Active, d.Serial, reports)
	}
	return nil
}

// ask has a model answer.
func (o *rollout) ask(model string) (broker.Frame, error) {
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	o.sent++
	s, err := o.sender.Request(ctx, model, broker.RequestOptions{
		ID: fmt.Sprintf("rollout%06d", o.sent), Input: broker.Input{Text: "4 5 6"}, Params: broker.Params{MaxTokens: ptr(4)},
	})
	if err != nil {
		return broker.Frame{}, err
	}
	out := &outcome{}
	err = out.read(s, nil)
	return out.final, errors.Join(err, out.check(broker.ModeStream))
}

// clean looks for what is left of what was killed, once it is old.
func (o *rollout) clean() {
	o.t.Helper()
	long := time.Now().Add(-24 * time.Hour)
	left := 0
	for i, cache := range o.caches {
		for _, dir := range o.fetches(cache) {
			left++
			if err := os.Chtimes(dir, long, long); err != nil {
				o.t.Error(err)
			}
		}
		w := o.workers[i]
		if err := errors.Join(w.kill(), w.start(o.t.Context()), w.serving()); err != nil {
			o.t.Fatal(err)
		}
		if dirs := o.fetches(cache); len(dirs) > 0 {
			o.t.Errorf("left of fetches: %v", dirs)
		}
		o.cached(cache)
	}
	// Nothing else holds the lock of the push that was killed.
	r, err := registry.New(registry.Config{Conn: o.nc, Spare: time.Nanosecond, Stale: 6 * time.Second})
	if err != nil {
		o.t.Fatal(err)
	}
	freed, err := r.Sweep(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Logf("%d fetches had not ended; the sweep freed %d bytes", left, freed)
	if freed == 0 {
		o.t.Error("the sweep freed nothing")
	}
	all, err := o.Versions(o.t.Context(), "")
	if err != nil || len(all) != len(o.refs) {
		o.t.Errorf("%d versions are listed, %d were pushed: %v", len(all), len(o.refs), err)
	}
	parts := map[string]bool{}
	for _, m := range all {
		for _, f := range m.Files {
			for _, p := range f.Parts {
				parts[p] = true
			}
		}
	}
	if records, chunks := o.stored(); records != len(parts) || chunks != len(parts) {
		o.t.Errorf("%d records and the chunks of %d parts, %d parts wanted", records, chunks, len(parts))
	}
	for _, model := range o.bigs {
		o.whole(model)
	}
}

func (o *rollout) fetches(cache string) []string {
	o.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(cache, registry.FetchPrefix+"*"))
	if err != nil {
		o.t.Fatal(err)
	}
	return dirs
}

// cached wants the versions in a cache to be whole.
func (o *rollout) cached(cache string) {
	o.t.Helper()
	entries, err := os.ReadDir(cache)
	if err != nil || len(entries) == 0 {
		o.t.Errorf("%d versions in the cache: %v", len(entries), err)
	}
	for _, e := range entries {
		if sum, err := models.Digest(os.DirFS(filepath.Join(cache, e.Name()))); err != nil || sum != e.Name() {
			o.t.Errorf("%s in the cache has digest %s: %v", e.Name(), sum, err)
		}
	}
}

// stored counts the records of parts on the server, and the parts that have chunks.
func (o *rollout) stored() (records, chunks int) {
	o.t.Helper()
	js, err := jetstream.New(o.nc)
	if err != nil {
		o.t.Fatal(err)
	}
	s, err := js.Stream(o.t.Context(), "OBJ_CELLMQ_MODELS")
	if err != nil {
		o.t.Fatal(err)
	}
	info, err := s.Info(o.t.Context(), jetstream.WithSubjectFilter("$O.CELLMQ_MODELS.>"))
	if err != nil {
		o.t.Fatal(err)
	}
	for subject := range info.State.Subjects {
		if strings.HasPrefix(subject, "$O.CELLMQ_MODELS.C.") {
			chunks++
		} else {
			records++
		}
	}
	return records, chunks
}
