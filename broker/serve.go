package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// How the service appears to the tools.
const (
	serviceName   = "cellmq"
	queueGroup    = "cellmq"
	busyRetry     = 100 * time.Millisecond // advice in a busy frame
	defaultSemVer = "0.0.0"
)

// ServedModel describes a model for discovery.
type ServedModel struct {
	Name, Version, Digest string
	// Weights is the weight type. Empty: not shown.
	Weights string
}

// metadata is what discovery shows of the model beside its name.
func (m ServedModel) metadata() map[string]string {
	out := map[string]string{"version": m.Version, "digest": m.Digest}
	if m.Weights != "" {
		out["weights"] = m.Weights
	}
	return out
}

// ServiceConfig describes what a worker serves beside the queue.
type ServiceConfig struct {
	// Worker names this worker in the service's metadata.
	Worker string
	// Version of the software, SemVer. Default "0.0.0".
	Version string
	// Models get an endpoint infer.rt.<model> each; see [Service.SetModels].
	Models []ServedModel
	// Credits bound the core requests held at once. None free: busy.
	Credits *Credits
	// Deliver takes a core request; it must not block. Required with models, as
	// Credits are.
	Deliver func(*Delivery)
	// Cancel handles a cancel request; it must not block. Sequence is that of
	// the request's message in the queue as far as the client knows it, else 0.
	// Nil: no endpoint.
	Cancel func(client, id string, seq uint64) CancelState
	// Finals stores the final of a request that is cancelled while it is queued.
	// Nil: such a request ends when a worker takes it.
	Finals *Finals
	// Resume asks the worker to bring the readers of a request up to date: when
	// it runs the request it arranges for a [TokenStream.Cumulative] on the
	// request's own stream and returns true; otherwise false. Index is the number
	// of tokens that the requester has, reply the subject that it reads. It must
	// not block. Nil: only what is stored is read back.
	Resume func(client, id string, index int, reply string) bool
	// Control handles a request to infer.ctl.<worker>; it must not block. Nil:
	// no endpoint.
	Control func(Control) ControlReply
	// Dropped is called for each resume or cancel request that is not looked up,
	// since too many wait and its client has most of them. It must not block. Nil:
	// they are counted only.
	Dropped func()
	// Refused is called for each core request of a served model that is answered
	// with an error for want of a credit. It must not block. Nil: they are counted
	// only.
	Refused func(model string, code Code)
	// Stats is called for service statistics; its result is encoded as JSON.
	Stats func() any
}

// ServiceStats counts what the service answered itself.
type ServiceStats struct {
	// Busy requests were refused for want of a credit.
	Busy uint64
	// Unanswerable requests named no usable reply subject and were dropped.
	Unanswerable uint64
	// Dropped resume and cancel requests were not looked up, see
	// [ServiceConfig.Dropped].
	Dropped uint64
}

// Service is the worker's face in NATS: core endpoints, cancellation,
// discovery and statistics. It is safe for concurrent use. Discovery shows it as
// two instances of one name: one has the endpoints of the models, which come and
// go with [Service.SetModels], the other all that stays.
type Service struct {
	conn    *Conn
	cfg     ServiceConfig
	decoder *decoder
	life    context.Context //nolint:containedctx // ends with the service
	stop    context.CancelFunc
	// lookup returns a context for what a handler looks up. It ends with life.
	lookup func() (context.Context, context.CancelFunc)

	busy, unanswerable, dropped atomic.Uint64

	resumes, cancels *questions     // to the streams
	looking          sync.WaitGroup // who answers them
	queueAway        time.Time      // when the queue last failed to answer; see glance

	changing sync.Mutex     // one change of the models at a time
	ghosts   sync.WaitGroup // of the goroutines that look for them, see exorcise

	mu       sync.Mutex
	micro    micro.Service        // what stays; nil after Drain
	models   micro.Service        // the models' endpoints; nil without models and after Drain
	replaced micro.Service        // those before, for a moment
	served   []ServedModel        // what models has
	drained  bool                 // by Drain or Close
	kept     []*nats.Subscription // while draining: what is left
	closed   bool
}

// Serve registers the endpoints; they are reachable when it returns.
func (c *Conn) Serve(ctx context.Context, cfg ServiceConfig) (*Service, error) {
	s := &Service{conn: c, cfg: cfg, decoder: c.decoder()}
	life, stop := context.WithCancel(context.Background())
	s.life, s.stop = life, stop
	s.lookup = func() (context.Context, context.CancelFunc) { return context.WithTimeout(life, lookupWait) }
	s.resumes, s.cancels = newQuestions("resume-stored", c.log, s.drop), newQuestions("cancel-queued", c.log, s.drop)
	if cfg.Control != nil && !ValidClient(cfg.Worker) {
		stop()
		return nil, fmt.Errorf("serve: worker name %q is not [A-Za-z0-9_-]{1,%d}", cfg.Worker, maxClientName)
	}
	if err := s.checkModels(cfg.Models); err != nil {
		stop()
		return nil, fmt.Errorf("serve: %w", err)
	}
	for _, q := range []*questions{s.resumes, s.cancels} {
		s.looking.Go(func() { q.run(life) })
	}
	err := s.open()
	if err == nil {
		err = c.flush(ctx) // the server knows the endpoints
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve: %w", err), s.Close())
	}
	return s, nil
}

// open registers the service and the models it begins with.
func (s *Service) open() error {
	svc, err := s.addService(s.register)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.micro = svc
	s.mu.Unlock()
	_, err = s.replaceModels(s.cfg.Models)
	return err
}

// addService adds a service to the connection, with the endpoints that register
// gives it. Those of one worker differ in nothing but id and endpoints.
func (s *Service) addService(register func(micro.Service) error) (micro.Service, error) {
	version := s.cfg.Version
	orDefault(&version, defaultSemVer)
	config := micro.Config{
		Name:        serviceName,
		Version:     version,
		Description: "sequence inference by cellular batching",
		Metadata:    map[string]string{"worker": s.cfg.Worker},
		QueueGroup:  queueGroup,
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) {
			s.conn.log.Warn("service error", slog.String("subject", err.Subject), slog.String("error", err.Description))
		},
	}
	if s.cfg.Stats != nil {
		config.StatsHandler = func(*micro.Endpoint) any { return s.cfg.Stats() }
	}
	svc, err := micro.AddService(s.conn.nc, config)
	if err != nil {
		return nil, err
	}
	if err := register(svc); err != nil {
		return nil, errors.Join(err, svc.Stop())
	}
	return svc, nil
}

// register adds the endpoints that are not of a model.
func (s *Service) register(svc micro.Service) error {
	for _, e := range s.endpoints() {
		opts := []micro.EndpointOpt{micro.WithEndpointSubject(e.subject)}
		if !e.one {
			opts = append(opts, micro.WithEndpointQueueGroupDisabled())
		}
		handle := micro.HandlerFunc(func(r micro.Request) { e.handle(r.Subject(), r.Reply(), r.Data()) })
		if err := svc.AddEndpoint(e.name, handle, opts...); err != nil {
			return fmt.Errorf("%s endpoint: %w", e.name, err)
		}
	}
	return nil
}

// endpoint is one of those that are not of a model.
type endpoint struct {
	name, subject string
	one           bool // one worker hears a request, and not every one
	kept          bool // while draining too: what runs is the worker's still
	handle        func(subject, reply string, payload []byte)
}

// endpoints returns those that the configuration asks for. The owner of a
// request and one worker that looks at the streams both hear what concerns it.
func (s *Service) endpoints() []endpoint {
	cancel, resume := s.conn.subjects.cancel("*"), s.conn.subjects.resume("*")
	out := []endpoint{{name: "resume-stored", subject: resume, one: true, handle: s.resumeStored}}
	if s.cfg.Resume != nil {
		out = append(out, endpoint{name: "resume", subject: resume, kept: true, handle: s.resumeRunning})
	}
	if s.cfg.Cancel != nil {
		out = append(out,
			endpoint{name: "cancel", subject: cancel, kept: true, handle: s.serveCancel},
			endpoint{name: "cancel-queued", subject: cancel, one: true, handle: s.cancelQueued})
	}
	if s.cfg.Control != nil {
		out = append(out, endpoint{name: "control", subject: s.conn.subjects.control(s.cfg.Worker), kept: true, handle: s.control})
	}
	return out
}

// realtime takes a core request, or refuses it at once.
func (s *Service) realtime(model string, r micro.Request) {
	now := time.Now()
	req, bad := s.decoder.core(model, message{
		subject: r.Subject(), reply: r.Reply(), header: nats.Header(r.Headers()), payload: r.Data(),
	}, now)
	if req.Reply == "" {
		s.unanswerable.Add(1)
		s.conn.log.Debug("core request without usable reply subject", slog.String("model", model))
		return
	}
	d := &Delivery{Request: req, Err: bad, Lease: newCoreLease(now), credits: s.cfg.Credits}
	if s.cfg.Credits.TryTake(1) == 0 {
		s.busy.Add(1)
		s.refuse(d)
		return
	}
	s.cfg.Deliver(d)
}

// refuse answers busy, and a bad request with what is wrong with it.
func (s *Service) refuse(d *Delivery) {
	e := d.Err
	if e == nil {
		e = NewError(CodeBusy, "no free slot for core requests")
		e.RetryAfter = busyRetry
	}
	if s.cfg.Refused != nil {
		s.cfg.Refused(d.Request.Model, e.Code)
	}
	f := Frame{Type: FrameError, ID: d.Request.ID, Epoch: d.Lease.Epoch, Attempt: d.Lease.Attempt, Error: e, Meta: d.Request.Params.Meta}
	b, err := AppendFrame(nil, d.Request.Encoding, &f)
	if err == nil {
		err = s.conn.send(d.Request.Reply, "", b)
	}
	if err != nil {
		s.conn.log.Warn("refusal not sent", slog.String("request_id", d.Request.ID), slog.Any("error", err))
	}
}

// drop counts a question that has no answer.
func (s *Service) drop() {
	s.dropped.Add(1)
	if s.cfg.Dropped != nil {
		s.cfg.Dropped()
	}
}

// Stats returns the counters.
func (s *Service) Stats() ServiceStats {
	return ServiceStats{Busy: s.busy.Load(), Unanswerable: s.unanswerable.Load(), Dropped: s.dropped.Load()}
}

// Drain takes the worker out of the queue groups and of discovery. Requests that
// have arrived are still delivered, the last of them maybe a moment after it
// returns. What concerns running requests, and control, go on.
func (s *Service) Drain(ctx context.Context) error {
	s.mu.Lock()
	services := s.takeServices()
	s.mu.Unlock()
	if len(services) == 0 {
		return nil
	}
	var errs []error
	for _, e := range s.endpoints() {
		if !e.kept {
			continue
		}
		// For a moment both subscriptions hear a request: harmless.
		if err := s.keep(e); err != nil {
			errs = append(errs, err)
		}
	}
	session := s.conn.nc.Stats().Reconnects
	for _, svc := range services {
		if err := svc.Stop(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			errs = append(errs, err)
		}
	}
	s.exorcise(session)
	if s.conn.nc.IsConnected() {
		if err := s.conn.flush(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("drain service: %w", err)
	}
	return nil
}

// takeServices leaves s without services for good. It is called with mu held.
func (s *Service) takeServices() []micro.Service {
	var out []micro.Service
	for _, svc := range []micro.Service{s.replaced, s.models, s.micro} {
		if svc != nil {
			out = append(out, svc)
		}
	}
	s.micro, s.models, s.replaced, s.drained = nil, nil, nil, true
	return out
}

// keep goes on with an endpoint beside the service.
func (s *Service) keep(e endpoint) error {
	sub, err := s.conn.nc.Subscribe(e.subject, func(m *nats.Msg) { e.handle(m.Subject, m.Reply, m.Data) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.kept = append(s.kept, sub)
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return sub.Unsubscribe()
	}
	return nil
}

// Close ends everything, cancellation too. Questions to the streams that wait have
// no answer.
func (s *Service) Close() error {
	s.stop()
	defer s.looking.Wait()
	s.mu.Lock()
	services, kept := s.takeServices(), s.kept
	s.kept, s.closed = nil, true
	s.mu.Unlock()
	s.ghosts.Wait()
	var errs []error
	for _, svc := range services {
		errs = append(errs, svc.Stop())
	}
	for _, sub := range kept {
		errs = append(errs, sub.Unsubscribe())
	}
	if err := errors.Join(errs...); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("close service: %w", err)
	}
	return nil
}
