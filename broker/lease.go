package broker

import "time"

// Lease is the right to work on one message until a time. Its methods are safe
// for concurrent use. A core-path lease has no deadline, its Extend and Settle
// do nothing, and its Release returns [ErrNotRedelivered].
type Lease struct {
	// Epoch is the creation time of the consumer, unix milliseconds, and
	// Attempt the delivery number, from 1: (Epoch, Attempt) orders the leases
	// of a request.
	Epoch, Attempt uint64
}

// Core reports whether the request came over the core path.
func (l *Lease) Core() bool { return true }

// Deadline is when the lease ends unless it is extended; the zero time for a
// core-path lease.
func (l *Lease) Deadline() time.Time { return time.Time{} }

// Valid reports whether the lease is held at now: neither past its deadline
// nor settled.
func (l *Lease) Valid(now time.Time) bool { return false }

// Extend renews the lease from now on. It returns [ErrLeaseLost], and sends
// nothing, when the deadline has passed.
func (l *Lease) Extend(now time.Time) error { return ErrLeaseLost }

// Settle acknowledges the message: the request is done.
func (l *Lease) Settle() error { return ErrLeaseLost }

// Release hands the message back; the server redelivers it after delay.
func (l *Lease) Release(delay time.Duration) error { return ErrLeaseLost }

// Reject ends the message for good; reason goes into the server's advisory.
func (l *Lease) Reject(reason string) error { return ErrLeaseLost }
