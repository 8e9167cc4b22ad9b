package versions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// What a version that is to be loaded finds.
type verdict int

const (
	fits    verdict = iota // it can be loaded now
	waits                  // versions are unloaded for it, or will be when nobody refers to them
	blocked                // others are not pushed out for it
)

// third reports whether the version has to wait because two others of its model
// are in memory. One of these that is not wanted goes: at once, which is what is
// returned to do, or when nobody refers to it.
func (s *Set) third(e *entry, now time.Time) (bool, func(context.Context)) {
	var others []*entry
	for _, o := range s.entries {
		if o != e && o.key.Model == e.key.Model && o.loaded != nil {
			others = append(others, o)
		}
	}
	if len(others) < 2 {
		return false, nil
	}
	s.enter(e, Cold, "two versions are live")
	sortVictims(others, now)
	for _, o := range others {
		switch {
		case o.wanted:
		case o.idle(now):
			return true, s.unload(o, false)
		default:
			o.marked = true
			if o.refs == 0 {
				s.until(o.again)
			}
		}
	}
	return true, nil
}

// room looks for memory for a version. If some has to be made it returns the
// unloading to begin, or nil when those that have to go, which are marked, are
// in use.
func (s *Set) room(e *entry, now time.Time) (verdict, func(context.Context)) {
	resident := s.resident()
	kept := slices.DeleteFunc(slices.Clone(resident), func(o *entry) bool { return !o.pinned || o.key.Model != e.key.Model })
	if need := s.footprint(kept) + e.size; need > s.cfg.Budget {
		s.fail(e, &BudgetError{Need: need, Budget: s.cfg.Budget}, now)
		return blocked, nil
	}
	if s.roomWithout(resident, nil, e) {
		return fits, nil
	}
	victims := s.victims(e, resident, now)
	if victims == nil {
		s.enter(e, Cold, s.lack(e, resident))
		return blocked, nil
	}
	for _, v := range victims {
		if v.idle(now) && !slices.ContainsFunc(victims, func(o *entry) bool { return !o.idle(now) }) {
			return waits, s.unload(v, true)
		}
		v.marked = true
		if v.refs == 0 && !v.idle(now) {
			s.until(v.again)
		}
	}
	s.enter(e, Cold, s.lack(e, resident))
	return waits, nil
}

func (s *Set) lack(e *entry, resident []*entry) string {
	return fmt.Sprintf("no room: needs up to %d bytes, and %d of %d are in use", e.size, s.footprint(resident), s.cfg.Budget)
}

// victims returns who has to go for a version, and none too many; nil when it
// would not be enough.
func (s *Set) victims(e *entry, resident []*entry, now time.Time) []*entry {
	var can []*entry
	for _, o := range resident {
		if o != e && !o.pinned && (e.asked() || !o.wanted && o.idle(now)) {
			can = append(can, o)
		}
	}
	sortVictims(can, now)
	for n := range can {
		out := can[:n+1]
		if !s.roomWithout(resident, out, e) {
			continue
		}
		for i := 0; i < len(out); {
			fewer := slices.Delete(slices.Clone(out), i, i+1)
			if s.roomWithout(resident, fewer, e) {
				out = fewer
			} else {
				i++
			}
		}
		return out
	}
	return nil
}

// sortVictims puts those first that go first: those that nobody refers to before
// those in use, those not wanted before those that are, the least recently used
// before others, and of those in use the one that is in memory for longest.
func sortVictims(all []*entry, now time.Time) {
	slices.SortFunc(all, func(a, b *entry) int {
		if c := falseFirst(!a.idle(now), !b.idle(now)); c != 0 {
			return c
		}
		if c := falseFirst(a.wanted, b.wanted); c != 0 {
			return c
		}
		if a.idle(now) {
			return cmp.Or(a.lastUse.Compare(b.lastUse), a.since.Compare(b.since), cmp.Compare(a.born, b.born))
		}
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.born, b.born))
	})
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// roomWithout reports whether the version can be loaded when some of those in
// memory have gone.
func (s *Set) roomWithout(resident, gone []*entry, e *entry) bool {
	left := resident
	if len(gone) > 0 {
		left = slices.DeleteFunc(slices.Clone(resident), func(o *entry) bool { return slices.Contains(gone, o) })
	}
	return s.footprint(left)+e.size <= s.cfg.Budget
}

// resident returns the versions in memory.
func (s *Set) resident() []*entry {
	var out []*entry
	for _, e := range s.entries {
		if e.loaded != nil {
			out = append(out, e)
		}
	}
	return out
}

func (s *Set) footprint(of []*entry) int64 {
	if len(of) == 0 {
		return 0
	}
	all := make([]*Loaded, len(of))
	for i, e := range of {
		all[i] = e.loaded
	}
	return s.cfg.Loader.Footprint(all)
}
