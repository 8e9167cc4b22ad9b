package worker

import "errors"

// The causes that end a run from outside. They reach the publisher as the
// error of a sequence's last result and decide what the client is told and
// what becomes of the lease.
var (
	// errCancelled: the client asked for it.
	errCancelled = errors.New("cancelled by the client")
	// errDeadline: the request's deadline passed.
	errDeadline = errors.New("deadline passed")
	// errClientGone: nobody listens to the frames.
	errClientGone = errors.New("client gone")
	// errLeaseLost: the lease ran out. Nothing is emitted, nothing settled.
	errLeaseLost = errors.New("lease lost")
	// errNoRoom: the request's version is not in memory, and as many requests as may
	// wait for one do.
	errNoRoom = errors.New("no room for the version of the request")
	// errHandBack: the worker stops and somebody else shall serve the request.
	errHandBack = errors.New("worker is shutting down")
)

// ErrModel is wrapped by every failure to find, load or verify a model. The
// worker has not served anything when Run returns it.
var ErrModel = errors.New("model not servable")

// ErrHung means that the step loop did not end: a step does not return. Its
// goroutines are left behind, so the process should end.
var ErrHung = errors.New("step loop does not end")
