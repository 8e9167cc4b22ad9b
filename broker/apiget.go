package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Headers and statuses of the server's answers to direct gets.
const (
	headerStatus    = "Status"
	headerSubject   = "Nats-Subject"
	headerSequence  = "Nats-Sequence"
	headerStamp     = "Nats-Time-Stamp"
	headerPending   = "Nats-Num-Pending"
	statusEnd       = "204"
	statusNone      = "404"
	statusNobody    = "503"
	batchBytes      = 8 << 20 // a batch must fit into what a subscription may have pending
	batchMessages   = 64
	apiWrongLast    = 10071 // another message of this subject is stored
	apiInProcess    = 10164 // another message of this subject is being stored
	apiNoMessage    = 10037
	apiNoSequence   = 10043
	apiDeleteFailed = 10057
	apiNoStream     = 10059
)

// record is a message of a stream.
type record struct {
	subject  string
	sequence uint64
	header   nats.Header
	data     []byte
	at       time.Time
}

// apiError is the server's refusal.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("server: %s (%d)", clip(e.Description), e.ErrCode)
}

// passes reports whether the same question may get another answer later.
func (e *apiError) passes() bool {
	return e.Code >= 500 || e.ErrCode == apiInProcess || e.ErrCode == apiTooMany || e.ErrCode == apiNoStream
}

// apiReply is the server's answer to a publication or to a get.
type apiReply struct {
	Type    string    `json:"type"`
	Stream  string    `json:"stream"`
	Error   *apiError `json:"error"`
	Message *struct {
		Subject  string    `json:"subject"`
		Sequence uint64    `json:"seq"`
		Header   []byte    `json:"hdrs"`
		Data     []byte    `json:"data"`
		Time     time.Time `json:"time"`
	} `json:"message"`
}

// record reads the answer to a get.
func (r *apiReply) record() (*record, error) {
	m := r.Message
	switch {
	case r.Error != nil && r.Error.ErrCode == apiNoMessage:
		return nil, ErrNotStored
	case r.Error != nil:
		return nil, r.Error
	case m == nil:
		return nil, fmt.Errorf("answer without a message: %w", ErrBadRecord)
	}
	rec := &record{subject: m.Subject, sequence: m.Sequence, data: m.Data, at: m.Time}
	if len(m.Header) > 0 {
		var err error
		if rec.header, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return nil, fmt.Errorf("header: %w: %w", ErrBadRecord, err)
		}
	}
	return rec, nil
}

func apiSubject(verb, stream string) string { return jetstream.DefaultAPIPrefix + verb + "." + stream }

// lastGet is the leader's get of the last message of a subject.
func lastGet(subject string) []byte {
	return append(strconv.AppendQuote([]byte(`{"last_by_subj":`), subject), '}')
}

// api asks the leader of a stream.
func (c *Conn) api(ctx context.Context, subject string, payload []byte) (*apiReply, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := c.request(ctx, &nats.Msg{Subject: subject, Data: payload})
	if err != nil {
		return nil, err
	}
	var r apiReply
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return nil, fmt.Errorf("answer of the server: %w", err)
	}
	return &r, nil
}

// leaderGet reads a message; [ErrNotStored] when there is none.
func (c *Conn) leaderGet(ctx context.Context, stream string, payload []byte) (*record, error) {
	r, err := c.api(ctx, apiSubject("STREAM.MSG.GET", stream), payload)
	if err != nil {
		return nil, err
	}
	return r.record()
}

// directGet reads the last message of a subject, from any replica;
// [ErrNotStored] when there is none.
func (c *Conn) directGet(ctx context.Context, stream, subject string) (*record, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := c.request(ctx, &nats.Msg{Subject: apiSubject("DIRECT.GET", stream) + "." + subject})
	if err != nil {
		return nil, err
	}
	switch status := m.Header.Get(headerStatus); status {
	case "":
		return directRecord(m)
	case statusNone:
		return nil, ErrNotStored
	default:
		return nil, fmt.Errorf("server: status %s %s", status, m.Header.Get("Description"))
	}
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

// batchGet reads messages of a subject, which may have wildcards, from a sequence on,
// as many as the server sends at once; more says that there are others.
func (c *Conn) batchGet(ctx context.Context, stream, subject string, from uint64, n int) (batch []*record, more bool, err error) {
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails when the connection is closed
	ask := fmt.Appendf(nil, `{"batch":%d,"max_bytes":%d,"seq":%d,"next_by_subj":%q}`, min(n, batchMessages), batchBytes, max(from, 1), subject)
	if err := c.nc.PublishRequest(apiSubject("DIRECT.GET", stream), inbox, ask); err != nil {
		return nil, false, err
	}
	for {
		m, err := nextAnswer(ctx, sub)
		if err != nil {
			return nil, false, err
		}
		switch status := m.Header.Get(headerStatus); status {
		case "":
		case statusEnd:
			return batch, m.Header.Get(headerPending) != "0", nil
		case statusNone:
			return batch, false, nil
		case statusNobody:
			return nil, false, nats.ErrNoResponders
		default:
			return nil, false, fmt.Errorf("server: status %s %s", status, m.Header.Get("Description"))
		}
		r, err := directRecord(m)
		if err != nil {
			return nil, false, err
		}
		batch = append(batch, r)
	}
}

func nextAnswer(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	m, err := sub.NextMsgWithContext(ctx)
	if errors.Is(err, nats.ErrNoResponders) {
		return &nats.Msg{Header: nats.Header{headerStatus: {statusNobody}}}, nil
	}
	return m, err
}

// readFrom hands the messages of a subject from a sequence on to take, until it
// says no or there are no more. A stream that is not there is empty, and made.
func (c *Conn) readFrom(ctx context.Context, stream, subject string, from uint64, n int, take func(*record) bool) error {
	for n > 0 {
		batch, more, err := c.batchGet(ctx, stream, subject, from, n)
		if errors.Is(err, nats.ErrNoResponders) {
			return c.ensureStores(ctx)
		}
		if err != nil {
			return err
		}
		for _, r := range batch {
			from = r.sequence + 1
			if !take(r) {
				return nil
			}
		}
		if !more || len(batch) == 0 {
			return nil
		}
	}
	return nil
}

// deleteMessage removes a message; one that is gone is no error.
func (c *Conn) deleteMessage(ctx context.Context, stream string, seq uint64) error {
	r, err := c.api(ctx, apiSubject("STREAM.MSG.DELETE", stream), fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, seq))
	if err != nil {
		return err
	}
	switch {
	case r.Error == nil || r.Error.ErrCode == apiNoMessage || r.Error.ErrCode == apiNoSequence:
		return nil
	case r.Error.ErrCode == apiDeleteFailed:
		if _, err := c.leaderGet(ctx, stream, fmt.Appendf(nil, `{"seq":%d}`, seq)); errors.Is(err, ErrNotStored) {
			return nil
		}
	}
	return r.Error
}

// put stores a message and waits for the confirmation until ctx ends. What it
// stores must be harmless twice: silence and elections make it publish again.
func (c *Conn) put(ctx context.Context, m *nats.Msg) error {
	var last error
	for {
		err := c.putOnce(ctx, m)
		var refused *apiError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.Join(ctx.Err(), last)
		case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrPermissionViolation), errors.As(err, &refused) && !refused.passes():
			return err
		case errors.Is(err, nats.ErrNoResponders), refused != nil && refused.ErrCode == apiNoStream:
			if err := c.ensureStores(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
		last = err
		if pause(ctx, storeRetry) != nil {
			return errors.Join(ctx.Err(), last)
		}
	}
}

func (c *Conn) putOnce(ctx context.Context, m *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	reply, err := c.request(ctx, m)
	if err != nil {
		return err
	}
	var r apiReply
	if err := json.Unmarshal(reply.Data, &r); err != nil {
		return fmt.Errorf("answer of the server: %w", err)
	}
	if r.Error != nil {
		return r.Error
	}
	return nil
}
