package broker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// Request decodes the request of a letter, with the decoder that a delivery goes
// through and without its bound on the payload. What says by when and where the
// request is answered, the deadline and the reply subject, is left out: the
// request has neither. The request shares the memory of the letter.
//
// A request that is refused comes with an [*Error], and has what could be read of
// it. No request comes with [ErrTruncated] when the letter lacks its payload, and
// with [ErrBadRecord] when subject, model and id do not fit together. A letter
// that lacks the headers only is decoded as if it had had none.
func (l *Letter) Request() (*Request, error) {
	if slices.Contains(l.Truncated, "payload") {
		return nil, fmt.Errorf("letter %d: its payload did not fit: %w", l.Number, ErrTruncated)
	}
	end := max(strings.LastIndex(l.Subject, ".req."+l.Model+"."), 0)
	s, err := newSubjects(l.Subject[:end])
	if err == nil {
		_, _, _, err = s.parseRequest(l.Subject)
	}
	if err != nil {
		return nil, fmt.Errorf("letter %d: %w", l.Number, badRecord("subject %q of model %q", clip(l.Subject), clip(l.Model)))
	}
	if !ValidID(l.ID) || l.Sequence == 0 {
		return nil, fmt.Errorf("letter %d: %w", l.Number, badRecord("id %q, sequence %d", clip(l.ID), l.Sequence))
	}
	d := &decoder{subjects: s, maxPayload: len(l.Payload)}
	m := message{subject: l.Subject, header: l.undated(), payload: l.Payload}
	r, bad := d.durable(m, l.Sequence, l.Published, l.Published)
	r.Reply, r.Raw.Header = "", l.Header
	if bad != nil {
		return r, bad
	}
	return r, nil
}

// undated is the request's header without what says by when and where it is
// answered, and with the id that it had.
func (l *Letter) undated() nats.Header {
	h := make(nats.Header, len(l.Header)+1)
	for name, values := range l.Header {
		if !slices.ContainsFunc([]string{HeaderID, HeaderDeadline, HeaderTimeout, HeaderReplyTo}, func(left string) bool {
			return strings.EqualFold(left, name)
		}) {
			h[name] = values
		}
	}
	h[HeaderID] = []string{l.ID}
	return h
}
