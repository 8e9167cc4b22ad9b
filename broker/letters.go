package broker

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// Letter is a dead letter: a request that was given up, with all that is needed
// to run it again offline.
type Letter struct {
	// Number is the letter's place in the stream of letters, filled in by
	// [Conn.Letters].
	Number uint64
	// Sequence of the request in the request stream, and when it was published.
	Sequence  uint64
	Published time.Time
	// Subject of the request, and what it says.
	Subject, Client, ID, Model string
	// Worker that gave up, Digest of its model, and why.
	Worker, Digest string
	Code           Code
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

// WriteLetter stores l and waits for the server's confirmation, through
// elections, until ctx ends. A letter of the same request within an hour is
// stored once. What does not fit into a message is left out, see
// [Letter.Truncated].
func (c *Conn) WriteLetter(ctx context.Context, l *Letter) error {
	return errors.ErrUnsupported
}

// Letters returns up to n letters of a model, of all models when it is empty, in
// the order of their numbers from the number from on. Fewer than n are the last.
func (c *Conn) Letters(ctx context.Context, model string, from uint64, n int) ([]Letter, error) {
	return nil, errors.ErrUnsupported
}
