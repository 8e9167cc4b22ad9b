// Package versions keeps versions of models in bounded memory: it loads what is
// wanted, counts who uses what, and frees what nobody needs.
//
//	            wanted or asked for                               ┌──────┐ used  ┌──────┐
//	absent ───► fetching ───► cold ───► loading ───► verifying ──►│ warm ├──────►│ live │
//	               ▲           ▲            │            │        └──┬───┘       └──┬───┘
//	               │           │            ▼            ▼           │  not wanted  │
//	               │           │          failed ◄───────┘           ▼              ▼
//	               │           └──────────── no room, no references ─┴── draining ──┴──► absent
//	               └─ asked for, or room                                no references, linger over
//
// Two bounds hold at all times. Of one model at most two versions are in memory
// or on their way into it; a third waits, and ends the linger of a version that
// is not wanted. And what is in memory, together with the most that a load may
// add, is never more than [Config.Budget].
//
// A version whose references are zero may be unloaded, the least recently used
// first. Where that does not make enough room, the oldest ones take no new
// references until theirs are given back, so that a version that is asked for
// comes in after at most the requests that run now: those that ask are served in
// the order in which they asked. Versions that are only wanted take room that is
// free and push nobody out.
//
// One goroutine, [Set.Run], decides; it starts the calls to the [Loader], which
// run outside of any lock. The package knows neither the registry nor the wire.
package versions
