package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nuid"
)

// Bounds of the lock's record, bytes.
const (
	maxLockBytes = 1 << 10
	maxOwner     = 128
	maxPurpose   = 192
)

// lockRecord is who changes the registry. Without an owner it is free.
type lockRecord struct {
	Owner   string `json:"owner"`
	Purpose string `json:"purpose"`
	Beat    uint64 `json:"beat"`
}

// lock is a lock that is held. It belongs to the goroutine that renews it.
type lock struct {
	r        *Registry
	owner    string
	record   lockRecord
	revision uint64
	renewed  time.Time // when the last renewal that succeeded was sent
}

func (r *Registry) lockSubject() string { return "$KV." + r.models + ".lock" }

// locked calls do while nobody else changes the registry. It waits for who does.
// The context of do ends with [ErrLost] when the lock is lost.
func (r *Registry) locked(ctx context.Context, purpose string, do func(ctx context.Context) error) error {
	l, err := r.lock(ctx, purpose)
	if err != nil {
		return fmt.Errorf("lock the registry: %w", err)
	}
	work, cancel := context.WithCancelCause(ctx)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		l.keep(work, stop, cancel)
	}()
	err = do(work)
	if lost := context.Cause(work); errors.Is(lost, ErrLost) && err != nil {
		err = errors.Join(lost, err)
	}
	close(stop)
	<-stopped
	cancel(nil)
	l.release(ctx)
	return err
}

// lock takes the lock when it is free or has not changed for as long as the
// configuration says, by the clock of this process.
func (r *Registry) lock(ctx context.Context, purpose string) (*lock, error) {
	name := owner()
	l := &lock{r: r, owner: name, record: lockRecord{Owner: name, Purpose: clip(purpose, maxPurpose)}}
	w := waiter{lock: l}
	told := false
	for {
		taken := false
		err := repeat(ctx, r.cfg.Timeout, func(ctx context.Context) (err error) {
			taken, err = w.try(ctx)
			return err
		})
		if err != nil || taken {
			return l, err
		}
		if !told {
			told = true
			r.log.LogAttrs(ctx, slog.LevelInfo, "waiting for who changes the registry", holderAttrs(w.held)...)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(r.cfg.Stale / 30):
		}
	}
}

// waiter waits for a lock.
type waiter struct {
	lock  *lock
	held  *lockRecord
	last  uint64    // sequence of the record, 0 for none
	since time.Time // when this record was seen first
}

// try takes the lock when it can be had.
func (w *waiter) try(ctx context.Context) (taken bool, err error) {
	asked := time.Now()
	held, last, _, err := w.lock.r.holder(ctx)
	if err != nil {
		return false, err
	}
	if last != w.last {
		w.last, w.since = last, asked
	}
	w.held = held
	free := last == 0 || held != nil && (held.Owner == "" || held.Owner == w.lock.owner) // its own one, whose confirmation got lost
	if !free && asked.Sub(w.since) < w.lock.r.cfg.Stale {
		return false, nil
	}
	err = w.lock.write(ctx, last)
	if errors.Is(err, ErrConflict) {
		return false, nil // somebody was faster
	}
	return err == nil, err
}

func holderAttrs(held *lockRecord) []slog.Attr {
	if held == nil {
		return nil
	}
	return []slog.Attr{slog.String("holder", held.Owner), slog.String("purpose", held.Purpose)}
}

// holder reads the lock's record, nil when it cannot be read, its sequence, 0 when
// there is none, and the server's time when it was stored.
func (r *Registry) holder(ctx context.Context) (held *lockRecord, last uint64, stored time.Time, err error) {
	ask := fmt.Sprintf(`{"multi_last":[%q],"batch":1}`, r.lockSubject())
	_, err = r.batch(ctx, "KV_"+r.models, ask, func(_ string, seq uint64, at time.Time, data []byte) error {
		var record lockRecord
		last, stored = seq, at
		if err := decode(data, maxLockBytes, &record); err == nil && len(record.Owner) <= maxOwner && len(record.Purpose) <= maxPurpose {
			held = &record
		}
		return nil
	})
	return held, last, stored, err
}

// write stores the record over the one of a sequence.
func (l *lock) write(ctx context.Context, last uint64) error {
	l.record.Beat++
	text, err := json.Marshal(l.record)
	if err != nil {
		return err
	}
	sent := time.Now()
	seq, err := l.r.replace(ctx, l.r.lockSubject(), text, last)
	if err == nil {
		l.revision, l.renewed = seq, sent
	}
	return err
}

// keep renews the lock until stop is closed, and calls lost when it is no longer
// this process's, or when others may soon think so.
func (l *lock) keep(ctx context.Context, stop <-chan struct{}, lost context.CancelCauseFunc) {
	beat := time.NewTicker(l.r.cfg.Stale / 6)
	defer beat.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		err := l.renewOnce(ctx)
		if errors.Is(err, ErrLost) || err != nil && time.Since(l.renewed) > l.r.cfg.Stale*2/3 {
			lost(fmt.Errorf("%w: %w", ErrLost, err))
			return
		}
	}
}

// renewOnce renews the lock within two beats: what is being pushed is before it on
// the connection.
func (l *lock) renewOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.r.cfg.Stale/3)
	defer cancel()
	return l.renew(ctx)
}

// renew writes the record again. One that is there instead of the last is looked
// at: it may be an own one, whose confirmation got lost, or a receipt that a client
// had the server put there.
func (l *lock) renew(ctx context.Context) error {
	err := l.write(ctx, l.revision)
	if !errors.Is(err, ErrConflict) {
		return err
	}
	held, last, _, err := l.r.holder(ctx)
	switch {
	case err != nil:
		return err
	case last == 0:
		return fmt.Errorf("record is gone: %w", ErrLost)
	case held != nil && held.Owner != l.owner:
		return fmt.Errorf("holder is %s: %w", held.Owner, ErrLost)
	}
	return l.write(ctx, last)
}

// release frees the lock, if it is still this process's. A holder that cannot is
// taken for a dead one by the next.
func (l *lock) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.r.cfg.Timeout)
	defer cancel()
	l.record = lockRecord{Beat: l.record.Beat}
	if err := l.renew(ctx); err != nil {
		l.r.log.LogAttrs(ctx, slog.LevelWarn, "lock of the registry not released", slog.Any("error", err))
	}
}

// owner is a name for a holder that people and no other holder know.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s %d %s", clip(host, 64), os.Getpid(), nuid.Next())
}

// clip returns at most n bytes of s.
func clip(s string, n int) string { return s[:min(n, len(s))] }
