package ask

import (
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// The codes of requests that ended without the worker's word, beside the
// protocol's error codes.
const (
	// CodeTimeout: no terminal frame came in time.
	CodeTimeout = "timeout"
	// CodeNobody: no worker, or no queue, takes the model's requests.
	CodeNobody = "no_responders"
)

// Gap is the time between two frames with output, and the tokens of the second.
type Gap struct {
	Wait   time.Duration
	Tokens int
}

// Outcome is how a request ended.
type Outcome struct {
	Request *workload.Request
	// Due is when it was to be sent, Sent when it was, First when its first token
	// came (zero: none did), End when it ended.
	Due, Sent, First, End time.Time
	// Code says why it failed; empty: it has its final.
	Code string
	// Reason is the final's finish_reason.
	Reason string
	// Input and Output count tokens, as the final says.
	Input, Output int
	// Gaps between the frames that brought tokens.
	Gaps []Gap
	// Missing counts the frames that never came.
	Missing int
	// Attempts is the number of the last lease; 0: unknown.
	Attempts uint64
}

// flight is a request under way.
type flight struct {
	Outcome
	request workload.Request // Outcome.Request points to it
	done    func(*Outcome)
	last    time.Time // when the last output came
	tokens  int       // that have come in the present lease
	nextSeq uint64
	stored  uint64 // its place in the queue, from the receipt
}

// take counts a frame that came at now. It reports whether the request has ended.
func (f *flight) take(x *frame, now time.Time) bool {
	switch {
	case x.attempt > f.Attempts:
		f.Attempts, f.nextSeq, f.tokens = x.attempt, 0, 0
	case x.attempt < f.Attempts:
		return false // of a lease that is over
	}
	if x.seq > f.nextSeq {
		f.Missing += int(x.seq - f.nextSeq)
	}
	f.nextSeq = max(f.nextSeq, x.seq+1)
	switch x.kind {
	case "token":
		f.output(x, now)
	case "final":
		f.Reason, f.Input, f.Output = x.reason, x.input, x.output
		f.End = now
		return true
	case "error":
		f.Code, f.End = x.code, now
		if f.Code == "" {
			f.Code = "internal"
		}
		return true
	}
	return false
}

// output counts the tokens of a frame that are news.
func (f *flight) output(x *frame, now time.Time) {
	if x.provisional {
		if f.First.IsZero() {
			f.First, f.last = now, now
		}
		return
	}
	news := x.index + x.tokens - f.tokens
	if x.tokens == 0 || news <= 0 {
		return
	}
	f.tokens += news
	if f.First.IsZero() {
		f.First, f.last = now, now
		return
	}
	f.Gaps = append(f.Gaps, Gap{Wait: now.Sub(f.last), Tokens: news})
	f.last = now
}
