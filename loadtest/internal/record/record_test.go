package record_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/loadtest/internal/ask"
	"github.com/cellmq/cellmq/loadtest/internal/record"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// TestQuantiles compares the recorder's quantiles with exact ones.
func TestQuantiles(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	r := record.New(start, 0, time.Hour, record.Bounds{})
	random := rand.New(rand.NewPCG(1, 2))
	var exact []float64
	for range 20_000 {
		d := time.Duration(math.Exp(random.NormFloat64()*1.5) * float64(5*time.Millisecond))
		exact = append(exact, float64(d)/1e6)
		r.Ended(&ask.Outcome{Request: &workload.Request{Model: "m"}, Due: start, End: start.Add(d)})
	}
	slices.Sort(exact)
	result := r.Result()
	for _, q := range []float64{0.5, 0.9, 0.95, 0.99, 0.999} {
		want := exact[int(math.Ceil(q*20_000))-1]
		if got, ok := result.All.E2EL.Quantile(q); !ok || math.Abs(got/want-1) > 0.002 {
			t.Errorf("quantile %g: %g ms, exactly %g", q, got, want)
		}
	}
	if _, ok := result.All.E2EL.Quantile(0.9999); ok {
		t.Error("a quantile with two values above it was reported")
	}
	ms, share := result.All.E2EL.Points()
	if n := len(ms); n < 100 || share[n-1] != 1 || math.Abs(ms[n-1]/exact[len(exact)-1]-1) > 0.002 {
		t.Errorf("%d points up to %g and %g", n, ms[n-1], share[n-1])
	}
	mean := 0.0
	for _, v := range exact {
		mean += v / 20_000
	}
	fields := result.All.Fields(result.Window, result.Bounds)
	if got := fields["mean_e2el_ms"].(float64); math.Abs(got/mean-1) > 0.002 {
		t.Errorf("mean %g, exactly %g", got, mean)
	}
}

// outcome returns a request that was due and ended at times in ms, with its
// first token after a third of that and tokens in two frames.
func outcome(start time.Time, due, end int, change ...func(*ask.Outcome)) *ask.Outcome {
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	o := &ask.Outcome{
		Request: &workload.Request{Model: "m", Client: "c", Priority: broker.Std}, Due: at(due), Sent: at(due), First: at(due + (end-due)/3), End: at(end),
		Reason: "stop", Input: 5, Output: 4, Gaps: []ask.Gap{{Wait: 30 * time.Millisecond, Tokens: 3}}, Attempts: 1,
	}
	for _, f := range change {
		f(o)
	}
	return o
}

// TestCutOff counts requests that did not get all they asked for as what they are.
func TestCutOff(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	r := record.New(start, 0, time.Second, record.Bounds{E2EL: time.Second})
	cut := func(reason broker.FinishReason, after time.Duration) func(*ask.Outcome) {
		return func(o *ask.Outcome) { o.Reason, o.Request.CancelAfter = string(reason), after }
	}
	for _, o := range []*ask.Outcome{
		outcome(start, 0, 100), outcome(start, 0, 10, cut(broker.FinishDeadline, 0)), outcome(start, 0, 10, cut(broker.FinishDeadline, 5)),
		outcome(start, 0, 10, cut(broker.FinishCancelled, 5)), outcome(start, 0, 10, cut(broker.FinishCancelled, 0)), outcome(start, 0, 100, cut(broker.FinishStop, 5)),
	} {
		r.Sent(o.Due, o.Due)
		r.Ended(o)
	}
	result := r.Result()
	got := result.All.Fields(result.Window, result.Bounds)
	if result.All.Completed != 2 || result.All.Cancelled != 1 || result.All.Failed["deadline"] != 2 || result.All.Failed["cancelled"] != 1 ||
		got["count_e2el"] != 2 || got["request_goodput"] != 2.0 || got["cancelled"] != 1 || result.Wanted() != 5 || result.Throughput() != 2 {
		t.Errorf("%+v, %v", result.All, got)
	}
}

// TestWindow wants latencies of what was due in the window and throughput of
// what ended in it.
func TestWindow(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	r := record.New(start, time.Second, 2*time.Second, record.Bounds{TTFT: 100 * time.Millisecond, E2EL: 300 * time.Millisecond})
	r.Sent(start, start)
	r.Sent(start.Add(1500*time.Millisecond), start.Add(1507*time.Millisecond))
	r.Ended(outcome(start, 0, 900))                                                         // warm-up
	r.Ended(outcome(start, 900, 1200))                                                      // ends in the window
	r.Ended(outcome(start, 1500, 1800))                                                     // good
	r.Ended(outcome(start, 1500, 2700))                                                     // too long
	r.Ended(outcome(start, 2900, 3200))                                                     // ends after it
	r.Ended(outcome(start, 2000, 2100, func(o *ask.Outcome) { o.Code = "busy" }))           // fails
	r.Ended(outcome(start, 2000, 2100, func(o *ask.Outcome) { o.First = time.Time{} }))     // no tokens
	r.Ended(outcome(start, 2000, 2150, func(o *ask.Outcome) { o.Request.Realtime = true })) // the other path
	result := r.Result()
	got := result.All.Fields(result.Window, result.Bounds)
	for name, want := range map[string]any{
		"completed": 5, "failed": 1, "count_e2el": 5, "count_ttft": 4, "count_tpot": 4, "count_itl": 12, "request_throughput": 2.5,
		"request_goodput": 2.0, "total_output_tokens": 20, "output_throughput": 10.0, "max_itl_ms": 10.0, "max_e2el_ms": 1200.0,
	} {
		v := got[name]
		if f, ok := v.(float64); ok {
			if math.Abs(f/want.(float64)-1) > 0.001 {
				t.Errorf("%s: %v, want %v", name, v, want)
			}
		} else if v != want {
			t.Errorf("%s: %v, want %v", name, v, want)
		}
	}
	if _, there := got["p90_e2el_ms"]; there {
		t.Error("a percentile of five values")
	}
	if result.Due != 1 || math.Abs(result.Late.Max()-7) > 0.01 || result.Paths["realtime"].Completed != 1 || result.Models["m"].Completed != 5 {
		t.Errorf("%+v", result)
	}
	if s := result.Seconds; len(s) != 4 || s[0].Due != 1 || s[0].Ended != 1 || s[2].Ended != 3 || s[2].Failed != 1 || s[0].P50 != 900 {
		t.Errorf("%+v", s)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	b, err := record.ParseBounds([]string{"ttft:200", "e2el:1000.5", "tpot:10"})
	if want := (record.Bounds{TTFT: 200 * time.Millisecond, TPOT: 10 * time.Millisecond, E2EL: 1000500 * time.Microsecond}); err != nil || b != want {
		t.Errorf("%v, %v", b, err)
	}
	for _, text := range []string{"ttft", "ttft:", "ttft:-1", "ttft:NaN", "itl:3", "e2el:1e12"} {
		if _, err := record.ParseBounds([]string{text}); err == nil || !strings.Contains(err.Error(), "goodput") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
