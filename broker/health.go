package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// probeID stands where an id would in the subject of a probe; no request has
	// such an id.
	probeID = "_probe"
	// probeLife is how long a probe stays, in whole seconds.
	probeLife = "60"
	// probeBytes is more than a block of a disk: a smaller write may still fit
	// where nothing else does.
	probeBytes = 8 << 10
)

// Probe has the server store a record among the states of interrupted requests,
// in place of the one before, and waits for the confirmation until ctx ends. Its
// error says why the server stores nothing: it is away, has no JetStream any
// more or no room, or refuses. Owner is a client name, by which several workers
// do not disturb each other.
func (c *Conn) Probe(ctx context.Context, owner string) error {
	if !ValidClient(owner) {
		return fmt.Errorf("probe the stores: %w: owner %q", ErrBadRecord, clip(owner))
	}
	m := &nats.Msg{
		Subject: c.subjects.state(owner, probeID), Header: nats.Header{HeaderTTL: {probeLife}}, Data: make([]byte, probeBytes),
	}
	if err := c.put(ctx, m); err != nil {
		return fmt.Errorf("probe the stores: %w", err)
	}
	return nil
}

// StoreFill is how full a stream of records is.
type StoreFill struct {
	// Stream is its name.
	Stream string
	// Messages and Bytes are in it, and MaxMessages, -1 without bound, and MaxBytes
	// are the bounds.
	Messages, Bytes, MaxMessages, MaxBytes int64
	// Oldest is the age of its oldest record, and Promised how long one is to
	// be kept.
	Oldest, Promised time.Duration
}

// nearly is how full a stream is that is about to drop records, or does: one
// record may be a sixty-fourth of the default.
const nearly = 0.95

// Short is how much too early the stream drops records; 0: it does not.
func (f *StoreFill) Short() time.Duration {
	full := float64(f.Bytes) >= nearly*float64(f.MaxBytes) || f.MaxMessages > 0 && float64(f.Messages) >= nearly*float64(f.MaxMessages)
	if !full || f.Messages == 0 {
		return 0
	}
	return max(f.Promised-f.Oldest, 0)
}

// Fill asks how full the streams of finals, states and frames of mode resume
// are. One that is not there is left out.
func (c *Conn) Fill(ctx context.Context) ([]StoreFill, error) {
	s := &c.cfg.Stream
	var out []StoreFill
	for _, name := range []string{s.finals(), s.states(), s.out()} {
		there, err := c.js.Stream(ctx, name)
		if err != nil {
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				continue
			}
			return nil, fmt.Errorf("ask how full stream %s is: %w", name, err)
		}
		info := there.CachedInfo()
		f := StoreFill{
			Stream: name, Messages: int64(info.State.Msgs), Bytes: int64(info.State.Bytes),
			MaxMessages: info.Config.MaxMsgs, MaxBytes: info.Config.MaxBytes, Promised: info.Config.MaxAge,
		}
		if !info.State.FirstTime.IsZero() {
			f.Oldest = max(info.TimeStamp.Sub(info.State.FirstTime), 0) // both by the server's clock
		}
		out = append(out, f)
	}
	return out, nil
}
