// Package worker is a request's life on a node: it pulls requests by credit,
// admits them into the runtime, turns what their sequences produce into
// frames, keeps their leases, and drains.
//
//	broker.Intake --+                    +--> models.Unfold
//	(by credit)     |                    |
//	                +--> admit (any goroutine) --> cellrt.Submit
//	broker.Service -+        |                          |
//	(own credits)            | join, refuse             | Deliver: results of each step
//	                         v                          v
//	                       outbox  <--------------------+
//	                         |
//	                         v  collect
//	                     publisher (one goroutine) --> frames, settle, credit back
//
// # A run
//
// A run is one request on this worker: its lease, its sequence and its token
// stream.
//
//	            refused (error code)
//	delivered ----------------------------------------------+
//	    |       cancelled before it came (tombstone)        |
//	    |---------------------------------------------------+
//	    |       draining                                    |
//	    |---------------------------------------------------+
//	    v                                                   |
//	 joined ---> running ---> ended ---------------------> closed
//	 accepted    tokens,      by itself: stop, length       terminal frame sent,
//	             heartbeats   stopped: cancelled, deadline, lease settled, rejected
//	                          client gone, handed back,     or released, slot's
//	                          lease lost; or failed         credit given back
//
// Whoever wants a run to stop (a cancel request, its deadline, an absent
// client, a lost lease, the end of the grace period) names a cause; the first
// cause counts, and the runtime ends the sequence within a step. Only the
// publisher closes runs, so every request has exactly one terminal frame and
// nothing after it, whatever races. A run whose lease is lost is closed in
// silence: it is somebody else's now.
//
// # Output
//
// Tokens become text as package models decodes them: whole characters, less what
// may be the beginning of a stop text until the end decides. A search has no
// tokens before it has ended; what it proposes meanwhile is kept in its latest
// version only and sent as provisional frames. Label, scores, alternatives and
// log-probabilities of the end come from the request's outcome.
//
// A run belongs to its client's share of the compute, so that running requests
// of one client do not hold up another's.
//
// # Who holds which lock
//
// The runtime calls the outbox with its own lock held, and the outbox's lock
// is held for a few appends only. Nobody calls the runtime with the outbox's
// lock held. The network is touched by the publisher's goroutine alone, so a
// slow connection delays frames, which then carry more tokens each, and never
// a step.
//
// # Leases and progress
//
// Leases are extended three times per ack wait, and only while the step loop
// runs steps or has nothing to run. A hung loop thereby loses its leases and
// the broker delivers the requests to another worker, which produces the same
// frames. While it hangs, the worker has no slots to pull for and is not ready.
//
// # Drain
//
// When its context ends a worker leaves the queue groups and stops pulling.
// What runs may finish for the grace period. Then the rest is handed back:
// durable requests get a retry frame and are released with a short delay,
// realtime ones an error shutting_down. [Worker.HandBack] ends the grace
// period early.
package worker
