package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
)

// Run serves until ctx ends or Drain is called, and then drains: it takes no more requests, lets
// the running ones finish for the grace period, hands back the rest, and
// returns nil. It returns an error when the worker cannot start or a part of
// it fails, and [ErrHung] when the step loop does not end. A worker runs once.
func (w *Worker) Run(ctx context.Context) error {
	// Work outlives ctx: what runs may finish after intake has stopped.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, work := errgroup.WithContext(work)
	w.began = time.Now()
	err := w.start(ctx, work, group)
	stop()
	if failed := w.end(group); failed != nil {
		err = errors.Join(failed, err)
	}
	w.traces.stop()
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // stopped while it was starting
	}
	return err
}

// end waits for the parts. A step loop that hangs with requests that could not be
// handed back is not waited for: whoever runs the worker has to end it, and
// others serve the requests.
func (w *Worker) end(group *errgroup.Group) error {
	ended := make(chan error, 1)
	go func() { ended <- group.Wait() }()
	var hung <-chan time.Time
	if w.table.count() > 0 {
		timer := time.NewTimer(hungWait)
		defer timer.Stop()
		hung = timer.C
	}
	select {
	case err := <-ended:
		return err
	case <-hung:
		return ErrHung
	}
}

// start brings the parts up in the order in which they need each other, serves,
// and takes them down in reverse.
func (w *Worker) start(ctx, work context.Context, group *errgroup.Group) error {
	traces, err := newTracing(ctx, &w.cfg, w.deps.Version, w.metrics.spans, w.log)
	if err != nil {
		return err
	}
	w.traces = traces
	if w.cfg.AdminAddress != "" {
		a, err := listenAdmin(ctx, &w.cfg.ObserveConfig, w.registry, w.readiness)
		if err != nil {
			return err
		}
		w.admin = a
		w.serveLive(work, a)
		group.Go(func() error { return a.run(work, w.log) })
	}
	group.Go(func() error { return w.runtime.Run(work) })
	group.Go(func() error { return w.versions.Run(work) })
	starting, stop := joined(ctx, work)
	defer stop()
	if err := w.loadOwn(starting); err != nil {
		return err
	}
	disconnect, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	f := newFollower(w)
	if err := f.begin(starting); err != nil {
		return err
	}
	if len(w.modelNames()) == 0 {
		return nil // it was told to leave
	}
	if err := w.conn.EnsureStreams(ctx, w.modelNames()); err != nil {
		return err
	}
	if err := w.conn.EnsureConsumers(ctx, w.modelNames()); err != nil {
		return err
	}
	return w.serve(ctx, work, group, f)
}

// joined returns a context that ends with either, and what ends it.
func joined(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// versionsChanged is told by the set of versions.
func (w *Worker) versionsChanged() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// linger is how long a version stays that is not wanted: as long as the requests
// of workers that died come back.
func linger(ackWait time.Duration) time.Duration { return max(30*time.Second, 3*ackWait) }

// serve takes requests until ctx or work ends, and drains.
func (w *Worker) serve(ctx, work context.Context, group *errgroup.Group, f *follower) error {
	intake, err := w.conn.Intake(w.modelNames())
	if err != nil {
		return err
	}
	w.frames, err = w.conn.Publisher(broker.PublisherConfig{Worker: w.cfg.Name, Gone: w.gone})
	if err != nil {
		return err
	}
	defer w.closeQuietly("frame publisher", w.frames.Close)

	w.stores = newStores(2*w.cfg.AckWait, time.Now())
	w.finals, err = w.conn.Finals()
	if err != nil {
		return err
	}
	defer w.closeQuietly("store of finals", w.finals.Close)
	defer w.tasks.stop()

	// The publisher and the leases go on until the last run is closed.
	publishing, stopPublishing := context.WithCancel(context.WithoutCancel(work))
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stopPublishing()
	parts.Go(func() { w.publisher().run(publishing) })
	parts.Go(func() { w.keepLeases(publishing) })

	service, err := w.startService(ctx)
	if err != nil {
		return err
	}
	defer w.closeQuietly("service", service.Close)

	parts.Go(func() { w.show(publishing) })
	taking, stopTaking := context.WithCancel(work)
	defer stopTaking()
	stopped := make(chan struct{})
	group.Go(func() error {
		defer close(stopped)
		return w.take(taking, intake)
	})
	f.front = front{intake, service}
	parts.Go(func() { f.run(taking) })
	parts.Go(func() { w.reconcile(taking) })
	parts.Go(func() { w.sweep(taking) })
	parts.Go(func() { w.probeStores(taking) })
	w.serving.Store(true)
	close(w.ready)
	w.log.LogAttrs(ctx, slog.LevelInfo, "serving", slog.Any("models", w.modelNames()),
		slog.Int("slots", w.cfg.Slots), slog.Int("realtime_slots", w.cfg.realtimeSlots()), slog.String("isa", isa(w.deps.Backend)))

	var lost error
	select {
	case <-ctx.Done():
	case <-w.leave:
	case <-work.Done():
	case <-w.conn.Closed():
		lost = fmt.Errorf("broker: %w: %w", broker.ErrClosed, cmp.Or(w.conn.NATS().LastError(), errNoReason))
		w.HandBack() // nobody can be answered
	}
	w.draining.Store(true)
	w.log.LogAttrs(context.Background(), slog.LevelInfo, "draining", slog.Int("running", w.table.count()))
	stopTaking()
	w.drainService(service)
	<-stopped
	w.finishRuns(work)
	w.log.LogAttrs(context.Background(), slog.LevelInfo, "drained")
	return lost
}

// isa returns the instruction tier of a backend that has one.
func isa(b cellrt.Backend) string {
	if b, ok := b.(interface{ ISA() string }); ok {
		return b.ISA()
	}
	return ""
}

// publisher returns the owner of frames.
func (w *Worker) publisher() *publisher {
	return &publisher{
		outbox: w.outbox, interval: w.cfg.FrameInterval, beat: w.cfg.Heartbeat, patience: w.cfg.AckWait,
		stop: w.stop, closed: w.closed,
		session: func() uint64 { return w.conn.NATS().Stats().Reconnects },
		records: &archive{worker: w, finals: w.finals}, attempts: w.cfg.MaxAttempts,
	}
}
