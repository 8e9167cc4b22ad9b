package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// PartBytes is the size of a part of a file, all but the last one's.
const PartBytes = 8 << 20

const (
	// partPatience is how long a part may take beside a second for each MiB of it.
	partPatience = 30 * time.Second
	// senders is how many parts are on their way at once, and in memory.
	senders = 2
	// rounds is how often is asked what is missing and sent.
	rounds = 3
)

// Push stores the directory in files as the version that m names, whose Format,
// Files and Pushed it fills in, and returns what is stored. It makes the buckets
// when they are absent. What is no file that a model can have is [ErrMalformed]; the
// root of files decides where links lead. A digest in m must be that of the files,
// else [ErrChanged].
//
// Nothing is visible until all is stored. Parts that are stored already are not
// sent: a push that was interrupted is repeated to go on. The same version with
// the same files is there once and no error, with other files it is
// [ErrVersionTaken]. A full store is [ErrNoRoom]. p, which may be nil, is told how
// far it is; it must not block.
func (r *Registry) Push(ctx context.Context, files fs.FS, m Manifest, p func(Progress)) (*Manifest, error) {
	stored, err := r.push(ctx, files, m, p)
	if err != nil {
		return nil, fmt.Errorf("push %s: %w", m.name(), err)
	}
	return stored, nil
}

func (r *Registry) push(ctx context.Context, files fs.FS, m Manifest, p func(Progress)) (*Manifest, error) {
	digest, err := scan(ctx, files, &m)
	if err != nil {
		return nil, err
	}
	if m.Digest != "" && m.Digest != digest {
		return nil, fmt.Errorf("digest %s, of the files %s: %w", m.Digest, digest, ErrChanged)
	}
	m.Digest, m.Format = digest, manifestFormat
	if err := m.check(); err != nil {
		return nil, err
	}
	if err := r.Ensure(ctx); err != nil {
		return nil, err
	}
	var stored *Manifest
	err = r.locked(ctx, "push "+m.name(), func(ctx context.Context) error {
		if err := r.free(ctx, &m); err != nil {
			return err
		}
		if err := r.upload(ctx, files, &m, newMeter(m.Bytes(), p)); err != nil {
			return err
		}
		m.Pushed = time.Now().UTC()
		if stored, err = r.publish(ctx, &m); err != nil {
			return err
		}
		return r.withdraw(ctx, m.Model) // of a deletion that was interrupted
	})
	return stored, err
}

// free checks that nobody has the version with other files.
func (r *Registry) free(ctx context.Context, m *Manifest) error {
	was, err := r.Version(ctx, m.Model, m.Version)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case was.Digest != m.Digest:
		return fmt.Errorf("digest %s is stored, %s pushed: %w", was.Digest, m.Digest, ErrVersionTaken)
	}
	return nil
}

// upload stores the parts of a version that are not there.
func (r *Registry) upload(ctx context.Context, files fs.FS, m *Manifest, progress *meter) error {
	parts := m.parts()
	for round := range rounds + 1 {
		missing, room, err := r.incomplete(ctx, parts)
		if err != nil {
			return err
		}
		var wanted int64
		for _, p := range missing {
			wanted += p.size
		}
		if round == 0 {
			there := m.Bytes() - wanted
			progress.add(there, there)
		}
		switch {
		case len(missing) == 0:
			return nil
		case round == rounds:
			return fmt.Errorf("part %s of %s after %d rounds: %w", missing[0].sum, missing[0].file, rounds, ErrIncomplete)
		case room >= 0 && wanted > room:
			return fmt.Errorf("%d bytes to send, %d free: %w", wanted, room, ErrNoRoom)
		}
		if round > 0 {
			progress = newMeter(0, nil) // counted before
		}
		if err := r.send(ctx, files, missing, progress); err != nil {
			return err
		}
	}
	return nil
}

// send stores parts, some at a time.
func (r *Registry) send(ctx context.Context, files fs.FS, parts []part, progress *meter) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range min(senders, len(parts)) {
		g.Go(func() error {
			buffer := make([]byte, PartBytes)
			for i := next.Add(1) - 1; i < int64(len(parts)); i = next.Add(1) - 1 {
				p := parts[i]
				data, err := readPart(files, p, buffer)
				if err != nil {
					return err
				}
				err = repeat(ctx, patience(p), func(ctx context.Context) error { return r.put(ctx, p, data) })
				if full(err) {
					return fmt.Errorf("part of %d bytes of %s: %w: %w", p.size, p.file, ErrNoRoom, err)
				}
				if err != nil {
					return fmt.Errorf("send part %s of %s: %w", p.sum, p.file, err)
				}
				progress.add(p.size, 0)
			}
			return nil
		})
	}
	return g.Wait()
}

// publish makes the version visible, once. A record that cannot be read in its
// place is replaced.
func (r *Registry) publish(ctx context.Context, m *Manifest) (*Manifest, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(text) > recordBytes {
		return nil, fmt.Errorf("manifest has %d bytes, at most %d wanted", len(text), recordBytes)
	}
	var stored *Manifest
	err = repeat(ctx, partPatience, func(ctx context.Context) error {
		was, last, err := r.version(ctx, m.Model, m.Version)
		switch {
		case err == nil && was.Digest != m.Digest:
			return fmt.Errorf("digest %s is stored, %s pushed: %w", was.Digest, m.Digest, ErrVersionTaken)
		case err == nil:
			stored = was
			return nil
		case !errors.Is(err, ErrNotFound):
			return err
		}
		stored = m
		_, err = r.replace(ctx, r.versionSubject(m.Model, m.Version), text, last)
		return err
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}
