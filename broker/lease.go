package broker

import (
	"fmt"
	"strconv"
	"sync"
	"time"
)

// Lease is the right to work on one message until a time. Its methods are safe
// for concurrent use. A core-path lease has no deadline, its Extend, Settle
// and Reject do nothing but count as settled, and its Release returns
// [ErrNotRedelivered].
type Lease struct {
	// Epoch is the creation time of the consumer, unix milliseconds, and
	// Attempt the delivery number, from 1: (Epoch, Attempt) orders the leases
	// of a request.
	Epoch, Attempt uint64

	// publish sends an acknowledgement; nil for a core-path lease.
	publish func(subject string, payload []byte) error
	ack     string
	wait    time.Duration // how long an extension lasts for us: ack wait less margin

	mu       sync.Mutex
	deadline time.Time // has a monotonic reading
	settled  bool
}

// newLease returns the lease of a message that arrived at now. Its first
// period counts from the arrival, which is later than the server's delivery;
// the margin covers the difference.
func newLease(epoch, attempt uint64, ack string, wait time.Duration, now time.Time, publish func(string, []byte) error) *Lease {
	return &Lease{Epoch: epoch, Attempt: attempt, publish: publish, ack: ack, wait: wait, deadline: now.Add(wait)}
}

// newCoreLease returns a lease for a core request; epoch tells the attempts
// of a client that resends the same id apart.
func newCoreLease(now time.Time) *Lease {
	return &Lease{Epoch: uint64(now.UnixMilli()), Attempt: 1}
}

// Core reports whether the request came over the core path.
func (l *Lease) Core() bool { return l.publish == nil }

// Deadline is when the lease ends unless it is extended; the zero time for a
// core-path lease.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Valid reports whether the lease is held at now: neither past its deadline
// nor settled.
func (l *Lease) Valid(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check(now) == nil
}

// check is called with mu held.
func (l *Lease) check(now time.Time) error {
	if l.settled {
		return ErrSettled
	}
	if l.publish != nil && !now.Before(l.deadline) {
		return ErrLeaseLost
	}
	return nil
}

// Extend renews the lease from now on, which must be the current time. It
// returns [ErrLeaseLost], and sends nothing, when the deadline has passed. On
// another error the deadline stays what it was.
func (l *Lease) Extend(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(now); err != nil {
		return err
	}
	if l.publish == nil {
		return nil
	}
	// Under the lock, so that no extension follows a settlement.
	if err := l.publish(l.ack, []byte("+WPI")); err != nil {
		return fmt.Errorf("extend lease: %w", err)
	}
	l.deadline = now.Add(l.wait)
	return nil
}

// Settle acknowledges the message: the request is done. Publish the terminal
// frame before, on the same connection.
func (l *Lease) Settle() error {
	if err := l.end([]byte("+ACK")); err != nil {
		return fmt.Errorf("settle lease: %w", err)
	}
	return nil
}

// Release hands the message back; the server redelivers it after delay.
func (l *Lease) Release(delay time.Duration) error {
	if l.publish == nil {
		return fmt.Errorf("release lease: %w", ErrNotRedelivered)
	}
	nak := append([]byte(`-NAK {"delay":`), strconv.FormatInt(max(delay, 0).Nanoseconds(), 10)...)
	if err := l.end(append(nak, '}')); err != nil {
		return fmt.Errorf("release lease: %w", err)
	}
	return nil
}

// Reject ends the message for good; reason goes into the server's advisory.
func (l *Lease) Reject(reason string) error {
	if err := l.end(append([]byte("+TERM "), reason...)); err != nil {
		return fmt.Errorf("reject lease: %w", err)
	}
	return nil
}

// end sends the last acknowledgement. The lease counts as settled only when it
// could be sent.
func (l *Lease) end(payload []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(time.Now()); err != nil {
		return err
	}
	if l.publish != nil {
		if err := l.publish(l.ack, payload); err != nil {
			return err
		}
	}
	l.settled = true
	return nil
}
