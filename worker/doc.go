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
//	                         |  ^
//	                     ask |  | what became of it, through the outbox
//	                         v  |
//	                       records (finals, letters, states)
//
// # A run
//
// A run is one request on this worker: its lease, its sequence and its token
// stream.
//
//	            refused (error code)
//	delivered ----------------------------------------------+
//	    |       comes again: answered already, or exhausted |
//	    |---------------------------------------------------+
//	    |       cancelled before it came (tombstone)        |
//	    |---------------------------------------------------+
//	    |       draining                                    |
//	    |---------------------------------------------------+
//	    v                                                   |
//	 joined ---> running ---> ended ---> recorded -------> closed
//	 accepted    tokens,        |        letter, store,     slot's credit
//	             heartbeats     |        send, settle; or   given back
//	                            |        excuse, release
//	                            |
//	               by itself: stop, length; stopped: cancelled, deadline,
//	               client gone, handed back, lease lost; or failed
//
// Whoever wants a run to stop (a cancel request, its deadline, an absent
// client, a lost lease, the end of the grace period) names a cause; the first
// cause counts, and the runtime ends the sequence within a step. Only the
// publisher closes runs, so every request has exactly one terminal frame and
// nothing after it, whatever races. A run whose lease is lost is closed in
// silence: it is somebody else's now.
//
// The end of a durable run goes in steps, see ending.go. Its terminal frame is
// stored first, which decides between workers that both hold the request: the
// one that comes second sends the other's. The publisher never waits for a
// record; it asks, serves other runs, and takes the next step when the outbox
// brings what became of it.
//
// # Another attempt
//
// A request that comes again is looked up first, in a goroutine of its own: its
// answer is repeated; a checkpoint is where it goes on; and failures, the attempts
// that nobody excused, are bounded. A worker excuses an attempt that it hands
// back, and one whose lease it could not extend for want of a connection.
//
// What the server has stopped delivering is ended by the reconciler, from its
// advisories, and by the sweeper, which counts what no consumer knows.
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
// lock held. Frames are sent by the publisher's goroutine alone, so a
// slow connection delays frames, which then carry more tokens each, and never
// a step. What has to wait for the server is a task, in its own goroutine.
//
// # Leases and progress
//
// Leases are extended five times per ack wait, and only while the step loop
// runs steps or has nothing to run. A hung loop thereby loses its leases and
// the broker delivers the requests to another worker, which produces the same
// frames. While it hangs, the worker has no slots to pull for and is not ready.
//
// # Drain
//
// When its context ends a worker leaves the queue groups and stops pulling.
// What runs may finish for the grace period. Then the rest is handed back:
// durable requests get a retry frame and are released with a short delay, their
// progress stored, realtime ones an error shutting_down. [Worker.HandBack] ends the grace
// period early.
package worker
