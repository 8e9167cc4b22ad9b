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

// The server's error numbers that a worker acts on.
const (
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

// record reads the answer to a get. A header that cannot be read is none, as in
// the messages that the library delivers.
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
		rec.header, _ = nats.DecodeHeadersMsg(m.Header)
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
