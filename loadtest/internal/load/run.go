package load

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/ask"
	"github.com/cellmq/cellmq/loadtest/internal/record"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// Asker sends requests: an [ask.Client], or a simulated server.
type Asker interface {
	// Ask sends a request that was due at a time. done is told how it ends.
	Ask(r *workload.Request, due time.Time, done func(*ask.Outcome)) error
	// Expire ends the requests whose patience has run out, or all of them.
	Expire(now time.Time)
	// InFlight is the number of requests under way.
	InFlight() int
	// Counts are what was seen beside outcomes.
	Counts() ask.Counts
}

// Options describe one load.
type Options struct {
	Plan workload.Plan
	// Warmup is how long requests are sent that do not count, Duration how long
	// those that do. A plan whose requests end before ends the window with its last
	// answer.
	Warmup, Duration time.Duration
	// Bounds of goodput.
	Bounds record.Bounds
	// CPU returns the processor time that the process has used. Nil: not measured.
	CPU func() time.Duration
	// Outages are kept up to date by who has the connection; nil: there are none.
	Outages *Outages
	// Progress is told every second how it goes; nil: nobody.
	Progress func(Progress)
}

// Progress is how a load goes.
type Progress struct {
	Elapsed, Whole time.Duration
	Ended          int // in the last second
	InFlight       int
	P99            float64 // of the last second, milliseconds
}

// mostTime bounds a load.
const mostTime = 7 * 24 * time.Hour

// Validate reports what is wrong with options.
func (o *Options) Validate() error { return errors.Join(o.Plan.Validate(), o.validateTimes()) }

// ValidateLaws reports what is wrong with options whose models need not be known
// yet.
func (o *Options) ValidateLaws() error {
	return errors.Join(o.Plan.ValidateLaws(), o.validateTimes())
}

func (o *Options) validateTimes() error {
	var errs []error
	if o.Duration <= 0 || o.Duration > mostTime {
		errs = append(errs, fmt.Errorf("duration %v: must be above 0 and at most %v", o.Duration, mostTime))
	}
	if o.Warmup < 0 || o.Warmup > mostTime {
		errs = append(errs, fmt.Errorf("warmup %v: must be between 0 and %v", o.Warmup, mostTime))
	}
	return errors.Join(errs...)
}

// overrun is how long after its time a load may still send what was due before, since
// it was late. What is left then is not sent.
const overrun = time.Second

// drainPoll is how often is looked whether all requests have ended.
const drainPoll = 5 * time.Millisecond

// run is a load that goes on.
type run struct {
	options  *Options
	asker    Asker
	recorder *record.Recorder
	start    time.Time
	end      time.Time
	credits  chan struct{} // one for each request that may be under way; nil: no bound
	timer    *time.Timer
	warm     int // requests under way when the window began; -1: it has not
	over     atomic.Bool
	sent     int
	cut      atomic.Int64 // requests that failed, and were under way in an outage
	limit    limit        // why it did not send all that was due
}

// Run puts a load on. When ctx ends it stops early, and returns why; with a report of
// the window up to then if that had begun, which has no requests still under way.
func Run(ctx context.Context, asker Asker, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	start := time.Now()
	r := &run{
		options: &o, asker: asker, start: start, end: start.Add(o.Warmup + o.Duration), timer: time.NewTimer(0), warm: -1,
		recorder: record.New(start, o.Warmup, o.Duration, o.Bounds),
	}
	if n := o.Plan.Arrivals.InFlight; n > 0 {
		r.credits = make(chan struct{}, n)
		for range n {
			r.credits <- struct{}{}
		}
	}
	cpu := r.cpu()
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watch(watching)
	}()
	exhausted, err := r.send(ctx)
	left := asker.InFlight()
	if err == nil {
		err = r.drain(ctx)
	}
	stop()
	<-watched
	now := time.Now()
	r.over.Store(err != nil) // nobody knows how those under way would have ended
	asker.Expire(time.Time{})
	if err != nil && !now.After(start.Add(o.Warmup)) {
		return nil, err
	}
	if err != nil || exhausted {
		r.recorder.Finish(now)
	}
	out := newReport(r, cpu, left)
	out.Interrupted = err != nil
	return out, err
}

func (r *run) cpu() time.Duration {
	if r.options.CPU == nil {
		return 0
	}
	return r.options.CPU()
}

// send sends the requests of the plan until the time is over, or until there are
// no more.
func (r *run) send(ctx context.Context) (exhausted bool, err error) {
	closed := r.options.Plan.Arrivals.Law == workload.Closed
	begin, last := r.start.Add(r.options.Warmup), r.end
	if !closed {
		last = last.Add(overrun)
	}
	for source := r.options.Plan.Source(); ; {
		request, ok := source.Next()
		if !ok {
			return true, nil
		}
		due := r.start.Add(request.At)
		if !closed {
			if !due.Before(r.end) {
				return false, r.wait(ctx, r.end)
			}
			if err := r.wait(ctx, due); err != nil {
				return false, err
			}
			if time.Now().After(last) {
				r.limit = generator
				return false, nil
			}
		}
		if over, err := r.admit(ctx, last); err != nil || over {
			if err == nil && !closed {
				r.limit = bound
			}
			return false, err
		}
		r.sent++
		if closed {
			due = time.Now()
		}
		if r.warm < 0 && !due.Before(begin) {
			r.warm = r.asker.InFlight()
		}
		if err := r.asker.Ask(&request, due, r.ended); err != nil {
			r.recorder.Unsent(due)
			r.failed(due, time.Now())
			r.release()
			continue
		}
		r.recorder.Sent(due, time.Now())
	}
}

// wait returns at a time.
func (r *run) wait(ctx context.Context, at time.Time) error {
	left := time.Until(at)
	if left <= 0 {
		return ctx.Err()
	}
	r.timer.Reset(left)
	select {
	case <-r.timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// admit waits until one more request may be under way, at most until a time. over
// says that this was over before.
func (r *run) admit(ctx context.Context, until time.Time) (over bool, err error) {
	if r.credits == nil {
		return false, nil
	}
	left := time.Until(until)
	if left <= 0 {
		return true, nil
	}
	r.timer.Reset(left)
	select {
	case <-r.credits:
		return false, nil
	case <-r.timer.C:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func (r *run) ended(o *ask.Outcome) {
	if r.over.Load() {
		return
	}
	r.recorder.Ended(o)
	if o.Code != "" {
		r.failed(o.Due, o.End)
	}
	r.release()
}

// failed looks whether a request that failed was under way in an outage. Only those
// due in the window are among the failures of the report.
func (r *run) failed(due, end time.Time) {
	if due.Before(r.start.Add(r.options.Warmup)) || !due.Before(r.end) {
		return
	}
	if times, _ := r.options.Outages.during(due, end); times > 0 {
		r.cut.Add(1)
	}
}

func (r *run) release() {
	if r.credits != nil {
		r.credits <- struct{}{} // there is room: one for each that was taken
	}
}

// drain waits until all requests have ended. Their patience ends them.
func (r *run) drain(ctx context.Context) error {
	ticker := time.NewTicker(drainPoll)
	defer ticker.Stop()
	for r.asker.InFlight() > 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// watch ends requests whose patience has run out, and tells how it goes.
func (r *run) watch(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			r.asker.Expire(now)
			if r.options.Progress == nil {
				continue
			}
			ended, p99 := r.recorder.Recent(now)
			r.options.Progress(Progress{
				Elapsed: now.Sub(r.start), Whole: r.options.Warmup + r.options.Duration, Ended: ended, InFlight: r.asker.InFlight(), P99: p99,
			})
		}
	}
}
