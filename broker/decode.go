package broker

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// message is what arrives on either path.
type message struct {
	subject, reply string
	header         nats.Header
	payload        []byte
}

// decoder turns messages into requests. It never fails altogether: the request
// it returns beside an error can be answered, unless its Reply is empty.
type decoder struct {
	subjects      subjects
	replyPrefixes []string // nil: inboxes, as long as users have no permissions
	maxPayload    int
	// authorized reports whether users have permissions, which a reply that the
	// client chooses must not get around. Nil: no.
	authorized func() bool
	// created is when the request stream was made, unix milliseconds; 0 or nil is
	// not known.
	created func() int64
}

// madeID is the id of a request that came without one: s and ten digits of the
// sequence, which the receipt tells, and t and the stream's creation time in
// base 36, since a stream that is made again counts from 1. Every worker makes
// the same one.
func (d *decoder) madeID(sequence uint64) string {
	id := fmt.Sprintf("s%010d", sequence)
	if d.created != nil {
		if ms := d.created(); ms > 0 {
			id += "t" + strconv.FormatInt(ms, 36)
		}
	}
	return id
}

// fullID completes an id that is only what a receipt tells of it.
func (d *decoder) fullID(id string) string {
	if n := madeSequence(id); n > 0 && id == fmt.Sprintf("s%010d", n) {
		return d.madeID(n)
	}
	return id
}

// madeSequence is the sequence in an id that madeID made; 0 in another.
func madeSequence(id string) uint64 {
	digits, ok := strings.CutPrefix(id, "s")
	digits, _, _ = strings.Cut(digits, "t")
	if !ok || len(digits) < 10 {
		return 0
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (d *decoder) usersHavePermissions() bool { return d.authorized != nil && d.authorized() }

// durable decodes a message of the request stream.
func (d *decoder) durable(m message, sequence uint64, published, now time.Time) (*Request, *Error) {
	r := &Request{
		Durable: true, Published: published, Sequence: sequence, Hash: requestHash(m.subject, m.header, m.payload),
		Raw: Raw{Subject: m.subject, Header: m.header, Payload: m.payload},
	}
	var err *Error
	model, priority, client, subjectErr := d.subjects.parseRequest(m.subject)
	if subjectErr != nil {
		err = badRequest("%v", subjectErr)
	}
	r.Model, r.Priority, r.Client = model, priority, client
	r.ID = headerValue(m.header, HeaderID)
	if !ValidID(r.ID) {
		if r.ID != "" && err == nil {
			err = badID(r.ID)
		}
		r.ID = d.madeID(sequence)
	}
	// A malformed client's name was a token of a subject: mostly it can be one
	// again, and whoever published it may hear why it is refused.
	if out := d.subjects.out(r.Client, r.ID); publishable(out) {
		r.Reply = out
	}
	if to := headerValue(m.header, HeaderReplyTo); to != "" {
		if d.replyToAllowed(to) {
			r.Reply = to
		} else if err == nil {
			err = badRequest("%s %q: not an allowed reply subject", HeaderReplyTo, clip(to))
		}
	}
	r, err = d.content(r, m, err, now)
	if r.Mode == ModeResume {
		// Only the derived subject is kept.
		if out := d.subjects.outResume(r.Client, r.ID); publishable(out) {
			r.Reply = out
		}
	}
	return r, err
}

// requestHash is [Request.Hash]. A request without headers that its answer
// depends on has the hash of subject and payload; the mode, which says how an
// answer is sent, and what bounds the time are none of these.
func requestHash(subject string, header nats.Header, payload []byte) uint64 {
	h := sha256.New()
	h.Write(append(append(make([]byte, 0, 128), subject...), 0))
	h.Write(payload)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	form, _ := formOf(headerValue(header, HeaderContentType), payload)
	version := headerValue(header, HeaderVersion)
	if form != sniff(payload) || version != "" {
		h.Reset()
		h.Write(sum[:])
		h.Write(append([]byte{byte(form)}, version...))
		h.Sum(sum[:0])
	}
	return binary.BigEndian.Uint64(sum[:])
}

// core decodes a core request. A client that the subject names may have its
// frames below its own infer.out only. Without a usable reply subject the
// request's Reply is empty.
func (d *decoder) core(model string, m message, now time.Time) (*Request, *Error) {
	r := &Request{Model: model, Priority: Std, Published: now}
	var err *Error
	client, allowed := d.subjects.realtimeClient(model, m.subject)
	if allowed {
		allowed = d.subjects.owns(client, m.reply)
	} else {
		client, _ = d.subjects.outClient(m.reply)
		allowed = d.subjects.replyAllowed(m.reply, d.usersHavePermissions())
	}
	if allowed {
		r.Client, r.Reply = client, m.reply
	} else {
		err = badRequest("reply subject %q: missing or not allowed", clip(m.reply))
	}
	r.ID = headerValue(m.header, HeaderID)
	if !ValidID(r.ID) {
		if r.ID != "" && err == nil {
			err = badID(r.ID)
		}
		r.ID = nuid.Next()
	}
	return d.content(r, m, err, now)
}

func badID(id string) *Error {
	return badRequest("%s %q: not [A-Za-z0-9]{%d,%d}", HeaderID, clip(id), minIDLength, maxIDLength)
}

func (d *decoder) replyToAllowed(to string) bool {
	if d.replyPrefixes == nil {
		return isInbox(to) && !d.usersHavePermissions()
	}
	for _, p := range d.replyPrefixes {
		if strings.HasPrefix(to, p) && len(to) > len(p) && publishable(to) {
			return true
		}
	}
	return false
}

// content reads headers and payload; err, when set, is the error that stands.
func (d *decoder) content(r *Request, m message, err *Error, now time.Time) (*Request, *Error) {
	form, formErr := formOf(headerValue(m.header, HeaderContentType), m.payload)
	r.Encoding = form.encoding()
	for _, e := range []*Error{formErr, readHeaders(r, m.header, now)} {
		if err == nil {
			err = e
		}
	}
	if err == nil && len(m.payload) > d.maxPayload {
		err = NewError(CodePayloadTooLarge, fmt.Sprintf("payload has %d bytes, limit %d", len(m.payload), d.maxPayload))
	}
	if err != nil {
		return r, err
	}
	switch form {
	case formMsgPack:
		err = decodeMsgPack(r, m.payload)
	case formJSON:
		err = decodeJSON(r, m.payload)
	case formText:
		if !utf8.Valid(m.payload) {
			return r, badRequest("payload: not UTF-8")
		}
		r.Input.Text = string(m.payload)
	}
	return r, err
}

// form is how a payload is written.
type form uint8

const (
	formMsgPack form = iota
	formJSON
	formText
)

func (f form) encoding() Encoding {
	if f == formMsgPack {
		return MsgPack
	}
	return JSON
}

// formOf goes by the content type, and by the first byte without one.
func formOf(contentType string, payload []byte) (form, *Error) {
	name, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(name)) {
	case TypeMsgPack, "application/x-msgpack", "application/vnd.msgpack":
		return formMsgPack, nil
	case TypeJSON:
		return formJSON, nil
	case TypeText:
		return formText, nil
	case "":
		return sniff(payload), nil
	}
	return sniff(payload), badRequest("%s %q: not %s, %s or %s", HeaderContentType, clip(contentType), TypeMsgPack, TypeJSON, TypeText)
}

// sniff tells a MessagePack map by its first byte, except that 0xde and 0xdf
// also start a character of two bytes: valid UTF-8 is text.
func sniff(payload []byte) form {
	if len(payload) == 0 {
		return formText
	}
	switch c := payload[0]; {
	case c == '{':
		return formJSON
	case c >= 0x80 && c <= 0x8f:
		return formMsgPack
	case (c == 0xde || c == 0xdf) && !utf8.Valid(payload):
		return formMsgPack
	}
	return formText
}
