package broker

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// How a durable request is published again for which the server has no queue.
const (
	defaultNoQueueWait = 10 * time.Second
	noQueueFirst       = 100 * time.Millisecond // doubles
	noQueueLongest     = time.Second
	noQueueRetry       = time.Second // advice in the refusal at the end
)

// Where a server says which streams capture a subject, and the answer's type.
const (
	streamNames     = "$JS.API.STREAM.NAMES"
	streamNamesType = "io.nats.jetstream.api.v1.stream_names_response"
)

// absence is what a request knows of a queue that is not there. Its stream's
// lock guards it.
type absence struct {
	since time.Time     // the first word of it; zero: none
	pause time.Duration // before the next publication
	// What was answered since the last publication: the server knows no stream that
	// captures the subject, no worker is there to ask.
	noStream, noWorker bool
}

// absent takes the server's word that nothing took the publication: no stream
// captures the subject, or the one that does has no leader, as in an election
// and while JetStream starts. The first is asked for, of the server and of the
// workers; it ends the request. The workers decide: users with permissions may not
// ask the server, and a stream that was deleted is about to be made again. The
// server's word is enough when no worker is there. The second passes, so the
// request is published again under its id.
func (s *Stream) absent() {
	s.mu.Lock()
	g := &s.guard
	if s.ended || g.msg == nil {
		s.mu.Unlock()
		return // a publication was stored; this is about one that repeated it
	}
	g.tries = max(g.tries-1, 0) // this one is answered: nothing has the request
	now := time.Now()
	a := &g.absence
	if a.since.IsZero() {
		a.since, a.pause = now, noQueueFirst
	}
	subject, pause := g.msg.Subject, a.pause/2+rand.N(a.pause) //nolint:gosec // spreads clients, no secret
	left := s.client.cfg.NoQueueWait - now.Sub(a.since)
	if left > 0 {
		a.pause = min(2*a.pause, noQueueLongest)
		a.noStream, a.noWorker = false, false
		g.seen = now
		g.timer.Reset(min(pause, left))
	}
	s.mu.Unlock()
	if left <= 0 {
		e := NewError(CodeBusy, fmt.Sprintf("no queue takes requests for model %s now", s.model))
		e.RetryAfter = noQueueRetry
		s.push(s.refusal(e), false)
		return
	}
	s.client.askStreams(subject, s.replies)
	s.client.sendQuestion(resumeMessage{ID: s.id, Model: s.model}, s.replies)
}

// streamsTold takes the answer about the streams that capture the request's
// subject, and reports whether payload is one. A server that cannot tell answers
// with an error.
func (s *Stream) streamsTold(payload []byte) bool {
	var r struct {
		Type  string          `json:"type"`
		Total int             `json:"total"`
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(payload, &r) != nil || r.Type != streamNamesType {
		return false
	}
	if r.Error == nil && r.Total == 0 {
		s.alone(func(a *absence) { a.noStream = true })
	}
	return true
}

// alone notes an answer to the questions about a queue that is not there. When the
// server knows of no stream and no worker is there, the model is unknown.
func (s *Stream) alone(answered func(*absence)) {
	s.mu.Lock()
	a := &s.guard.absence
	answered(a)
	unserved := a.noStream && a.noWorker
	s.mu.Unlock()
	if unserved {
		s.noQueue()
	}
}

// noQueue takes the word that no stream captures the request's subject, and none
// will. It counts while no publication is under way that could
// have found one.
func (s *Stream) noQueue() {
	s.mu.Lock()
	g := &s.guard
	counts := g.msg != nil && g.tries == 0 && !g.absence.since.IsZero()
	s.mu.Unlock()
	if counts {
		s.push(s.refusal(s.unserved()), false)
	}
}

func (s *Stream) unserved() *Error {
	return NewError(CodeUnknownModel, "no worker serves model "+s.model)
}

// askStreams asks the server which streams capture subject. The answer goes to
// the last token replies. A user without the permission to ask is told so by the
// connection's last error, and does not ask again.
func (c *Client) askStreams(subject, replies string) {
	if err := c.nc.LastError(); err != nil && strings.Contains(err.Error(), streamNames) {
		c.mayNotAsk.Store(true)
	}
	if c.mayNotAsk.Load() {
		return
	}
	payload, err := json.Marshal(map[string]string{"subject": subject})
	if err == nil {
		err = c.nc.PublishMsg(&nats.Msg{Subject: streamNames, Reply: c.subjects.out(c.cfg.Name, replies), Data: payload})
	}
	if err != nil {
		c.cfg.Logger.Warn("question about streams not sent", slog.Any("error", err))
	}
}

// renewed returns m with what is left of its budget: the server counts the
// durations from the publication that it stores.
func renewed(m *nats.Msg) *nats.Msg {
	ms, err := strconv.ParseInt(m.Header.Get(HeaderDeadline), 10, 64)
	if err != nil {
		return m
	}
	again := &nats.Msg{Subject: m.Subject, Reply: m.Reply, Data: m.Data, Header: nats.Header{}}
	for name, values := range m.Header {
		again.Header[name] = values
	}
	setBudget(again.Header, time.UnixMilli(ms), true)
	return again
}
