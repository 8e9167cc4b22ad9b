package top

import (
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
	maxUnshown  = 4 * maxWorkers
	stoppedStay = 3 * time.Second
	silentStay  = 6 * time.Second
	answerStay  = 30 * time.Second
)

// Fleet is the workers that were heard of. The zero value is empty. One goroutine
// uses it.
//
// It has room for so many. Who is in it stays as long as he sends, whoever else comes.
// When there is no room, workers that are known otherwise too, since service discovery
// found them, take the places of those that are not and came last. All of that can be
// made up where everybody may publish everything; permissions are the protection.
type Fleet struct {
	members  map[string]*member
	unshown  map[string]time.Time // who had no room, and when he sent last
	answered map[string]time.Time // who answered service discovery, and when
	joined   uint64               // how many became members
	// Refused counts messages that were no snapshot, and LastRefusal says what was
	// wrong with the last one.
	Refused     int
	LastRefusal error
}

// member is a worker's last two snapshots.
type member struct {
	last, before *broker.Snapshot
	seen         time.Time
	place        uint64 // it was the so manieth to become a member
}

// Take takes a message.
func (f *Fleet) Take(p broker.LivePayload, now time.Time) {
	s, err := broker.DecodeSnapshot(p.Payload)
	if err == nil && s.Worker != p.Worker {
		err = fmt.Errorf("worker %q writes as %q", p.Worker, s.Worker)
	}
	if err != nil {
		f.Refused++
		f.LastRefusal = err
		return
	}
	if f.members[s.Worker] == nil && len(f.members) >= maxWorkers && !f.makeRoom(s.Worker) {
		f.leaveOut(s.Worker, now)
		return
	}
	delete(f.unshown, s.Worker)
	f.add(s, now)
}

// makeRoom drops the last member that nothing but its snapshots tells of, for a worker
// that answered service discovery.
func (f *Fleet) makeRoom(name string) bool {
	if !f.found(name) {
		return false
	}
	var last string
	place := uint64(0)
	for other, m := range f.members {
		if m.place > place && !f.found(other) {
			last, place = other, m.place
		}
	}
	if place == 0 {
		return false
	}
	f.leaveOut(last, f.members[last].seen)
	delete(f.members, last)
	return true
}

// leaveOut notes a worker that has no room.
func (f *Fleet) leaveOut(name string, now time.Time) {
	if f.unshown == nil {
		f.unshown = map[string]time.Time{}
	}
	if _, known := f.unshown[name]; known || len(f.unshown) < maxUnshown {
		f.unshown[name] = now
	}
}

// Answered notes a worker that answered service discovery.
func (f *Fleet) Answered(name string, now time.Time) {
	if f.answered == nil {
		f.answered = map[string]time.Time{}
	}
	if f.found(name) || len(f.answered) < maxWorkers {
		f.answered[name] = now
	}
}

// found reports whether a worker answered service discovery.
func (f *Fleet) found(name string) bool {
	_, ok := f.answered[name]
	return ok
}

// Crowded reports whether there are workers that have no room.
func (f *Fleet) Crowded() bool { return len(f.unshown) > 0 }

func (f *Fleet) add(s *broker.Snapshot, now time.Time) {
	if f.members == nil {
		f.members = map[string]*member{}
	}
	m := f.members[s.Worker]
	if m == nil {
		f.joined++
		m = &member{place: f.joined}
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
	maps.DeleteFunc(f.unshown, func(_ string, seen time.Time) bool { return now.Sub(seen) > silentStay })
	maps.DeleteFunc(f.answered, func(_ string, seen time.Time) bool { return now.Sub(seen) > answerStay })
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
