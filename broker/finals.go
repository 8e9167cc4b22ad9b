package broker

import (
	"context"
	"errors"
	"time"
)

// maxStoring bounds the finals of one [Finals] whose verdict is still to come.
const maxStoring = 4096

// StoredFinal is the one terminal frame of a durable request, as the stream of
// finals keeps it.
type StoredFinal struct {
	// Client and ID name the request. Ids are unique per client.
	Client, ID string
	// Worker, Epoch and Attempt name the lease whose holder stored the frame.
	Worker         string
	Epoch, Attempt uint64
	// Request is the [Request.Hash] of the request that the frame answers: an id
	// that comes again with something else has another one.
	Request uint64
	// Encoding of Frame.
	Encoding Encoding
	// Frame is the encoded terminal frame.
	Frame []byte
}

// Verdict says whose final is stored. Exactly one of its fields is set.
type Verdict struct {
	// Mine: this final is the stored one, now or since an attempt to store it
	// whose confirmation was lost.
	Mine bool
	// Other is the final that was stored before, of another lease.
	Other *StoredFinal
	// Err says why there is no verdict: [ErrNoVerdict] when the time was over,
	// [ErrClosed], or a refusal by the server that would only come again. After
	// ErrNoVerdict and ErrClosed the final may be stored all the same.
	Err error
}

// Finals stores finals, many at a time. It is safe for concurrent use.
type Finals struct {
	conn *Conn
}

// Finals returns a store of finals on this connection. Close it before the
// connection.
func (c *Conn) Finals() (*Finals, error) {
	return &Finals{conn: c}, nil
}

// Store stores s unless a final of its request is stored already. It does not
// block: done is called once with the verdict, from the goroutine of f, and must
// not block either. It goes on asking until the time until, through elections and
// disconnections. The same final may be stored again after [ErrNoVerdict].
//
// An error means that nothing was sent and done is not called: [ErrStoreFull]
// when the verdicts of 4096 finals are still to come, [ErrFrameTooLarge],
// [ErrClosed]. s belongs to f until done is called.
func (f *Finals) Store(s *StoredFinal, until time.Time, done func(Verdict)) error {
	return errors.ErrUnsupported
}

// Close ends the store. Finals without a verdict get [ErrClosed]; when Close
// returns done is called no more.
func (f *Finals) Close() error { return nil }

// Final returns the stored final of a request, [ErrNotStored] when there is
// none. In a cluster a replica answers, which may not have yet what was stored
// a moment ago; [Finals.Store] asks the leader.
func (c *Conn) Final(ctx context.Context, client, id string) (*StoredFinal, error) {
	return nil, errors.ErrUnsupported
}
