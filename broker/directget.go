package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// Headers and statuses of the server's answers to direct gets.
const (
	headerStatus      = "Status"
	headerDescription = "Description"
	headerSubject     = "Nats-Subject"
	headerSequence    = "Nats-Sequence"
	headerStamp       = "Nats-Time-Stamp"
	headerPending     = "Nats-Num-Pending"
	headerLast        = "Nats-Last-Sequence"
	statusEnd         = "204"
	statusNone        = "404"
	statusNobody      = "503"
	batchBytes        = 8 << 20 // a batch must fit into what a subscription may have pending
	batchMessages     = 64
)

// What tells the server's own word from a record; see statusOf.
const (
	statusLines = 6  // more headers than any status has
	statusSlack = 64 // bytes between the spellings of one header, fewer than the server's lines on a record
)

// statusOf returns the status of an answer that is the server's own word, and
// false when it is a record. A record comes with the headers of whoever published
// it, Status among them if he likes, and behind them the server's, with the
// sequence. A reader stops at the first empty line, and what a publisher put one
// before hides the server's lines: so a status has besides no data and no bytes
// but those of the headers that were read.
func statusOf(m *nats.Msg) (status string, ok bool) {
	return readStatus(m.Header, len(m.Data), m.Size()-len(m.Subject))
}

// readStatus is statusOf for a header, the size of the data, and that of the
// message without its subject.
func readStatus(h nats.Header, data, size int) (status string, ok bool) {
	if data > 0 || len(h) > statusLines || len(h[headerSequence]) > 0 || len(h[headerStatus]) == 0 {
		return "", false
	}
	read := 0
	for name, values := range h {
		if len(values) != 1 {
			return "", false
		}
		read += len(name) + len(values[0])
	}
	return h[headerStatus][0], size <= read+statusSlack
}

// statusError is what a status says that is no answer to a get.
func statusError(status string, m *nats.Msg) error {
	if status == statusNobody {
		return nats.ErrNoResponders
	}
	return fmt.Errorf("server: status %s %s", clip(status), clip(m.Header.Get(headerDescription)))
}

// directRecord reads a message as direct gets bring it.
func directRecord(m *nats.Msg) (*record, error) {
	sequence, stamp := serverValue(m.Header, headerSequence), serverValue(m.Header, headerStamp)
	seq, err := strconv.ParseUint(sequence, 10, 64)
	if err != nil {
		return nil, badRecord("sequence %q", clip(sequence))
	}
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return nil, badRecord("time %q", clip(stamp))
	}
	return &record{subject: serverValue(m.Header, headerSubject), sequence: seq, header: m.Header, data: m.Data, at: at}, nil
}

// serverValue is the server's own value of a header: it comes after those of
// whoever published the message.
func serverValue(h nats.Header, name string) string {
	values := h[name]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// directGet reads the last message of a subject, from any replica;
// [ErrNotStored] when there is none, [ErrBadRecord] when its header cannot be read.
func (c *Conn) directGet(ctx context.Context, stream, subject string) (*record, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	get := apiSubject("DIRECT.GET", stream) + "." + subject
	m, err := c.request(ctx, &nats.Msg{Subject: get})
	if errors.Is(err, nats.ErrNoResponders) { // to the library a record with that status looks the same
		m, err = c.plainGet(ctx, get)
	}
	if err != nil {
		return nil, err
	}
	switch status, ok := statusOf(m); {
	case !ok:
		return directRecord(m)
	case status == statusNone:
		return nil, ErrNotStored
	default:
		return nil, statusError(status, m)
	}
}

// plainGet is a request whose answer the library does not look into.
func (c *Conn) plainGet(ctx context.Context, get string) (*nats.Msg, error) {
	answers, end, err := c.ask(get, nil, 1)
	if err != nil {
		return nil, err
	}
	defer end()
	return nextAnswer(ctx, answers)
}

// ask publishes a question with up to n answers. A synchronous subscription of
// the library would swallow a record with the status that nobody is there.
func (c *Conn) ask(subject string, payload []byte, n int) (answers <-chan *nats.Msg, end func(), err error) {
	inbox, room := c.nc.NewInbox(), make(chan *nats.Msg, n)
	sub, err := c.nc.ChanSubscribe(inbox, room)
	if err != nil {
		return nil, nil, err
	}
	end = func() { _ = sub.Unsubscribe() } // fails when the connection is closed
	if err := c.nc.PublishRequest(subject, inbox, payload); err != nil {
		end()
		return nil, nil, err
	}
	return room, end, nil
}

func nextAnswer(ctx context.Context, answers <-chan *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	select {
	case m := <-answers:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// batch is what a batch get brought: records in their order, the sequence behind
// all that the server looked at, and whether there are others.
type batch struct {
	records []*record
	next    uint64
	more    bool
}

// batchGet reads messages of a subject, which may have wildcards, from a sequence on,
// as many as the server sends at once. A record whose header cannot be read is logged
// and left out.
func (c *Conn) batchGet(ctx context.Context, stream, subject string, from uint64, n int) (batch, error) {
	n, from = min(n, batchMessages), max(from, 1)
	get := fmt.Appendf(nil, `{"batch":%d,"max_bytes":%d,"seq":%d,"next_by_subj":%q}`, n, batchBytes, from, subject)
	answers, end, err := c.ask(apiSubject("DIRECT.GET", stream), get, n+1)
	if err != nil {
		return batch{}, err
	}
	defer end()
	b := batch{next: from}
	for {
		m, err := nextAnswer(ctx, answers)
		if err != nil {
			return batch{}, err
		}
		ended, err := b.take(m)
		switch {
		case errors.Is(err, ErrBadRecord):
			c.log.Warn("malformed record", slog.String("stream", stream), slog.Any("error", err))
		case err != nil:
			return batch{}, err
		case ended:
			return b, nil
		}
	}
}

// take takes an answer, and reports whether it was the last one. The end says how
// far the server has looked: a record that claims to be elsewhere has its header
// from whoever published it.
func (b *batch) take(m *nats.Msg) (ended bool, err error) {
	status, ok := statusOf(m)
	switch {
	case !ok:
		r, err := directRecord(m)
		if err == nil {
			b.records = append(b.records, r)
		}
		return false, err
	case status == statusNone:
		return true, nil
	case status != statusEnd:
		return false, statusError(status, m)
	}
	text := m.Header.Get(headerLast)
	last, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return false, fmt.Errorf("server: %s %q at the end of a batch", headerLast, clip(text))
	}
	b.records = slices.DeleteFunc(b.records, func(r *record) bool { return r.sequence < b.next || r.sequence > last })
	b.next, b.more = max(b.next, last+1), m.Header.Get(headerPending) != "0"
	return true, nil
}

// readFrom hands the messages of a subject from a sequence on to take, until it
// says no or there are no more. A stream that is not there is empty, and made.
func (c *Conn) readFrom(ctx context.Context, stream, subject string, from uint64, n int, take func(*record) bool) error {
	for n > 0 {
		b, err := c.batchGet(ctx, stream, subject, from, n)
		if errors.Is(err, nats.ErrNoResponders) {
			return c.ensureStores(ctx)
		}
		if err != nil {
			return err
		}
		for _, r := range b.records {
			if !take(r) {
				return nil
			}
		}
		if !b.more || b.next <= from {
			return nil
		}
		from = b.next
	}
	return nil
}
