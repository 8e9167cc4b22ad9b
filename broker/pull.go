package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// maxFetch bounds one fetch.
const maxFetch = 256

// queue is one model and priority, with its consumer and its pull.
type queue struct {
	model    string
	priority Priority
	name     string // of the consumer

	sub        *subscription // nil before the first pull and after a recall
	pull       *pull         // nil: none under way
	recalled   bool          // sub is being drained
	leaving    bool          // its model is wanted no more; it ends with sub
	turn       uint64        // of the last pull
	emptyAt    time.Time     // when it was last found empty,
	emptySweep uint64        // and in which sweep

	failures  int
	notBefore time.Time
	suspect   bool // its consumer must be ensured before the next pull
	ensuring  bool
}

// pull is one request for messages.
type pull struct {
	turn       uint64 // the last token of its reply subject
	asked, got int
	poll       bool
	wait, beat time.Duration // of a poll
	limit      time.Duration // without a sign of life
	seen       time.Time     // the last one
}

// subscription is a queue's inbox. It is replaced after a recall.
type subscription struct {
	inbox string
	sub   *nats.Subscription
}

// pull asks for up to n messages, as many as there are credits.
func (l *loop) pull(q *queue, p pull, n int, now time.Time) {
	p.asked = l.credits.TryTake(n)
	if p.asked == 0 {
		return
	}
	l.turn++
	p.turn, p.seen = l.turn, now
	q.turn, q.pull = p.turn, &p
	l.intake.stats.pulls.Add(1)
	err := l.subscribe(q)
	if err == nil {
		err = l.conn.nc.PublishRequest(l.nextSubject(q), q.sub.inbox+"."+strconv.FormatUint(p.turn, 10), p.payload())
	}
	if err != nil {
		l.fail(q, err.Error(), now)
		l.end(q)
	}
}

func (l *loop) nextSubject(q *queue) string {
	return jetstream.DefaultAPIPrefix + "CONSUMER.MSG.NEXT." + l.conn.cfg.Stream.Name + "." + q.name
}

func (p *pull) payload() []byte {
	if !p.poll {
		return fmt.Appendf(nil, `{"batch":%d,"no_wait":true}`, p.asked)
	}
	return fmt.Appendf(nil, `{"batch":%d,"expires":%d,"idle_heartbeat":%d}`, p.asked, p.wait, p.beat)
}

// subscribe makes the queue's inbox. Its callbacks turn into events, the end of
// the subscription last.
func (l *loop) subscribe(q *queue) error {
	if q.sub != nil {
		return nil
	}
	s := &subscription{inbox: l.conn.nc.NewInbox()}
	sub, err := l.conn.nc.Subscribe(s.inbox+".*", func(m *nats.Msg) {
		l.post(event{queue: q, at: time.Now(), msg: m, sub: s})
	})
	if err != nil {
		return err
	}
	sub.SetClosedHandler(func(string) { l.post(event{queue: q, sub: s}) })
	s.sub, q.sub = sub, s
	return nil
}

func (l *loop) post(e event) {
	select {
	case l.events <- e:
	case <-l.done:
	}
}

// recall ends a pull early: no new messages, but those on their way. The
// queue's subscription posts its end.
func (l *loop) recall(q *queue) {
	if q.sub == nil || q.recalled {
		return
	}
	q.recalled = true
	var err error
	if l.conn.nc.IsConnected() {
		err = q.sub.sub.Drain()
	} else {
		err = q.sub.sub.Unsubscribe()
	}
	if err != nil {
		q.sub = nil
		l.end(q)
	}
}

// drop forgets the subscription at once.
func (q *queue) drop() {
	if q.sub != nil {
		_ = q.sub.sub.Unsubscribe() // fails when it has ended already
		q.sub = nil
	}
}

// end frees what is left of the queue's pull.
func (l *loop) end(q *queue) {
	if q.sub == nil {
		q.recalled = false
	}
	if p := q.pull; p != nil {
		q.pull = nil
		if left := p.asked - p.got; left > 0 {
			l.credits.Release(left)
		}
	}
}

// isAnswer reports whether subject is the one that the server's word on a pull
// comes on.
func (s *subscription) isAnswer(subject string, turn uint64) bool {
	rest, ok := strings.CutPrefix(subject, s.inbox+".")
	return ok && rest == strconv.FormatUint(turn, 10)
}

// turnOf reads the last token of an inbox subject.
func turnOf(subject string) uint64 {
	n, err := strconv.ParseUint(subject[strings.LastIndexByte(subject, '.')+1:], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// status takes a message without content from the server: a heartbeat, or the
// end of a pull.
func (l *loop) status(q *queue, e event) {
	p := q.pull
	if p == nil || !e.sub.isAnswer(e.msg.Subject, p.turn) {
		return
	}
	p.seen = e.at
	switch code := e.msg.Header.Get(headerStatus); code {
	case "100": // heartbeat
		return
	case "404", "408": // no messages; expired
		q.failures = 0
		l.foundEmpty(q, e.at)
	case "409":
		text := e.msg.Header.Get(headerDescription)
		if strings.Contains(text, "Batch Completed") {
			break
		}
		l.fail(q, text, e.at)
	default: // 503: no consumer there
		l.fail(q, "status "+code+" "+e.msg.Header.Get(headerDescription), e.at)
	}
	l.end(q)
}

func (l *loop) foundEmpty(q *queue, at time.Time) { q.emptyAt, q.emptySweep = at, l.sweep }

// fail makes the queue wait; then its consumer is ensured.
func (l *loop) fail(q *queue, reason string, now time.Time) {
	l.intake.stats.failures.Add(1)
	wait := maxBackoff
	if q.failures < 7 {
		wait = min(maxBackoff, firstBackoff<<q.failures)
	}
	q.failures++
	q.notBefore = now.Add(jitter(wait))
	l.conn.log.Warn("pull failed", slog.String("consumer", q.name), slog.String("reason", reason), slog.Int("failures", q.failures))
	q.suspect = true
}

// ensure makes sure that a queue's consumer exists before it is asked again.
// It runs after the wait: a consumer made anew while its stream is being
// deleted would answer without ever delivering.
func (l *loop) ensure(q *queue) {
	q.ensuring = true
	l.workers.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, requestTimeout)
		defer cancel()
		// A server that stops takes the question and never answers.
		short, end := context.WithTimeout(ctx, answerWait)
		err := l.conn.ensureConsumer(short, q.model, q.priority)
		end()
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if err = l.conn.EnsureStreams(ctx, []string{q.model}); err == nil {
				err = l.conn.ensureConsumer(ctx, q.model, q.priority)
			}
		}
		l.post(event{queue: q, at: time.Now(), ensured: true, err: err})
	})
}

// message turns a message into a delivery.
func (l *loop) message(q *queue, e event) {
	// A message bears its own subject, not the inbox's; but a subscription only
	// gets messages of the queue's one pull.
	if p := q.pull; p != nil && e.sub == q.sub && p.got < p.asked {
		p.got++
		p.seen = e.at
		q.failures = 0
		if p.got == p.asked {
			q.emptyAt, q.emptySweep = time.Time{}, 0 // there may be more
			l.end(q)
		}
	} else if l.credits.TryTake(1) == 0 {
		// It answers a pull that has ended: hand it back.
		l.settleRaw(e.msg, []byte(`-NAK {"delay":100000000}`))
		return
	}
	if l.credits.Free() <= 0 {
		l.over = true
	}
	d, pending := l.delivery(q, e)
	if d == nil {
		l.credits.Release(1)
		return
	}
	if q.priority != Low {
		l.sinceLow++
	}
	if q.pull == nil && l.credits.Free() <= 0 {
		l.recallPolls(max(pending, 1))
	}
	l.deliver(d)
}

// recallPolls takes back the credits of up to n polls.
func (l *loop) recallPolls(n uint64) {
	var polls []*queue
	for _, q := range l.queues {
		if q.pull != nil && q.pull.poll && !q.recalled {
			polls = append(polls, q)
		}
	}
	slices.SortFunc(polls, func(a, b *queue) int { return cmp.Compare(a.turn, b.turn) })
	for _, q := range polls[:min(n, uint64(len(polls)))] {
		l.recall(q)
		l.foundEmpty(q, time.Now())
	}
}

// delivery decodes a message. Nil: it could not be answered, and was rejected.
func (l *loop) delivery(q *queue, e event) (d *Delivery, pending uint64) {
	meta, err := e.msg.Metadata()
	if err != nil {
		l.conn.log.Error("message without metadata", slog.String("consumer", q.name), slog.Any("error", err))
		return nil, 0
	}
	cfg := &l.conn.cfg
	req, bad := l.decoder.durable(message{
		subject: e.msg.Subject, header: e.msg.Header, payload: e.msg.Data,
	}, meta.Sequence.Stream, meta.Timestamp, e.at)
	lease := newLease(l.conn.epoch(q.name), meta.NumDelivered, e.msg.Reply, cfg.AckWait-cfg.LeaseMargin, e.at, l.conn.nc.Publish)
	if req.Reply == "" {
		l.intake.stats.unanswerable.Add(1)
		l.conn.log.Warn("request cannot be answered", slog.String("model", q.model), slog.Uint64("sequence", meta.Sequence.Stream))
		if err := lease.Reject("client name cannot be part of a reply subject"); err != nil {
			l.conn.log.Warn("request not rejected", slog.Any("error", err))
		}
		return nil, 0
	}
	l.intake.stats.delivered.Add(1)
	if meta.NumDelivered > 1 {
		l.intake.stats.redelivered.Add(1)
	}
	return &Delivery{Request: req, Err: bad, Lease: lease, credits: l.credits}, meta.NumPending
}

func (l *loop) settleRaw(m *nats.Msg, payload []byte) {
	if err := l.conn.nc.Publish(m.Reply, payload); err != nil {
		l.conn.log.Warn("message not handed back", slog.Any("error", err))
	}
}

// epoch is the creation time of a consumer, unix milliseconds.
func (c *Conn) epoch(consumer string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epochs[consumer]
}
