package top

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// The bounds of a fleet, and how long a worker stays in it that has stopped, or has
// sent nothing.
const (
	maxWorkers  = 1024
	stoppedStay = 3 * time.Second
	silentStay  = 6 * time.Second
)

// Fleet is the workers that were heard of. The zero value is empty. One goroutine
// uses it.
type Fleet struct {
	members map[string]*member
	// Refused counts messages that were no snapshot, and LastRefusal says what was
	// wrong with the last one.
	Refused     int
	LastRefusal error
}

// member is a worker's last two snapshots.
type member struct {
	last, before *broker.Snapshot
	seen         time.Time
}

var errTooMany = errors.New("too many workers")

// Take takes a message.
func (f *Fleet) Take(p broker.LivePayload, now time.Time) {
	s, err := broker.DecodeSnapshot(p.Payload)
	switch {
	case err != nil:
	case s.Worker != p.Worker:
		err = fmt.Errorf("worker %q writes as %q", p.Worker, s.Worker)
	case f.members[s.Worker] == nil && len(f.members) >= maxWorkers:
		err = fmt.Errorf("%w: more than %d", errTooMany, maxWorkers)
	}
	if err != nil {
		f.Refused++
		f.LastRefusal = err
		return
	}
	f.add(s, now)
}

func (f *Fleet) add(s *broker.Snapshot, now time.Time) {
	if f.members == nil {
		f.members = map[string]*member{}
	}
	m := f.members[s.Worker]
	if m == nil {
		m = &member{}
		f.members[s.Worker] = m
	}
	if m.last != nil && s.Uptime < m.last.Uptime { // it was started anew
		m.last = nil
	}
	m.before, m.last, m.seen = m.last, s, now
}

// Known is how many workers there are, and Rated how many of them have sent twice.
func (f *Fleet) Known() (known, rated int) {
	for _, m := range f.members {
		known++
		if m.before != nil {
			rated++
		}
	}
	return known, rated
}

// Snapshots returns the last snapshot of each worker, by name.
func (f *Fleet) Snapshots() (out []*broker.Snapshot) {
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		out = append(out, f.members[name].last)
	}
	return out
}

// Prune drops the workers that have gone.
func (f *Fleet) Prune(now time.Time) {
	maps.DeleteFunc(f.members, func(_ string, m *member) bool {
		interval := min(m.last.Interval, broker.LiveLongest.Milliseconds()) // whoever wrote it
		stay := max(silentStay, 3*time.Duration(interval)*time.Millisecond)
		if m.last.State == broker.LiveStopped {
			stay = stoppedStay
		}
		return now.Sub(m.seen) > stay
	})
}

// seconds is the time between a worker's last two snapshots; 0 when there are none.
func (m *member) seconds() float64 {
	if m.before == nil {
		return 0
	}
	return max(float64(m.last.Time-m.before.Time)/1000, 0)
}

// rate is how much a counter grew in a second. One that went back was reset.
func rate(last, before uint64, seconds float64) float64 {
	if seconds <= 0 || last < before {
		return 0
	}
	return float64(last-before) / seconds
}
