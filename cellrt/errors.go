package cellrt

import "errors"

// The errors of the runtime. Those that end a sequence arrive in its last
// [Result]; the others are returned and change nothing.
var (
	// ErrNoSlot: every slot of the model is taken. The sequence stays as it
	// was and can be submitted again once another one has ended.
	ErrNoSlot = errors.New("no free slot")
	// ErrStopped: the runtime has stopped. Returned by Submit and Load, and the
	// end of every sequence that was live when Run's context ended.
	ErrStopped = errors.New("runtime stopped")
	// ErrBusy: sequences of the model are live. The model stays loaded.
	ErrBusy = errors.New("model busy")
	// ErrUnloaded: the model is not loaded in this runtime.
	ErrUnloaded = errors.New("model not loaded")
	// ErrRunning: Run was called a second time.
	ErrRunning = errors.New("runtime has been run before")
	// ErrStalled ends a sequence whose graph neither finished nor left a node
	// to wait for: a mistake in the graph.
	ErrStalled = errors.New("graph stalled")
	// ErrCheckpoint: the checkpoint that a sequence should go on from does not
	// fit its model. Returned by Submit.
	ErrCheckpoint = errors.New("checkpoint does not fit the model")
	// ErrNumerical is what a graph fails with when an output's log-probability
	// is NaN: some value of the row was not finite. Other rows are unaffected.
	ErrNumerical = errors.New("numerical error")
)
