package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// The pace of pulling.
const (
	lowShare     = 16                     // every so many requests the low queues are asked first
	emptyFor     = time.Millisecond       // a queue found empty is not asked again before
	pollWait     = 2 * time.Second        // a poll when every queue can have one
	pollBeat     = 500 * time.Millisecond // its heartbeat
	scarceWait   = 200 * time.Millisecond // a poll when polls take turns
	answerWait   = 2 * time.Second        // an answer that takes longer was lost
	stopWait     = 2 * time.Second        // for the server to confirm that it sends no more
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

// Intake pulls the durable requests of some models. Each model has a queue per
// priority, each queue at most one pull under way:
//
//   - A fetch takes what is there, up to all free credits, and ends at once.
//     Fetches go to the queues in the order high, std, low; models of one
//     priority take turns; every sixteenth request low comes first.
//   - A poll waits for one message, when all queues are empty. It is the bell
//     that tells of new work and binds a single credit; the rest stay free for
//     the fetch that follows. With fewer credits than queues polls take turns.
//
// When a message has come and no credit is left to ask its queue for more, polls
// of other queues are recalled, those first that wait longest: their
// subscriptions are drained, so that what was already on its way still arrives.
//
// Every credit is free, bound to a pull, or with a delivery. A pull that fails
// or falls silent is recalled too, its queue waits with growing intervals and
// makes sure that its consumer exists before it goes on.
//
// The models can change while it runs. The queues of one that leaves are recalled
// in the same way.
type Intake struct {
	conn  *Conn
	stats intakeCounters

	mu     sync.Mutex
	models []string
	// changed holds a signal when models changed since it was last read.
	// Capacity 1: more signals say nothing more.
	changed chan struct{}
}

type intakeCounters struct {
	pulls, delivered, redelivered, unanswerable, failures atomic.Uint64
}

// IntakeStats counts what an intake did since it was made.
type IntakeStats struct {
	// Pulls asked of the server.
	Pulls uint64
	// Delivered requests; Redelivered ones had been delivered before.
	Delivered, Redelivered uint64
	// Unanswerable requests were rejected without a frame: their client's name
	// has white space, control characters or wildcards, or is too long for a
	// reply subject of 512 bytes. Other malformed names are delivered, with
	// [Delivery.Err] set.
	Unanswerable uint64
	// Failures of pulls: lost answers, missing consumers.
	Failures uint64
}

// Intake returns an intake for models, whose stream and consumers must have
// been ensured.
func (c *Conn) Intake(models []string) (*Intake, error) {
	i := &Intake{conn: c, changed: make(chan struct{}, 1)}
	if err := i.SetModels(models); err != nil {
		return nil, err
	}
	return i, nil
}

// SetModels makes models the ones whose requests are pulled. It may be called at
// any time, by any goroutine, and returns at once. Stream and consumers of new
// ones must have been ensured; they are asked for requests as soon as a credit is
// free. The queues of those that leave are asked no more; what was on its way is
// delivered, also after SetModels has returned, and the rest stays queued.
func (i *Intake) SetModels(models []string) error {
	if _, err := i.conn.modelSubjects(models); err != nil {
		return fmt.Errorf("intake: %w", err)
	}
	i.mu.Lock()
	i.models = slices.Clone(models)
	i.mu.Unlock()
	select {
	case i.changed <- struct{}{}:
	default:
	}
	return nil
}

// wanted returns the models now.
func (i *Intake) wanted() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.models)
}

// Stats returns the counters. It is safe for concurrent use.
func (i *Intake) Stats() IntakeStats {
	s := &i.stats
	return IntakeStats{
		Pulls: s.pulls.Load(), Delivered: s.delivered.Load(), Redelivered: s.redelivered.Load(),
		Unanswerable: s.unanswerable.Load(), Failures: s.failures.Load(),
	}
}

// Run pulls until ctx ends and hands each request to deliver, one after the
// other. A delivery holds one of the credits until its Done is called; deliver
// must not block. The credits must not be shared with another intake, and an
// intake runs once at a time. When ctx has ended, Run asks the server to send no more, delivers what was on its way,
// and returns nil; nothing is delivered after that.
func (i *Intake) Run(ctx context.Context, credits *Credits, deliver func(*Delivery)) error {
	l := &loop{
		intake: i, conn: i.conn, credits: credits, deliver: deliver, decoder: i.conn.decoder(),
		// Room for a burst; a full channel only delays the subscriptions.
		events: make(chan event, 256),
		done:   make(chan struct{}),
		sweep:  1,
	}
	l.follow()
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l.run(ctx)
}

// loop is one Run. Its fields belong to Run's goroutine, except for the
// channels.
type loop struct {
	intake  *Intake
	conn    *Conn
	credits *Credits
	deliver func(*Delivery)
	decoder *decoder
	queues  []*queue

	events  chan event
	done    chan struct{} // closed when events is read no more
	workers sync.WaitGroup
	ctx     context.Context //nolint:containedctx // ends the goroutines that ensure consumers
	cancel  context.CancelFunc

	turn     uint64 // counts pulls
	sweep    uint64 // the round of asking the queues; an empty queue stays empty in it
	over     bool   // the sweep has ended: credits or queues are exhausted
	sinceLow int    // requests since low was offered a credit
}

// event is what happened to a queue.
type event struct {
	queue *queue
	at    time.Time
	// One of: a message or status that arrived on sub; sub's end; the result
	// of ensuring the consumer.
	msg     *nats.Msg
	sub     *subscription
	ensured bool
	err     error
}

func (l *loop) run(ctx context.Context) error {
	defer l.workers.Wait()
	defer l.cancel()
	defer close(l.done)
	status := l.conn.nc.StatusChanged(nats.CONNECTED)
	defer l.conn.nc.RemoveStatusListener(status)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		l.schedule(now)
		timer.Reset(max(l.wakeAt(now).Sub(now), time.Millisecond))
		select {
		case e := <-l.events:
			l.handle(e)
			l.handleWaiting()
		case <-l.credits.freed:
		case <-l.intake.changed:
			l.follow()
		case <-timer.C:
			l.expire(time.Now())
		case <-status:
			for _, q := range l.queues { // the server may know nothing of our pulls
				l.recall(q)
			}
		case <-ctx.Done():
			l.stop()
			return nil
		}
	}
}

// handleWaiting takes what has arrived meanwhile, before the next schedule.
func (l *loop) handleWaiting() {
	for range cap(l.events) {
		select {
		case e := <-l.events:
			l.handle(e)
		default:
			return
		}
	}
}

// schedule gives the free credits to the queues. It works in sweeps: a queue
// that was found empty is not asked again in the same sweep, so that each one
// gets its turn however slow the answers and however fast the credits come.
func (l *loop) schedule(now time.Time) {
	if l.credits.Free() <= 0 || !l.conn.nc.IsConnected() {
		return
	}
	if l.over {
		l.sweep++
		l.over = false
	}
	var ask, empty []*queue
	for _, q := range l.queues {
		switch {
		case q.pull != nil || q.recalled || q.ensuring || now.Before(q.notBefore):
		case q.suspect:
			l.ensure(q)
		case q.emptySweep == l.sweep || now.Sub(q.emptyAt) < emptyFor:
			empty = append(empty, q)
		default:
			ask = append(ask, q)
		}
	}
	if len(ask) == 0 {
		l.poll(empty, now)
		l.over = len(empty) > 0
		return
	}
	l.fetch(ask, now)
}

// fetch asks queues that may have messages, in order, as long as there are
// credits.
func (l *loop) fetch(ask []*queue, now time.Time) {
	slices.SortFunc(ask, func(a, b *queue) int {
		return cmp.Or(cmp.Compare(a.priority.rank(), b.priority.rank()), cmp.Compare(a.turn, b.turn))
	})
	if l.sinceLow >= lowShare-1 {
		l.sinceLow = 0
		for _, q := range ask {
			if q.priority == Low {
				l.pull(q, pull{limit: answerWait}, 1, now)
				break
			}
		}
	}
	for _, q := range ask {
		if q.pull == nil {
			l.pull(q, pull{limit: answerWait}, maxFetch, now)
		}
	}
}

// poll waits on queues that are known to be empty, those first that have not
// been asked for longest.
func (l *loop) poll(empty []*queue, now time.Time) {
	slices.SortFunc(empty, func(a, b *queue) int { return cmp.Compare(a.turn, b.turn) })
	p := pull{poll: true, wait: pollWait, beat: pollBeat, limit: 3 * pollBeat}
	if l.credits.Free() <= len(empty) {
		p = pull{poll: true, wait: scarceWait, limit: scarceWait + answerWait}
	}
	for _, q := range empty {
		l.pull(q, p, 1, now)
	}
}

// handle takes one event.
func (l *loop) handle(e event) {
	q := e.queue
	switch {
	case e.ensured:
		q.ensuring, q.suspect = false, false
		if e.err != nil && !q.leaving {
			l.fail(q, e.err.Error(), e.at)
		}
	case e.msg == nil: // the subscription has ended; nothing comes any more
		if q.sub == e.sub {
			q.sub = nil
			l.end(q)
			l.forget()
		}
	case e.msg.Reply == "": // a delivery says where it is settled, whatever its headers say
		l.status(q, e)
	default:
		l.message(q, e)
	}
}

// expire ends pulls that have fallen silent.
func (l *loop) expire(now time.Time) {
	for _, q := range l.queues {
		if q.pull != nil && !q.recalled && now.Sub(q.pull.seen) > q.pull.limit {
			l.fail(q, "no answer", now)
			l.recall(q)
		}
	}
}

// wakeAt is when something is due without an event.
func (l *loop) wakeAt(now time.Time) time.Time {
	const idle, disconnected = 10 * time.Second, 100 * time.Millisecond
	if !l.conn.nc.IsConnected() {
		return now.Add(disconnected)
	}
	wake := now.Add(idle)
	for _, q := range l.queues {
		at := wake
		switch {
		case q.recalled || q.ensuring:
		case q.pull != nil:
			at = q.pull.seen.Add(q.pull.limit)
		case now.Before(q.notBefore):
			at = q.notBefore
		}
		if at.Before(wake) {
			wake = at
		}
	}
	return wake
}

// stop drains all subscriptions and delivers what they still bring.
func (l *loop) stop() {
	l.cancel()
	timeout := time.NewTimer(stopWait)
	defer timeout.Stop()
	for _, q := range l.queues {
		l.recall(q)
	}
	for l.subscribed() {
		select {
		case e := <-l.events:
			l.handle(e)
		case <-timeout.C:
			l.conn.log.Warn("server did not confirm the end of the intake")
			for _, q := range l.queues {
				q.drop()
				l.end(q)
			}
		}
	}
}

func (l *loop) subscribed() bool {
	return slices.ContainsFunc(l.queues, func(q *queue) bool { return q.sub != nil })
}

func (p Priority) rank() int { return slices.Index(priorities(), p) }
