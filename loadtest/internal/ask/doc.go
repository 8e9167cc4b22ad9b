// Package ask sends requests and watches their answers at so little cost that a
// load test can share a machine with what it measures.
//
// [broker.Client] is the client for programs: it reads back what was lost, asks
// workers when a request falls silent, and hands every frame to a reader's
// goroutine. A [Client] of this package does none of that. It keeps a record of a
// request under its number, which the id ends with; one subscription for each
// client name takes all frames; of a frame only what is counted is read; and no
// goroutine waits for an answer. It tells an [Outcome] when the terminal frame has
// come, the server has refused the request, or the patience has run out.
//
// Times are those at which the process sees a message. Nothing is waited for so that
// more messages come together: a read begins when there is something to read, and
// what it brings, at most 32 KiB, is counted before the next one. They count from
// when the request was due, not from when it was sent: what a request waited for its
// turn in a sender that is late belongs to its latency.
//
// Where a model is the bottleneck the frames of each step wake the process up, and
// that is what a load test costs then. [Dialer] and [OneProcessor] make it cost half
// as much.
//
// It checks as it goes: that the frames of a lease count 0, 1, 2; that no token is
// missing before the final; that no second terminal frame comes.
package ask
