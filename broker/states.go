package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// State is what is remembered of a request for its later attempts.
type State struct {
	// Client and ID name the request.
	Client, ID string
	// Digest of the model that began the request, and made the checkpoint if there
	// is one. Empty: not said.
	Digest string
	// Request is the [Request.Hash] of the request.
	Request uint64
	// Excused counts the attempts that do not count as failures.
	Excused int
	// Checkpoint is where the run can go on; empty is from the start.
	Checkpoint []byte
}

// message returns the record.
func (s *State) message(subject string, ttl time.Duration) (*nats.Msg, error) {
	if err := errors.Join(checkOwner(s.Client, s.ID), checkName("digest", s.Digest)); err != nil {
		return nil, err
	}
	if s.Excused < 0 || int64(s.Excused) > maxCount {
		return nil, badRecord("excused %d", s.Excused)
	}
	h := nats.Header{
		HeaderRequest: {formatHash(s.Request)},
		HeaderExcused: {strconv.Itoa(s.Excused)},
		HeaderDigest:  {s.Digest},
	}
	if ttl > 0 { // whole seconds, at least one, are what the server takes
		h[HeaderTTL] = []string{strconv.FormatInt(int64((ttl+time.Second-1)/time.Second), 10)}
	}
	return &nats.Msg{Subject: subject, Header: h, Data: s.Checkpoint}, nil
}

// storedState reads a record.
func (s subjects) storedState(r *record) (*State, error) {
	client, id, err := s.ownerOf(".state.", r.subject)
	if err != nil {
		return nil, err
	}
	st := &State{Client: client, ID: id, Digest: headerValue(r.header, HeaderDigest), Checkpoint: r.data}
	if st.Request, err = hashOf(r.header); err != nil {
		return nil, err
	}
	if st.Excused, err = countOf(r.header, HeaderExcused); err != nil {
		return nil, err
	}
	if err := checkName("digest", st.Digest); err != nil {
		return nil, err
	}
	return st, nil
}

// SaveState stores s in the place of what was stored for the request before,
// for as long as ttl and at most as long as the stream keeps states; a ttl of
// zero is that. It waits for the server's confirmation, through elections, until
// ctx ends. A state that does not fit into a message is [nats.ErrMaxPayload].
func (c *Conn) SaveState(ctx context.Context, s *State, ttl time.Duration) error {
	m, err := s.message(c.subjects.state(s.Client, s.ID), ttl)
	if err == nil {
		err = c.put(ctx, m)
	}
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// SaveStateAsync is SaveState without the wait: when the server does not
// store the state nobody hears of it. The message is copied before it returns.
func (c *Conn) SaveStateAsync(s *State, ttl time.Duration) error {
	m, err := s.message(c.subjects.state(s.Client, s.ID), ttl)
	if err == nil {
		err = c.nc.PublishMsg(m)
	}
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// State returns what is stored of a request, [ErrNotStored] when it is
// nothing, or malformed. In a cluster a replica answers.
func (c *Conn) State(ctx context.Context, client, id string) (*State, error) {
	if err := checkOwner(client, id); err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	subject := c.subjects.state(client, id)
	r, err := c.directGet(ctx, c.cfg.Stream.states(), subject)
	var s *State
	if err == nil {
		s, err = c.subjects.storedState(r)
	}
	if err != nil {
		return nil, fmt.Errorf("read state: %w", c.asNone(subject, err))
	}
	return s, nil
}
