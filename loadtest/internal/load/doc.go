// Package load puts a load on workers and reports what became of it.
//
//	workload.Source ── due times ──> Run ── Ask ──> ask.Client ── NATS ──> workers
//	                                  │                 │
//	                                  └── record.Recorder <── outcomes
//
// [Run] is one load: a warm-up, a window that counts, and a wait for what is still
// under way. The clock of a request starts when it was due. A sender that is late,
// since it had to wait for its own bound of concurrency or did not get to run,
// therefore does not hide what the workers did meanwhile; how late it was is in the
// report, with a warning when it was late enough to matter. A load ends at its time;
// what was due and could not be sent by then is in the report too, and so is when the
// load test had no connection.
//
// [Sweep] runs a load at several rates. [Saturate] searches for the highest rate
// that is sustained: at least 98 % of what is offered ends well in the window, or,
// with bounds on latency, a share of the requests that were due in the window keeps
// them, in it or after it.
package load
