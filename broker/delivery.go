package broker

import "sync/atomic"

// Delivery is one request handed to the worker. It carries a credit until
// [Delivery.Done].
type Delivery struct {
	// Request always has Model, Client, ID, Reply and Encoding as far as they
	// could be determined, also when Err is set.
	Request *Request
	// Err says why the request cannot be served: answer it with this error and
	// reject the lease. Nil for a good request.
	Err *Error
	// Lease is the right to work on the request. Never nil.
	Lease *Lease

	credits *Credits
	done    atomic.Bool
}

// Done gives the delivery's credit back. Only the first call does; it is safe
// from any goroutine.
func (d *Delivery) Done() {
	if d.done.CompareAndSwap(false, true) && d.credits != nil {
		d.credits.Release(1)
	}
}
