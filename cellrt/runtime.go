package cellrt

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Runtime runs sequences on a backend: a [Scheduler] under a lock, executors
// that run its batches, and a sink for the results. Its methods are safe for
// concurrent use.
type Runtime struct {
	cfg     Config
	backend Backend
	sink    Sink

	mu            sync.Mutex
	wake          sync.Cond // nodes became ready, or the runtime stops; uses mu
	sched         *Scheduler
	shape         Shape
	running       []bool          // the executors that run, by number
	executorStats []ExecutorStats // by number
	started       bool            // Run was called
	stopping      bool            // Run's context ended

	executors sync.WaitGroup
}

// Sink receives what sequences produce. Its implementation is the consumer's.
type Sink interface {
	// Deliver is called after each step, and from Submit and Cancel when a
	// sequence ends there, with the runtime's lock held: it must not block and
	// must not call the runtime, and a caller of the runtime must not hold a
	// lock that Deliver takes. Calls come one at a time. The slice and the
	// tokens in it are valid until Deliver returns.
	//
	// The tokens of a sequence come in order, and exactly one result of each
	// submitted sequence is Done, its last. Its slot is free by then.
	Deliver(results []Result)
}

// New returns a runtime without models. Zero fields of cfg take their
// defaults.
func New(cfg Config, b Backend, sink Sink) (*Runtime, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("new runtime: %w", err)
	}
	r := &Runtime{cfg: cfg, backend: b, sink: sink, shape: cfg.shape(), sched: NewScheduler(SchedulerConfig{MaxRows: cfg.MaxRows, Executors: cfg.Executors})}
	r.wake.L = &r.mu
	return r, nil
}

// Load packs a program's weights, allocates an arena of slots (1 to 1,000,000),
// measures the program's cells for as long as Config.Profile says, and makes
// the model known. It may be called while the runtime runs and makes no step
// wait, though it uses a core. It fails with [ErrStopped] or when the backend cannot run
// the program. To load a program that is closed is a programmer's error and
// panics.
func (r *Runtime) Load(p *Program, slots int) (*Model, error) {
	p.wantOpen()
	m, err := NewModel(p, slots)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", p.Name, err)
	}
	if m.executable, err = r.backend.Load(p, slots); err != nil {
		return nil, fmt.Errorf("load %s: %w", p.Name, err)
	}
	m.states, _ = m.executable.(States)
	shape := r.Shape()
	m.grow(shape.Executors)
	if r.cfg.Profile > 0 {
		profile(m, shape.Threads, r.cfg.MaxRows, r.cfg.Profile)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return nil, fmt.Errorf("load %s: %w", p.Name, ErrStopped)
	}
	m.grow(r.shape.Executors) // it may have changed
	r.sched.Add(m)
	return m, nil
}

// Unload forgets a model, whose memory goes when the caller drops it too. It
// fails with [ErrBusy] while sequences of the model are live and with
// [ErrUnloaded] when the model is not loaded.
func (r *Runtime) Unload(m *Model) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.sched.Remove(m); err != nil {
		return err
	}
	r.sched.frontier = Frontier{} // its scratch names cells, and these hold the weights
	for _, runner := range m.runners {
		runner.SetThreads(1)
	}
	return nil
}

// Submit starts a sequence: it takes a slot and its first nodes join the next
// step. It never waits for a running step. It fails with [ErrNoSlot],
// [ErrStopped], [ErrUnloaded] or [ErrCheckpoint]; the sequence can then be
// submitted again.
// Sequences may be submitted before Run. To submit one twice is a programmer's
// error and panics.
func (r *Runtime) Submit(s *Sequence) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return ErrStopped
	}
	if err := r.sched.Submit(s); err != nil {
		return err
	}
	r.deliver()
	r.wake.Signal()
	return nil
}

// Cancel ends a sequence: after at most the steps that are given out now its
// last result arrives, with Err = cause. No tokens come after Cancel returned.
// It reports false, and does nothing, when the sequence had ended or been
// cancelled before, or was never submitted.
func (r *Runtime) Cancel(s *Sequence, cause error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	cancelled := r.sched.Cancel(s, cause)
	r.deliver()
	return cancelled
}

// Suspend ends a sequence with a [Checkpoint] in its last result, if its graph
// can be saved, and Err = cause, which is not nil. Nodes in flight complete
// first, and what comes of them is delivered; a sequence that ends by itself
// until then ends as if it had not been suspended. One that cannot be saved is
// cancelled. It reports false, and does nothing, when the sequence had ended or
// been cancelled or suspended before, or was never submitted. A suspended
// sequence can be cancelled as long as it has not ended.
func (r *Runtime) Suspend(s *Sequence, cause error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	suspended := r.sched.Suspend(s, cause)
	r.deliver()
	return suspended
}

// Stats returns the runtime's state. It allocates; call it at a human pace.
func (r *Runtime) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sched.Stats()
	s.Shape = r.shape
	s.Executors = slices.Clone(r.executorStats)
	return s
}

// Run runs the executors until ctx ends. The steps running then complete, and
// every sequence still live ends with [ErrStopped] before Run returns nil. A
// runtime runs once: a second call fails with [ErrRunning].
//
// A panic in a graph, a sink or the backend is a programmer's error, after
// which the states in memory cannot be trusted: it is not recovered.
func (r *Runtime) Run(ctx context.Context) error {
	r.mu.Lock()
	if r.started {
		r.mu.Unlock()
		return ErrRunning
	}
	r.started = true
	r.startExecutors()
	r.mu.Unlock()

	unhook := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stopping = true
		r.wake.Broadcast()
	})
	defer unhook()

	r.executors.Wait()

	r.mu.Lock()
	defer r.mu.Unlock()
	r.sched.CancelAll(ErrStopped)
	r.deliver()
	return nil
}

// deliver hands the results to the sink. The caller holds the lock.
func (r *Runtime) deliver() {
	if results := r.sched.Results(); len(results) > 0 {
		r.sink.Deliver(results)
		r.sched.Clear()
	}
}
