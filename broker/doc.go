// Package broker is the wire of cellmq, both ends of it: the requests that
// workers take from NATS and the token streams that they send back.
//
// # Two paths
//
// The durable path publishes to infer.req.<model>.<priority>.<client>, which
// the work queue stream INFER captures; [Intake] pulls from it by credit. The
// core path publishes to infer.rt.<model>, where a queue group of workers
// listens ([Conn.Serve]) and answers busy when it has no credit. Both deliver
// the same [Delivery] and answer with the same frames ([TokenStream]).
//
//	client ── infer.req ──> stream INFER ── pull by credit ──> Intake ──┐
//	client ── infer.rt ───────────── queue group ───────────> Service ──┤
//	                                                            Delivery
//	client <── infer.out.<client>.<id> <── TokenStream <── worker <─────┘
//
// # Credits
//
// A credit is the right to hold one request. [Credits] counts them; every
// [Delivery] carries one until [Delivery.Done]. Intake never asks the server
// for more messages than it holds credits for, so no message waits inside the
// library while its lease runs out. See the comment on Intake for the order in
// which queues are asked.
//
// # Leases
//
// JetStream redelivers a message whose lease is not extended in time, and
// honours a stale holder's acknowledgement, so a [Lease] fences itself: it
// keeps its own deadline on the monotonic clock, counted from the last
// extension that was sent, less a margin. After that deadline every method
// returns [ErrLeaseLost] and sends nothing. The holder then stops, emits
// nothing and settles nothing.
//
// The final frame and the settlement travel on one connection, in that order,
// so the server processes them in that order and no flush is needed.
//
// # Stores
//
// Five streams beside the work queue keep what must outlive a worker: the one
// terminal frame of each durable request ([Finals]), which is what fences two
// workers that hold the same lease; what is remembered of an interrupted run
// ([State]); the frames of mode resume ([Conn.OutFrames]); dead letters
// ([Letter]); and the server's word that it gave a request up ([Conn.Advisories]).
// They are ensured with the work queue, by whoever finds one missing, and by
// every Finals after a reconnection. Records are read by direct gets; no
// consumer exists per client or request.
//
// # Readers
//
// A [Stream] yields the contiguous output, whatever is lost, repeated or begun
// anew on the way; the comment on tracker has the rules. What it lacks it asks
// for on infer.resume.<client>, also when the library dropped messages because the
// process stood still: the worker that runs the request repeats the
// output so far ([TokenStream.Cumulative]), and one worker looks at what the
// streams keep. [Client.Attach] reads a request in the same way that somebody else
// sent. A terminal frame is encoded ([TokenStream.Terminal]), stored and then sent
// ([TokenStream.SendTerminal]); a later lease sends the stored one as its own
// ([TokenStream.Replay]).
//
// # Hostile input
//
// Payloads are scanned before a decoder touches them: nesting, declared
// lengths and the number of elements are bounded, so a few bytes can neither
// allocate a gigabyte nor exhaust the stack. Whatever is wrong comes back as
// an [Error] with a code of the protocol, in [Delivery.Err], together with as
// much of the [Request] as is needed to answer it.
package broker
