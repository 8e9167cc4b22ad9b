package load

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/ask"
	"github.com/cellmq/cellmq/loadtest/internal/record"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// limit is why a load did not send all that was due.
type limit int

const (
	unlimited limit = iota
	generator       // it could not send faster
	bound           // of concurrency
)

// Report is what became of a load.
type Report struct {
	Plan     workload.Plan
	Warmup   time.Duration
	Duration time.Duration
	*record.Result
	// Counts are what the client saw beside outcomes.
	Counts ask.Counts
	// CPU is the processor time of the load test itself, and Ended what it was for:
	// all requests, warm-up included.
	CPU   time.Duration
	Ended int
	// InFlight is the number of requests under way when the window began, and when
	// it ended.
	InFlight [2]int
	// Sent is the number of requests that were sent, warm-up included, and Planned that
	// of those that were due, about. They are equal unless the load was [Report.Limited].
	Sent, Planned int
	limit         limit
	// Disconnected is when the load test itself had no connection.
	Disconnected Disconnected
	// Interrupted says that the load ended before its time: requests under way then
	// have neither completed nor failed.
	Interrupted bool
}

func newReport(r *run, cpu time.Duration, left int) *Report {
	out := &Report{
		Plan: r.options.Plan, Warmup: r.options.Warmup, Duration: r.options.Duration, Result: r.recorder.Result(), Counts: r.asker.Counts(),
		CPU: r.cpu() - cpu, InFlight: [2]int{max(r.warm, 0), left}, Sent: r.sent, Planned: r.sent, limit: r.limit,
	}
	out.Disconnected.Times, out.Disconnected.For = r.options.Outages.during(r.start, time.Now())
	out.Disconnected.Failed = int(r.cut.Load())
	if r.limit != unlimited {
		out.Planned = max(r.options.Plan.Planned(r.options.Warmup+r.options.Duration), r.sent+1)
	}
	for _, s := range out.Seconds {
		out.Ended += s.Ended + s.Failed
	}
	return out
}

// Limited reports whether requests that were due were not sent, since the load test
// was too slow or the bound of concurrency was reached.
func (r *Report) Limited() bool { return r.limit != unlimited }

// CPUPerThousand is the load test's own processor time for 1,000 requests, which
// is its share of a core at 1,000 requests a second.
func (r *Report) CPUPerThousand() time.Duration {
	if r.Ended == 0 {
		return 0
	}
	return r.CPU * 1000 / time.Duration(r.Ended)
}

// lateEnough is how late the sender may be, at its 99th percentile, before the
// report warns.
const lateEnough = 10 * time.Millisecond

// Warnings say what makes figures doubtful.
func (r *Report) Warnings() []string {
	var out []string
	if r.Limited() {
		why := "the others waited for the bound of concurrency"
		if r.limit == generator {
			why = fmt.Sprintf("the load test, not the workers, could not send faster than %.0f/s", float64(r.Sent)/(r.Warmup+r.Duration+overrun).Seconds())
		}
		if r.Due == 0 {
			why += ", and none of those in the window"
		}
		out = append(out, fmt.Sprintf("only %d of about %d requests were sent before the end: %s", r.Sent, r.Planned, why))
	}
	if r.Disconnected.Times > 0 {
		out = append(out, r.Disconnected.warning())
	}
	bounded := r.Plan.Arrivals.InFlight > 0 && r.Plan.Arrivals.Law != workload.Closed
	if p99, ok := r.Late.Quantile(0.99); ok && p99 > float64(lateEnough.Milliseconds()) {
		why := "the load test was a bottleneck"
		if bounded {
			why = "requests waited for the bound of concurrency, or for the load test"
		}
		out = append(out, fmt.Sprintf("requests were sent late, %.1f ms at the 99th percentile: %s; the latencies include it", p99, why))
	}
	if r.Counts.Dropped > 0 {
		out = append(out, fmt.Sprintf("%d messages were dropped on this side: the load test was too slow", r.Counts.Dropped))
	}
	if r.Counts.Malformed > 0 {
		out = append(out, fmt.Sprintf("%d messages were no frames", r.Counts.Malformed))
	}
	if n := r.All.Missing(); n > 0 {
		out = append(out, fmt.Sprintf("%d frames never came", n))
	}
	if r.Interrupted {
		out = append(out, fmt.Sprintf("the load was interrupted: %d requests had not ended, and are only among those due", r.InFlight[1]))
	}
	if r.Due == 0 && !r.Limited() {
		out = append(out, "no request was due in the window")
	}
	return out
}

// MarshalJSON writes one object. The figures of all requests are its own keys.
func (r *Report) MarshalJSON() ([]byte, error) {
	out := r.All.Fields(r.Window, r.Bounds)
	maps.Copy(out, map[string]any{
		"plan": &r.Plan, "warmup_s": r.Warmup.Seconds(), "duration": r.Window.Seconds(), "bounds": r.Bounds,
		"sent_requests": r.Sent, "planned_requests": r.Planned, "due": r.Due, "offered_rate": r.Offered(), "max_concurrency": r.Plan.Arrivals.InFlight,
		"duplicate_finals": r.Counts.Duplicates, "malformed_messages": r.Counts.Malformed, "dropped_messages": r.Counts.Dropped,
		"missing_frames": r.All.Missing(), "repeated_requests": r.All.Repeated(),
		"in_flight_begin": r.InFlight[0], "in_flight_end": r.InFlight[1],
		"cpu_seconds": r.CPU.Seconds(), "cpu_seconds_per_1000_requests": r.CPUPerThousand().Seconds(), "host": host(),
		"seconds": r.Seconds, "warnings": r.Warnings(),
	})
	if d := &r.Disconnected; d.Times > 0 {
		out["connection_losses"], out["connection_lost_seconds"], out["failed_in_connection_losses"] = d.Times, d.For.Seconds(), d.Failed
	}
	if r.Interrupted {
		out["interrupted"] = true
	}
	if p99, ok := r.Late.Quantile(0.99); ok {
		out["p99_send_delay_ms"] = p99
	}
	if r.Late.Count() > 0 {
		out["max_send_delay_ms"] = r.Late.Max()
	}
	for name, groups := range map[string]map[string]*record.Group{
		"by_model": r.Models, "by_priority": r.Priorities, "by_client": r.Clients, "by_path": r.Paths,
	} {
		each := map[string]any{}
		for key, g := range groups {
			each[key] = g.Fields(r.Window, r.Bounds)
		}
		out[name] = each
	}
	return json.Marshal(out)
}

func host() string {
	return fmt.Sprintf("%d processors, %s, %s/%s", runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
