package broker

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// The headers of a letter, beside those of the request.
const (
	HeaderSubject   = "Infer-Subject"
	HeaderSequence  = "Infer-Sequence"
	HeaderPublished = "Infer-Published" // RFC 3339
	HeaderRequestID = "Infer-Id"
	HeaderAttempts  = "Infer-Attempts"
	HeaderError     = "Infer-Error" // the code
	HeaderWorker    = "Infer-Worker"
	HeaderTruncated = "Infer-Truncated"
	// HeaderModelVersion is the version of the model that gave up; Infer-Version
	// is the one that the request asks for.
	HeaderModelVersion = "Infer-Model-Version"
	// ownPrefix is put before a header of the request that would mean something
	// else on a letter: to the server, or to a reader of letters.
	ownPrefix = "Request-"
)

// letterHeaders are the names that are not the request's.
func letterHeaders() []string {
	return []string{
		HeaderSubject, HeaderSequence, HeaderPublished, HeaderRequestID, HeaderAttempts, HeaderExcused,
		HeaderError, HeaderWorker, HeaderDigest, HeaderModelVersion, HeaderTruncated,
		headerStatus, headerDescription, // in which the server speaks
	}
}

// Letter is a dead letter: a request that was given up, with all that is needed
// to run it again offline.
type Letter struct {
	// Number is the letter's place in the stream of letters, filled in by
	// [Conn.Letters].
	Number uint64
	// Sequence of the request in the request stream, and when it was published.
	Sequence  uint64
	Published time.Time
	// Subject of the request, its id, and what the subject says: Client is only
	// read, and empty when the subject is malformed; Model must be a model's name.
	Subject, Client, ID, Model string
	// Worker that gave up, Digest and Version of its model, which are empty when it
	// did not serve the model, and why. The version has the weight type in it.
	Worker, Digest, Version string
	Code                    Code
	// Attempts that were made, Excused of them for no fault of the request.
	Attempts, Excused int
	// Header and Payload of the request as it was published.
	Header  nats.Header
	Payload []byte
	// Terminal is the encoded terminal frame that the client got.
	Terminal []byte
	// Tokens that were decoded before.
	Tokens []int32
	// Truncated names what was left out because the letter did not fit into a
	// message: any of "tokens", "terminal", "header", "payload".
	Truncated []string
}

// NewLetter begins a letter about a durable request: what the request itself
// says is filled in. It shares the memory of [Request.Raw].
func NewLetter(r *Request) *Letter {
	return &Letter{
		Sequence: r.Sequence, Published: r.Published, Subject: r.Raw.Subject, Client: r.Client, ID: r.ID, Model: r.Model,
		Header: r.Raw.Header, Payload: r.Raw.Payload,
	}
}

// message returns the record, of at most size bytes, at the expense of what
// Truncated then names.
func (l *Letter) message(s *subjects, stream string, size int) (*nats.Msg, error) {
	if !ValidModel(l.Model) {
		return nil, badRecord("model %q", clip(l.Model))
	}
	for what, text := range map[string]string{
		"worker": l.Worker, "digest": l.Digest, "version": l.Version, "code": string(l.Code), "id": l.ID,
	} {
		if err := checkName(what, text); err != nil {
			return nil, err
		}
	}
	if l.Sequence == 0 || min(l.Attempts, l.Excused) < 0 || int64(max(l.Attempts, l.Excused)) > maxCount {
		return nil, badRecord("sequence %d, attempts %d, excused %d", l.Sequence, l.Attempts, l.Excused)
	}
	part := *l
	for _, drop := range []struct {
		name string
		part func()
	}{
		{"", func() {}},
		{"tokens", func() { part.Tokens = nil }},
		{"terminal", func() { part.Terminal = nil }},
		{"header", func() { part.Header = nil }},
		{"payload", func() { part.Payload = nil }},
	} {
		drop.part()
		if drop.name != "" {
			part.Truncated = append(slices.Clip(part.Truncated), drop.name)
		}
		m := &nats.Msg{Subject: s.letter(l.Model), Header: part.header(stream), Data: part.body()}
		if m.Size() <= size { // of subject, header and body
			return m, nil
		}
	}
	return nil, nats.ErrMaxPayload
}

func (l *Letter) header(stream string) nats.Header {
	h := make(nats.Header, len(l.Header)+13)
	for name, values := range l.Header {
		if len(values) == 0 {
			continue
		}
		if notOwn(name) {
			name = ownPrefix + name
		}
		h[name] = values
	}
	set := func(name, value string) { h[name] = []string{value} }
	set(HeaderID, stream+"."+strconv.FormatUint(l.Sequence, 10))
	set(HeaderSubject, l.Subject)
	set(HeaderSequence, strconv.FormatUint(l.Sequence, 10))
	set(HeaderPublished, l.Published.UTC().Format(time.RFC3339Nano))
	set(HeaderRequestID, l.ID)
	set(HeaderAttempts, strconv.Itoa(l.Attempts))
	set(HeaderExcused, strconv.Itoa(l.Excused))
	set(HeaderError, string(l.Code))
	set(HeaderWorker, l.Worker)
	set(HeaderDigest, l.Digest)
	set(HeaderModelVersion, l.Version)
	if len(l.Truncated) > 0 {
		set(HeaderTruncated, strings.Join(l.Truncated, ","))
	}
	return h
}

// notOwn reports whether a header of the request needs another name in a letter.
func notOwn(name string) bool {
	return hasPrefixFold(name, "nats-") || hasPrefixFold(name, ownPrefix) ||
		slices.ContainsFunc(letterHeaders(), func(h string) bool { return strings.EqualFold(h, name) })
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// body is a map of the binary parts.
func (l *Letter) body() []byte {
	b := make([]byte, 0, len(l.Payload)+len(l.Terminal)+4*len(l.Tokens)+64)
	b = appendMPMap(b, 3)
	b = appendMPBin(appendMPString(b, "payload"), l.Payload)
	b = appendMPBin(appendMPString(b, "terminal"), l.Terminal)
	tokens := make([]byte, 0, 4*len(l.Tokens))
	for _, id := range l.Tokens {
		tokens = binary.LittleEndian.AppendUint32(tokens, uint32(id))
	}
	return appendMPBin(appendMPString(b, "tokens"), tokens)
}

func appendMPBin(b, v []byte) []byte {
	switch n := len(v); {
	case n <= math.MaxUint8:
		b = append(b, 0xc4, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, 0xc5), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xc6), uint32(n))
	}
	return append(b, v...)
}

// storedLetter reads a record.
func (s subjects) storedLetter(r *record) (*Letter, error) {
	model, ok := strings.CutPrefix(r.subject, string(s)+".dlq.")
	if !ok || !ValidModel(model) {
		return nil, badRecord("subject %q", clip(r.subject))
	}
	value := func(name string) string { // names of ours have one spelling
		if v := r.header[name]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	l := &Letter{
		Number: r.sequence, Model: model, Subject: value(HeaderSubject), ID: value(HeaderRequestID),
		Worker: value(HeaderWorker), Digest: value(HeaderDigest), Version: value(HeaderModelVersion),
		Code: Code(value(HeaderError)), Header: ownHeader(r.header),
	}
	if _, _, client, err := s.parseRequest(l.Subject); err == nil {
		l.Client = client
	}
	if t := value(HeaderTruncated); t != "" {
		l.Truncated = strings.Split(clip(t), ",")
	}
	var err error
	if l.Sequence, err = strconv.ParseUint(value(HeaderSequence), 10, 64); err != nil {
		return nil, badRecord("%s %q", HeaderSequence, clip(value(HeaderSequence)))
	}
	if l.Published, err = time.Parse(time.RFC3339Nano, value(HeaderPublished)); err != nil {
		return nil, badRecord("%s %q", HeaderPublished, clip(value(HeaderPublished)))
	}
	if l.Attempts, err = countOf(r.header, HeaderAttempts); err != nil {
		return nil, err
	}
	if l.Excused, err = countOf(r.header, HeaderExcused); err != nil {
		return nil, err
	}
	if err := l.readBody(r.data); err != nil {
		return nil, err
	}
	return l, nil
}

// ownHeader is the request's own header.
func ownHeader(h nats.Header) nats.Header {
	own := nats.Header{}
	for name, values := range h {
		switch {
		case strings.HasPrefix(name, ownPrefix):
			own[name[len(ownPrefix):]] = values
		case !notOwn(name):
			own[name] = values
		}
	}
	return own
}

func (l *Letter) readBody(b []byte) error {
	if err := scanMsgPack(b); err != nil {
		return badRecord("body: %v", err)
	}
	r := mpReader{b}
	head, _ := r.next()
	if head.kind != mpMap {
		return badRecord("body is no map")
	}
	for range head.children / 2 {
		k, key := r.next()
		v, err := readHead(r.b)
		if err != nil || k.kind != mpString || v.kind != mpBin {
			return badRecord("body: key %q", clip(string(key)))
		}
		_, value := r.next()
		switch string(key) {
		case "payload":
			l.Payload = value
		case "terminal":
			l.Terminal = value
		case "tokens":
			if l.Tokens, err = idsOfBin(value); err != nil {
				return badRecord("tokens: %v", err)
			}
		}
	}
	return nil
}

// WriteLetter stores l and waits for the server's confirmation, through
// elections, until ctx ends. A letter of the same request within an hour is
// stored once. What does not fit into a message is left out, see
// [Letter.Truncated]. An error that would only come again, as [ErrClosed],
// [ErrBadRecord], a missing permission or another refusal, comes at once.
func (c *Conn) WriteLetter(ctx context.Context, l *Letter) error {
	var err error
	if c.created() == 0 {
		err = c.askCreated(ctx)
	}
	stream := c.cfg.Stream.Name + "." + strconv.FormatInt(c.created(), 36) // one made again counts from 1
	m, bad := l.message(&c.subjects, stream, int(c.nc.MaxPayload()))
	if err = cmp.Or(bad, err); err == nil {
		err = c.put(ctx, m)
	}
	if errors.Is(err, nats.ErrConnectionClosed) {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	if err != nil {
		return fmt.Errorf("write letter: %w", err)
	}
	return nil
}

// Letters returns up to n letters of a model, of all models when it is empty, in
// the order of their numbers from the number from on. Fewer than n are the last.
// Malformed ones are logged and left out.
func (c *Conn) Letters(ctx context.Context, model string, from uint64, n int) ([]Letter, error) {
	subject := c.subjects.letter("*")
	if model != "" {
		if !ValidModel(model) {
			return nil, fmt.Errorf("read letters: %w", badRecord("model %q", clip(model)))
		}
		subject = c.subjects.letter(model)
	}
	var letters []Letter
	err := c.readFrom(ctx, c.cfg.Stream.letters(), subject, from, n, func(r *record) bool {
		l, err := c.subjects.storedLetter(r)
		if err != nil {
			c.log.Warn("malformed letter", slog.Uint64("number", r.sequence), slog.Any("error", err))
			return true
		}
		letters = append(letters, *l)
		return len(letters) < n
	})
	if err != nil && !errors.Is(err, ErrNotStored) {
		return nil, fmt.Errorf("read letters: %w", err)
	}
	return letters, nil
}
