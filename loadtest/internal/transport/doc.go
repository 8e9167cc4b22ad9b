// Package transport measures what it costs to carry requests and tokens, with
// next to nothing to compute: requests a second and processor time of client,
// worker and server, each a process of its own.
//
// The figures of a shared machine drift from minute to minute. So the ceiling is
// measured in the same run: a plain client and worker, without anything of cellmq,
// which send the same number of messages through the same server, encoded as short
// MessagePack arrays. The systems take turns, round by round, and what counts is
// the ratio of medians.
//
// The worker of cellmq is its program with a language model of four units, which
// always chooses the same token. The plain worker has a step loop too: of 64
// requests at a time, each gets one token a step.
//
//	client (128 in flight) ── requests ──> server ──> worker (64 slots)
//	client <── accepted (cellmq), 20 frames of a token, final ── worker
package transport
