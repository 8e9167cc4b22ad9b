// Package sim runs requests against a virtual clock.
//
// The scheduler of package cellrt is a state machine without a clock. Under a
// cellrt.Runtime the time between its events is what a backend takes; here it
// is what a [Machine] says, so that queueing, fairness and starvation can be
// studied, and asserted in tests, without the mood of a real machine. A
// million steps take seconds.
//
//	trace -- arrivals --> policy -- steps --> executors -- ends --> report
//	                        ^                     |
//	                        '----- completions ---'
//
// # Parts
//
// A [Machine] has executors and the costs of cells: a step of n rows takes
// fixed + n x row, or what a table says, and each round of scheduling and each
// step some overhead. A
// trace is a list of [Request] values, each with an arrival and a [Shape]: a
// [Chain] of stages or a [Tree]. A [Policy] decides what an idle executor runs:
//
//   - [Cellular] drives cellrt.Scheduler itself.
//   - [Algorithm1] is the scheduler of BatchMaker (EuroSys'18) as far as public
//     descriptions tell, with static cell priorities and look-ahead.
//   - [Padded] runs whole requests of a length bucket together, padded.
//   - [Merged] runs whole requests together, merging their graphs by depth.
//
// All four pay the same machine. [Run] returns a [Report] with the times of
// every request and what was computed.
//
// # Determinism
//
// Time is an integer number of nanoseconds and events at one moment have an
// order: completions by executor, arrivals by position in the trace, then idle
// executors by number. Random traces come from a generator seeded by the
// caller. Two runs of the same arguments give equal reports.
package sim
