package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// StoredFinal is the one terminal frame of a durable request, as the stream of
// finals keeps it.
type StoredFinal struct {
	// Client and ID name the request. Ids are unique per client.
	Client, ID string
	// Worker, Epoch, Attempt and Sequence, that of the message in the request
	// stream, name the lease whose holder stored the frame. Sequence is 0 in
	// records that do not say it.
	Worker                   string
	Epoch, Attempt, Sequence uint64
	// Request is the [Request.Hash] of the request that the frame answers: an id
	// that comes again with something else has another one.
	Request uint64
	// Encoding of Frame.
	Encoding Encoding
	// Frame is the encoded terminal frame.
	Frame []byte
}

// lease names the lease as the record does. Without the sequence two messages
// that are both at their first attempt would have the same lease.
func (s *StoredFinal) lease() string {
	return s.Worker + "/" + strconv.FormatUint(s.Epoch, 10) + "/" + strconv.FormatUint(s.Attempt, 10) + "#" + strconv.FormatUint(s.Sequence, 10)
}

// readLease fills in what lease writes. A record may end before the sequence.
func (s *StoredFinal) readLease(text string) error {
	rest, attempt, ok := cutLast(text)
	worker, epoch, also := cutLast(rest)
	attempt, sequence, numbered := strings.Cut(attempt, "#")
	s.Worker = worker
	var err error
	number := func(to *uint64, text string) {
		n, parsed := strconv.ParseUint(text, 10, 64)
		*to, err = n, errors.Join(err, parsed)
	}
	number(&s.Epoch, epoch)
	number(&s.Attempt, attempt)
	if numbered {
		number(&s.Sequence, sequence)
	}
	if err != nil || !ok || !also || checkName("worker", worker) != nil {
		return badRecord("%s %q", HeaderLease, clip(text))
	}
	return nil
}

// message returns the record. Storing it fails when there is one.
func (s *StoredFinal) message(subject string) (*nats.Msg, error) {
	if err := errors.Join(checkOwner(s.Client, s.ID), checkName("worker", s.Worker)); err != nil {
		return nil, err
	}
	if len(s.Frame) == 0 {
		return nil, badRecord("no frame")
	}
	contentType := TypeMsgPack
	if s.Encoding == JSON {
		contentType = TypeJSON
	}
	return &nats.Msg{Subject: subject, Data: s.Frame, Header: nats.Header{
		headerExpectedLast: {"0"},
		HeaderLease:        {s.lease()},
		HeaderRequest:      {formatHash(s.Request)},
		HeaderContentType:  {contentType},
	}}, nil
}

// storedFinal reads a record.
func (s subjects) storedFinal(r *record) (*StoredFinal, error) {
	client, id, err := s.ownerOf(".final.", r.subject)
	if err != nil {
		return nil, err
	}
	f := &StoredFinal{Client: client, ID: id, Frame: r.data}
	if f.Request, err = hashOf(r.header); err != nil {
		return nil, err
	}
	if err := f.readLease(headerValue(r.header, HeaderLease)); err != nil {
		return nil, err
	}
	switch t := headerValue(r.header, HeaderContentType); t {
	case TypeMsgPack:
	case TypeJSON:
		f.Encoding = JSON
	default:
		return nil, badRecord("%s %q", HeaderContentType, clip(t))
	}
	if len(r.data) == 0 {
		return nil, badRecord("no frame")
	}
	return f, nil
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// asNone makes of a malformed record none: whoever may publish a request can have
// the server's receipt stored where a record should be. A good record takes its
// place.
func (c *Conn) asNone(subject string, err error) error {
	if !errors.Is(err, ErrBadRecord) {
		return err
	}
	c.log.Warn("malformed record", slog.String("subject", clip(subject)), slog.Any("error", err))
	return fmt.Errorf("%w: %w", ErrNotStored, err)
}

// Final returns the stored final of a request, [ErrNotStored] when there is
// none or one that is malformed. In a cluster a replica answers, which may not have yet what was stored
// a moment ago; [Finals.Store] asks the leader.
func (c *Conn) Final(ctx context.Context, client, id string) (*StoredFinal, error) {
	if err := checkOwner(client, id); err != nil {
		return nil, fmt.Errorf("read final: %w", err)
	}
	subject := c.subjects.final(client, id)
	r, err := c.directGet(ctx, c.cfg.Stream.finals(), subject)
	var f *StoredFinal
	if err == nil {
		f, err = c.subjects.storedFinal(r)
	}
	if err != nil {
		return nil, fmt.Errorf("read final: %w", c.asNone(subject, err))
	}
	return f, nil
}
