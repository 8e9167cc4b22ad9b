package broker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// What a worker asks the server about the queue on behalf of clients that may
// not ask themselves. The questions come one after the other, and while the
// queue has no leader each would wait in vain.
const (
	glanceWait  = 500 * time.Millisecond // for one answer
	glancePause = time.Second            // without questions after one that failed
)

// errQueueAway means that the queue could not be asked, now or a moment ago.
var errQueueAway = errors.New("queue not asked: it did not answer a moment ago")

// glance asks the queue something by look, unless it was silent a moment ago. Only
// silence counts: an answer that a client does not like, or that its own message
// spoils, must not keep the queue from the others. Only the
// goroutine that answers resume requests calls it.
func (s *Service) glance(ctx context.Context, look func(context.Context) error) error {
	if time.Since(s.queueAway) < glancePause {
		return errQueueAway
	}
	ctx, cancel := context.WithTimeout(ctx, glanceWait)
	defer cancel()
	err := look(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) {
		s.queueAway = time.Now()
		s.conn.log.Warn("queue does not answer", slog.Duration("not_asked_for", glancePause), slog.Any("error", err))
	}
	return err
}

// inQueue reports whether the request's message is in the queue, whoever has it.
// Without a sequence nobody can tell, and it is false.
func (s *Service) inQueue(ctx context.Context, client string, m resumeMessage) (bool, error) {
	if m.Sequence == 0 {
		return false, nil
	}
	var d *Delivery
	err := s.glance(ctx, func(ctx context.Context) (err error) {
		d, err = s.conn.Queued(ctx, m.Sequence)
		return err
	})
	if errors.Is(err, ErrNotStored) || errors.Is(err, ErrBadRecord) { // what is no request is not this one
		return false, nil
	}
	return err == nil && d.isOf(client, m.ID), err
}

// answerServed tells whether a queue takes requests for a model. One of this worker's
// is served when its queue is gone, too: the workers bring it back. While nobody can
// tell, as in an election, it says nothing.
func (s *Service) answerServed(reply string, m resumeMessage) {
	if s.serves(m.Model) {
		s.answerResume(reply, m.ID, ResumeServed)
		return
	}
	ctx, cancel := s.lookup()
	defer cancel()
	state := ResumeUnserved
	err := s.glance(ctx, func(ctx context.Context) error {
		stream, err := s.conn.js.Stream(ctx, s.conn.cfg.Stream.Name)
		if err != nil {
			return err // without a stream too: the workers bring it back
		}
		subject := s.conn.subjects.request(m.Model, Std, "c")
		captures := func(pattern string) bool { return server.SubjectMatchesFilter(subject, pattern) }
		if slices.ContainsFunc(stream.CachedInfo().Config.Subjects, captures) {
			state = ResumeServed
		}
		return nil
	})
	if err != nil {
		s.conn.log.Debug("question about a model not answered", slog.String("model", m.Model), slog.Any("error", err))
		return
	}
	s.answerResume(reply, m.ID, state)
}

// serves reports whether model is one of this worker's.
func (s *Service) serves(model string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.served, func(m ServedModel) bool { return m.Name == model })
}
