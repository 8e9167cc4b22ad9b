package registry

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Sweep removes parts that no version names and that are older than
// [Config].Spare, and says how many bytes that freed. Deployments of models without
// a version go too, as far as nobody can read them or they say nothing for that long.
func (r *Registry) Sweep(ctx context.Context) (freed int64, err error) {
	if _, err := r.store(ctx); err != nil {
		return 0, fmt.Errorf("sweep: %w", err)
	}
	err = r.locked(ctx, "sweep", func(ctx context.Context) error {
		_, _, now, err := r.holder(ctx)
		if err != nil {
			return err
		}
		removed, err := r.clear(ctx, now.Add(-r.cfg.Spare))
		if removed > 0 {
			r.log.LogAttrs(ctx, slog.LevelInfo, "deployments of no model removed", slog.Int("count", removed))
		}
		if err != nil {
			return err
		}
		freed, err = r.sweep(ctx, nil)
		return err
	})
	if err != nil {
		return freed, fmt.Errorf("sweep: %w", err)
	}
	return freed, nil
}

// sweeper is one sweep.
type sweeper struct {
	r     *Registry
	named map[string]bool // parts of versions
	gone  map[string]bool // parts that need not be old
	kept  map[string]bool // chunk subjects that stay
	until time.Time       // what is stored later is spared
}

// sweep needs the lock. Parts of gone go at once, unless a version names them.
func (r *Registry) sweep(ctx context.Context, gone []part) (freed int64, err error) {
	_, _, now, err := r.holder(ctx) // the lock is renewed all the time: the server's clock
	if err != nil {
		return 0, err
	}
	s := &sweeper{r: r, gone: map[string]bool{}, kept: map[string]bool{}, until: now.Add(-r.cfg.Spare)}
	for _, p := range gone {
		s.gone[p.sum] = true
	}
	if s.named, err = r.namedParts(ctx); err != nil {
		return 0, err
	}
	before, err := r.look(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.records(ctx); err != nil {
		return 0, err
	}
	if err := s.orphans(ctx, before.chunks); err != nil {
		return 0, err
	}
	after, err := r.look(ctx)
	if err != nil {
		return 0, err
	}
	return max(0, int64(before.bytes)-int64(after.bytes)), nil
}

// namedParts are the parts of all versions. A version of a later cellmq, which may
// have any, makes it fail. What else cannot be read names none: no push wrote it.
func (r *Registry) namedParts(ctx context.Context) (map[string]bool, error) {
	named := map[string]bool{}
	later := map[string]error{} // by subject; nil: a record of it can be read
	err := r.each(ctx, r.recordStream(), "$KV."+r.models+".version.>", func(subject string, _ uint64, _ time.Time, data []byte) error {
		model, version, _ := r.versionOf(subject)
		m, err := parseManifest(data, model, version)
		_, known := later[subject]
		switch {
		case err == nil:
			later[subject] = nil
			for _, p := range m.parts() {
				named[p.sum] = true
			}
		case !known && isLater(data, manifestFormat):
			later[subject] = fmt.Errorf("version %s: %w", versionName(model, version), err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, err := range later {
		if err != nil {
			return nil, err
		}
	}
	return named, nil
}

// records purges the records of parts, and their chunks behind them.
func (s *sweeper) records(ctx context.Context) error {
	prefix := "$O." + s.r.models + ".M."
	return s.r.each(ctx, s.r.storeStream(), prefix+">", func(subject string, _ uint64, at time.Time, data []byte) error {
		name, err := base64.URLEncoding.DecodeString(strings.TrimPrefix(subject, prefix))
		sum := string(name)
		if err != nil {
			sum = "" // not one that a push has written
		}
		meta := s.r.readMeta(data, sum)
		if s.named[sum] || !s.gone[sum] && at.After(s.until) {
			if meta != nil {
				s.kept[s.r.chunkSubject(meta.NUID)] = true
			}
			return nil
		}
		if err := s.r.purge(ctx, s.r.storeStream(), subject); err != nil || meta == nil {
			return err
		}
		return s.r.purge(ctx, s.r.storeStream(), s.r.chunkSubject(meta.NUID))
	})
}

// orphans purges chunks that no record names.
func (s *sweeper) orphans(ctx context.Context, chunks map[string]uint64) error {
	for subject := range chunks {
		if s.kept[subject] {
			continue
		}
		m, err := s.r.request(ctx, jetstream.DefaultAPIPrefix+"DIRECT.GET."+s.r.storeStream()+"."+subject, nil)
		if err != nil {
			return err
		}
		if m.Header.Get(headerStatus) != "" {
			continue // gone with its record
		}
		at, err := time.Parse(time.RFC3339Nano, m.Header.Get(headerStamp))
		if err != nil {
			return fmt.Errorf("time in the server's answer: %w", err)
		}
		if at.After(s.until) {
			continue
		}
		if err := s.r.purge(ctx, s.r.storeStream(), subject); err != nil {
			return err
		}
	}
	return nil
}

// purge removes all messages of a subject, or those that the options say.
func (r *Registry) purge(ctx context.Context, stream, subject string, o ...jetstream.StreamPurgeOpt) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	s, err := r.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	return s.Purge(ctx, append(o, jetstream.WithPurgeSubject(subject))...)
}
