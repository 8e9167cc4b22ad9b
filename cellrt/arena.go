package cellrt

import "fmt"

// arena hands out slots. The memory behind a slot belongs to the [Executable];
// the arena only keeps account of who owns which index.
//
// Every slot carries a generation that grows each time it is handed out, and a
// release names the generation it means. Releasing a slot that is free, or
// that belongs to a later owner by now, is a programmer's error and panics.
type arena struct {
	generations []uint32 // odd while the slot is taken
	free        []int32  // a stack: the slot released last is reused first, while it is in the cache
}

func newArena(slots int) *arena {
	a := &arena{generations: make([]uint32, slots), free: make([]int32, slots)}
	for i := range a.free {
		a.free[i] = int32(slots - 1 - i)
	}
	return a
}

// acquire takes a slot, or reports that there is none.
func (a *arena) acquire() (slot int32, generation uint32, ok bool) {
	if len(a.free) == 0 {
		return 0, 0, false
	}
	slot = a.free[len(a.free)-1]
	a.free = a.free[:len(a.free)-1]
	a.generations[slot]++
	return slot, a.generations[slot], true
}

// release returns a slot taken by the acquire that reported this generation.
func (a *arena) release(slot int32, generation uint32) {
	if a.generations[slot] != generation || generation%2 == 0 {
		panic(fmt.Sprintf("cellrt: slot %d released with generation %d, it is at %d", slot, generation, a.generations[slot]))
	}
	a.generations[slot]++
	a.free = append(a.free, slot)
}

func (a *arena) slots() int     { return len(a.generations) }
func (a *arena) available() int { return len(a.free) }
