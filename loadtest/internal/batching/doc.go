// Package batching compares cellular batching with padded buckets and merged
// graphs by the clock on the wall.
//
//	trace (seeded) --> trial --> server --> answers --> measurement
//	                              |
//	        cellular: cellrt.Runtime, a graph for each request
//	        buckets:  queues by length, whole batches on a cellrt.Runner
//	        merged:   one queue, whole batches depth by depth on a cellrt.Runner
//
// # What is the same
//
// All kinds of server run the cells of one program, with the same random
// weights, on the same backend, shape and largest batch, which the profile of
// the runtime chooses. What a request computes is written once, in walk or for
// trees in treeWalk: the cellular server's graph is a walk, a row of a padded
// batch follows one, and merging asks it for the nodes of the next depth.
// A row of a padded batch that has nothing to do computes its cell on an entry
// of its own, so masking costs the buckets nothing. Every trial compares the
// answers of its server, bit by bit, with those of the first server.
//
// # How it is measured
//
// First the throughput with a backlog, then latencies with open-loop Poisson
// arrivals at shares of the throughput that the best buckets had. Latency
// counts from the moment the trace has a request arrive, so a late generator
// is charged to the server. Servers take turns, one at a time, in rounds; each
// round has a trace of its own, the same for all servers, and a figure is the
// median over the rounds.
//
// # Lengths
//
// Lengths are log-normal around 20, at most 330, like the sentences of
// Europarl. A target is about as long as its source, times a log-normal factor
// with a deviation of 0.25. Tokens are random, and the decoder feeds its own
// back; how many it writes is the trace's decision, since random weights know
// no end. Trees have about 17 leaves, at most 56, and no length to put into a
// bucket.
package batching
