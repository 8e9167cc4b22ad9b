package record

import (
	"cmp"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/loadtest/internal/ask"
)

// Group is what is known of some of the requests.
type Group struct {
	// TTFT, TPOT, ITL and E2EL are the latencies of the requests that ended well.
	TTFT, TPOT, ITL, E2EL Histogram
	// Completed and Failed requests that were due in the window, and those that were
	// cancelled as the plan says.
	Completed, Cancelled int
	Failed               map[string]int
	// Kept is how many of those that completed kept the bounds, whether they ended in
	// the window or after it.
	Kept int
	// Reasons are the finish reasons of those that completed.
	Reasons map[string]int
	// ended, of which good, and their tokens, are what ended in the window.
	ended, good   int
	input, output int
	// missing frames and requests of more than one attempt.
	missing, repeated int
}

func newGroup() *Group {
	return &Group{
		TTFT: newHistogram(), TPOT: newHistogram(), ITL: newHistogram(), E2EL: newHistogram(),
		Failed: map[string]int{}, Reasons: map[string]int{},
	}
}

// due counts a request that was due in the window.
func (g *Group) due(o *ask.Outcome, b Bounds) {
	g.missing += o.Missing
	if o.Attempts > 1 {
		g.repeated++
	}
	if code := failure(o); code != "" {
		g.Failed[code]++
		return
	}
	if cancelled(o) {
		g.Cancelled++
		return
	}
	g.Completed++
	if b.met(o) {
		g.Kept++
	}
	g.Reasons[o.Reason]++
	g.E2EL.add(o.End.Sub(o.Due), 1)
	if o.First.IsZero() {
		return
	}
	g.TTFT.add(o.First.Sub(o.Due), 1)
	if d, ok := tpot(o); ok {
		g.TPOT.add(d, 1)
	}
	for _, gap := range o.Gaps {
		g.ITL.add(gap.Wait/time.Duration(gap.Tokens), gap.Tokens)
	}
}

// cancelled reports whether a request was cancelled, and was to be. What it took says
// nothing about the workers.
func cancelled(o *ask.Outcome) bool {
	return o.Code == "" && o.Request.CancelAfter > 0 && o.Reason == string(broker.FinishCancelled)
}

// failure says why a request did not end well; empty: it did. One that was cut off,
// by its deadline or by somebody else, has a final and not what it asked for.
func failure(o *ask.Outcome) string {
	switch broker.FinishReason(o.Reason) {
	case broker.FinishDeadline, broker.FinishClientGone, broker.FinishCancelled:
		if !cancelled(o) {
			return cmp.Or(o.Code, o.Reason)
		}
	}
	return o.Code
}

// tpot is the time per token after the first.
func tpot(o *ask.Outcome) (time.Duration, bool) {
	if o.First.IsZero() || o.Output < 2 {
		return 0, false
	}
	return o.End.Sub(o.First) / time.Duration(o.Output-1), true
}

// finish counts a request that ended well in the window.
func (g *Group) finish(o *ask.Outcome, b Bounds) {
	g.ended++
	g.input += o.Input
	g.output += o.Output
	if b.met(o) {
		g.good++
	}
}

// met reports whether a request that ended well keeps all bounds.
func (b Bounds) met(o *ask.Outcome) bool {
	within := func(d, bound time.Duration) bool { return bound == 0 || d <= bound }
	each, _ := tpot(o)
	return within(o.End.Sub(o.Due), b.E2EL) && within(each, b.TPOT) &&
		(b.TTFT == 0 || !o.First.IsZero() && o.First.Sub(o.Due) <= b.TTFT || o.First.IsZero() && o.End.Sub(o.Due) <= b.TTFT)
}

// FailedCount is the number of requests that failed.
func (g *Group) FailedCount() int {
	n := 0
	for _, count := range g.Failed {
		n += count
	}
	return n
}

// Throughput is the requests a second that ended well in a window.
func (g *Group) Throughput(window time.Duration) float64 { return float64(g.ended) / window.Seconds() }

// Goodput is the requests a second that ended well, in the window and within the
// bounds.
func (g *Group) Goodput(window time.Duration) float64 { return float64(g.good) / window.Seconds() }

// Fields are the figures of a group over a window, by name.
func (g *Group) Fields(window time.Duration, b Bounds) map[string]any {
	s := window.Seconds()
	out := map[string]any{
		"completed": g.Completed, "failed": g.FailedCount(),
		"total_input_tokens": g.input, "total_output_tokens": g.output,
		"request_throughput": round(g.Throughput(window)), "output_throughput": round(float64(g.output) / s),
		"total_token_throughput": round(float64(g.input+g.output) / s),
	}
	if b.set() {
		out["request_goodput"], out["kept_bounds"] = round(g.Goodput(window)), g.Kept
	}
	if g.Cancelled > 0 {
		out["cancelled"] = g.Cancelled
	}
	if len(g.Failed) > 0 {
		out["failed_by_code"] = g.Failed
	}
	if g.Completed > 0 {
		out["finish_reasons"] = g.Reasons
	}
	g.TTFT.fields(out, "ttft")
	g.TPOT.fields(out, "tpot")
	g.ITL.fields(out, "itl")
	g.E2EL.fields(out, "e2el")
	return out
}
