package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// batchRecords and batchBytes bound what the server sends at once.
const (
	batchRecords = 1024
	batchBytes   = 8 << 20
)

// Versions returns the versions of a model, or of all models for "", by model and
// then by when they were pushed. A record that cannot be read is none.
func (r *Registry) Versions(ctx context.Context, model string) ([]*Manifest, error) {
	if model != "" && !validModel(model) {
		return nil, fmt.Errorf("model name %.64q, 1 to %d of a-z, 0-9 and - wanted", model, maxModelName)
	}
	all, _, err := r.manifests(ctx, "$KV."+r.models+".version."+cmp.Or(model, "*")+".*")
	if err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *Manifest) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), a.Pushed.Compare(b.Pushed), cmp.Compare(a.Version, b.Version))
	}), nil
}

// Version returns a version of a model, [ErrNotFound] when there is none.
func (r *Registry) Version(ctx context.Context, model, version string) (*Manifest, error) {
	m, _, err := r.version(ctx, model, version)
	return m, err
}

// version also returns the sequence of the last record of the key, which differs
// from the manifest's when others wrote over it; 0: there is none.
func (r *Registry) version(ctx context.Context, model, version string) (*Manifest, uint64, error) {
	if !validModel(model) || version == "" || !printable(version, maxTextBytes) {
		return nil, 0, fmt.Errorf("%.64q, %.64q: no version of a model: %w", model, version, ErrNotFound)
	}
	subject := r.versionSubject(model, version)
	all, last, err := r.manifests(ctx, subject)
	if err != nil {
		return nil, 0, fmt.Errorf("read version %s: %w", versionName(model, version), err)
	}
	m := all[subject]
	if m == nil {
		return nil, last, fmt.Errorf("version %s: %w", versionName(model, version), ErrNotFound)
	}
	return m, last, nil
}

// manifests reads the manifests of a subject with wildcards, by subject, and the
// last sequence read. The first record of a key that can be read is its manifest,
// since none is ever written over: what comes after it is somebody else's.
func (r *Registry) manifests(ctx context.Context, subject string) (all map[string]*Manifest, last uint64, err error) {
	all = map[string]*Manifest{}
	err = r.each(ctx, "KV_"+r.models, subject, func(subject string, seq uint64, _ time.Time, data []byte) error {
		last = seq
		model, version, ok := r.versionOf(subject)
		if !ok || all[subject] != nil {
			return nil
		}
		if m, err := parseManifest(data, model, version); err == nil {
			all[subject] = m
		}
		return nil
	})
	return all, last, err
}

// each hands all messages of a subject with wildcards to take, oldest first.
func (r *Registry) each(ctx context.Context, stream, subject string, take takeFunc) error {
	return r.eachFrom(ctx, stream, subject, 1, take)
}

// eachFrom begins with a sequence. However many there are, an answer has a bounded
// number of them. One that is stored meanwhile comes last, so what was the last
// message of a subject when it began, or a later one of it, is always among them.
func (r *Registry) eachFrom(ctx context.Context, stream, subject string, from uint64, take takeFunc) error {
	for {
		next := from
		ask := fmt.Sprintf(`{"seq":%d,"next_by_subj":%q,"batch":%d,"max_bytes":%d}`, from, subject, batchRecords, batchBytes)
		left, err := r.batch(ctx, stream, ask, func(subject string, seq uint64, at time.Time, data []byte) error {
			next = seq + 1
			return take(subject, seq, at, data)
		})
		if err != nil || left == 0 || next == from {
			return err
		}
		from = next
	}
}

// replace stores a message whose subject's last one has a sequence, 0 for none,
// and returns its own; without data it deletes the key. [ErrConflict] when the last is another. An error of the
// connection leaves open whether it is stored.
func (r *Registry) replace(ctx context.Context, subject string, data []byte, last uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	m := &nats.Msg{Subject: subject, Data: data}
	if len(data) == 0 {
		m.Header = nats.Header{headerOperation: {operationDelete}}
	}
	ack, err := r.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(last))
	var refused *jetstream.APIError
	switch {
	case err == nil:
		return ack.Sequence, nil
	case errors.As(err, &refused) && refused.ErrorCode == apiWrongLast:
		return 0, ErrConflict
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return 0, ErrNoRegistry
	}
	return 0, err
}
