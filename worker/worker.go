package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// Deps are the parts that a worker can be given instead of making them. The
// zero value makes them all.
type Deps struct {
	// Log receives the worker's events. Default: discarded.
	Log *slog.Logger
	// Server is a running embedded server to work on, which stays the caller's.
	// Default: what the configuration says.
	Server *broker.Server
	// Models are served as they are. Default: what the configuration says.
	Models []*models.Model
	// Backend computes. Default: the CPU.
	Backend cellrt.Backend
	// Version of the software for service discovery, SemVer.
	Version string
}

// Worker serves models. Make one with [New] and run it once.
type Worker struct {
	cfg  Config
	deps Deps
	log  *slog.Logger

	registry *prometheus.Registry
	metrics  *metrics
	recorder *recorder
	depths   queueDepths
	outbox   *outbox
	table    *table
	tasks    *tasks
	runtime  *cellrt.Runtime
	loader   *loader
	versions *versions.Set
	tally    *tally
	changed  chan struct{} // holds a signal when a version's state has changed
	durable  *broker.Credits
	realtime *broker.Credits

	// Set by Run before anything that reads them starts.
	began  time.Time
	lacked []string // names that CELLMQ_MODELS gives, and that are none of its own models'
	own    map[string]versions.Key
	shelf  *shelf // nil: no registry
	conn   *broker.Conn
	frames *broker.Publisher
	finals *broker.Finals
	admin  *admin
	stores *stores
	traces *tracing // nil: none

	routes    atomic.Pointer[routes] // never nil
	awaited   atomic.Pointer[string] // which of lacked are not served, and why; nil or empty: none
	webSocket atomic.Pointer[string] // of the embedded server; nil: none yet
	polled    atomic.Int64           // when deployments were read last, unix ns; 0: never

	link atomic.Pointer[broker.Conn] // conn, for those who may ask before it is there

	unregistered atomic.Bool // there is no registry, when it was asked last

	waitingDurable, waitingRealtime atomic.Int64 // requests whose versions are not in memory

	largest  atomic.Int64 // rows in a step since requests are taken
	serving  atomic.Bool  // requests are taken
	draining atomic.Bool  // no more requests are taken
	stuck    atomic.Bool  // the step loop makes no progress

	ready        chan struct{} // closed when serving
	handBack     chan struct{} // closed to end the grace period
	handBackOnce sync.Once
	leave        chan struct{} // closed to drain
	leaveOnce    sync.Once
	moving       chan struct{} // holds a signal when the server is about to stop
}

// New checks the configuration and builds a worker. Nothing runs and nothing
// is opened before [Worker.Run].
func New(cfg Config, deps Deps) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Backend == nil {
		deps.Backend = cpu.New(cpu.Config{ISA: cfg.ISA})
	}
	if cfg.Name == "" {
		cfg.Name = defaultName()
	}
	registry := prometheus.NewRegistry()
	w := &Worker{
		cfg: cfg, deps: deps, log: deps.Log.With(slog.String("worker", cfg.Name)),
		registry: registry,
		metrics:  newMetrics(registry),
		recorder: newRecorder(),
		outbox:   newOutbox(cfg.FrameInterval == 0),
		table:    newTable(),
		tasks:    newTasks(),
		durable:  broker.NewCredits(cfg.Slots),
		realtime: broker.NewCredits(cfg.realtimeSlots()),
		own:      map[string]versions.Key{},
		tally:    newTally(),
		changed:  make(chan struct{}, 1),
		ready:    make(chan struct{}),
		handBack: make(chan struct{}),
		leave:    make(chan struct{}),
		moving:   make(chan struct{}, 1),
	}
	runtime, err := cellrt.New(cellrt.Config{
		MaxRows: cfg.MaxRows, Executors: cfg.Executors, Threads: cfg.Threads, Profile: cfg.Profile,
		Trace: cellrt.Trace{Step: w.stepped},
	}, deps.Backend, w.outbox)
	if err != nil {
		return nil, err
	}
	w.runtime = runtime
	w.routes.Store(routesTo())
	w.loader = newLoader(w)
	w.versions = versions.New(versions.Config{
		Budget: cfg.ModelBytes, Linger: linger(cfg.AckWait), Loader: w.loader, Changed: w.versionsChanged, Failed: w.versionFailed,
	})
	registry.MustRegister(newReady(w), newLive(w), newWire(w), newLiveModels(w), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return w, nil
}

// defaultName is the host's name and a random suffix: several workers on a
// host are told apart.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	host = regexp.MustCompile(`[^A-Za-z0-9_-]`).ReplaceAllString(host, "-")
	suffix := nuid.Next()
	return host[:min(len(host), 48)] + "-" + strings.ToLower(suffix[len(suffix)-6:])
}

// Name is the worker's name.
func (w *Worker) Name() string { return w.cfg.Name }

// Ready is closed once the worker takes requests.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// AdminAddress is where the admin server listens, once the worker is ready;
// empty when it is off.
func (w *Worker) AdminAddress() string {
	if w.admin == nil {
		return ""
	}
	return w.admin.address()
}

// Stats is the state of the step loop. MaxRows is that of the steps since the
// worker takes requests.
func (w *Worker) Stats() cellrt.Stats {
	s := w.runtime.Stats()
	s.MaxRows = int(w.largest.Load())
	return s
}

// stepped is told of every step.
func (w *Worker) stepped(t cellrt.StepTrace) {
	w.metrics.stepped(t)
	w.recorder.stepped(&t)
	if !w.serving.Load() {
		return
	}
	rows := int64(t.Rows)
	for seen := w.largest.Load(); rows > seen; seen = w.largest.Load() {
		if w.largest.CompareAndSwap(seen, rows) {
			return
		}
	}
}

// Running is the number of requests that run now.
func (w *Worker) Running() int { return w.table.count() }

// HandBack ends the grace period of a drain at once: what still runs is handed
// back. It may be called at any time, more than once, from any goroutine.
func (w *Worker) HandBack() { w.handBackOnce.Do(func() { close(w.handBack) }) }

// Drain makes Run drain and return, as the end of its context does. It may be
// called at any time, more than once, from any goroutine.
func (w *Worker) Drain() { w.leaveOnce.Do(func() { close(w.leave) }) }

// closed is told by the publisher that a run has left.
func (w *Worker) closed(r *run, outcome string, now time.Time) {
	if r.expiry != nil {
		r.expiry.Stop()
	}
	finished := outcome != outcomeHandedBack && outcome != outcomeLeaseLost && outcome != outcomeUnsent
	w.metrics.closed(r, outcome, now)
	w.traces.closed(r, outcome, now)
	w.recorder.closed(r, outcome, now)
	w.logEnd(r, outcome, now)
	if k, ok := r.version(); ok {
		w.tally.count(k, w.versionName(k), outcome)
	}
	w.release(r)
	w.table.remove(r, finished, now)
	r.delivery.Done()
}

// logEnd writes the one line that a request has in the log. Its body never
// gets there.
func (w *Worker) logEnd(r *run, outcome string, now time.Time) {
	if !w.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	t := r.timing(now)
	w.log.LogAttrs(context.Background(), slog.LevelDebug, "end",
		slog.String("request_id", r.req.ID), slog.String("model", r.req.Model), slog.String("client", r.req.Client),
		slog.Bool("durable", r.req.Durable), slog.Uint64("attempt", r.delivery.Lease.Attempt),
		slog.String("outcome", outcome), slog.Int("tokens", len(r.ids)), slog.String("traceparent", r.req.TraceParent),
		slog.Duration("broker", t.Broker), slog.Duration("queue", t.Queue),
		slog.Duration("first_token", t.FirstToken), slog.Duration("total", t.Total))
}

func (w *Worker) modelNames() []string { return w.routes.Load().names() }
