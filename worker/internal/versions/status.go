package versions

import (
	"cmp"
	"slices"
	"time"

	"github.com/cellmq/cellmq/models"
)

// State says where a version is on its way into memory and out of it.
type State string

// The states, as the package documentation draws them.
const (
	Absent    State = "absent"    // nothing has been done for it
	Fetching  State = "fetching"  // its files come to this machine, or are awaited with pauses
	Cold      State = "cold"      // its files are here, and it waits for room or for a request
	Loading   State = "loading"   // its files are read, its weights packed
	Verifying State = "verifying" // its golden outputs are compared
	Warm      State = "warm"      // in memory and wanted; no request has used it
	Live      State = "live"      // in memory, wanted and used
	Draining  State = "draining"  // in memory and not wanted: it goes when nobody uses it
	Failed    State = "failed"    // not in memory, and not tried now
)

// Resident reports whether a version in this state is in memory.
func (s State) Resident() bool { return s == Warm || s == Live || s == Draining }

// Status is what a [Set] knows of a version.
type Status struct {
	Key
	State State

	// Reason says why a version is not in memory, or no longer: what failed, what
	// it waits for. Otherwise it is empty.
	Reason string

	// Wanted and Pinned are as [Set.Want] was told.
	Wanted, Pinned bool

	// References is how many use the version, and Waiting how many wait for it.
	References, Waiting int

	// WeightBytes, SharedBytes, StateBytes, Golden and Took are those of the latest [Loaded],
	// zero when there was none.
	WeightBytes, SharedBytes, StateBytes int64
	Golden                               models.GoldenReport
	Took                                 time.Duration
}

// Status returns a copy of what is known of all versions that are wanted, in
// memory or waited for, in the order of models and digests.
func (s *Set) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Status, 0, len(s.entries))
	for _, e := range s.entries {
		out = append(out, Status{
			Key: e.key, State: e.current(), Reason: e.reason, Wanted: e.wanted, Pinned: e.pinned,
			References: e.refs, Waiting: len(e.waiters),
			WeightBytes: e.figures.Weights, SharedBytes: e.figures.Shared, StateBytes: e.figures.State,
			Golden: e.figures.Golden, Took: e.figures.Took,
		})
	}
	slices.SortFunc(out, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Digest, b.Digest))
	})
	return out
}

// Totals are figures of a whole [Set].
type Totals struct {
	// Bytes is the footprint of what is in memory, and Budget what it may be at
	// most, 0 without a bound.
	Bytes, Budget int64

	// Evictions counts versions that were unloaded to make room for others.
	Evictions uint64
}

// Totals returns the figures of the set.
func (s *Set) Totals() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Totals{Bytes: s.footprint(s.resident()), Budget: s.cfg.Budget, Evictions: s.evictions}
}
