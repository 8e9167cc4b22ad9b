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
	// Models get an endpoint infer.rt.<model> each.
	Models []ServedModel
	// Credits bound the core requests held at once. None free: busy.
	Credits *Credits
	// Deliver takes a core request; it must not block. Required with Models.
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
// discovery and statistics. It is safe for concurrent use.
type Service struct {
	conn    *Conn
	cfg     ServiceConfig
	decoder *decoder
	// lookup returns a context for what a handler looks up. It ends with the
	// service, which stop ends.
	lookup func() (context.Context, context.CancelFunc)
	stop   context.CancelFunc

	busy, unanswerable, dropped atomic.Uint64

	resumes, cancels *questions     // to the streams
	looking          sync.WaitGroup // who answers them
	queueAway        time.Time      // when the queue last failed to answer; see glance

	mu     sync.Mutex
	micro  micro.Service        // nil after Drain
	kept   []*nats.Subscription // while draining: what is left
	closed bool
}

// Serve registers the endpoints; they are reachable when it returns.
func (c *Conn) Serve(ctx context.Context, cfg ServiceConfig) (*Service, error) {
	s := &Service{conn: c, cfg: cfg, decoder: c.decoder()}
	life, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.lookup = func() (context.Context, context.CancelFunc) { return context.WithTimeout(life, lookupWait) }
	s.resumes, s.cancels = newQuestions("resume-stored", c.log, s.drop), newQuestions("cancel-queued", c.log, s.drop)
	if len(cfg.Models) > 0 && (cfg.Deliver == nil || cfg.Credits == nil) {
		return nil, errors.New("serve: models need credits and a receiver of deliveries")
	}
	if cfg.Control != nil && !ValidClient(cfg.Worker) {
		return nil, fmt.Errorf("serve: worker name %q is not [A-Za-z0-9_-]{1,%d}", cfg.Worker, maxClientName)
	}
	version := cfg.Version
	orDefault(&version, defaultSemVer)
	config := micro.Config{
		Name:        serviceName,
		Version:     version,
		Description: "sequence inference by cellular batching",
		Metadata:    map[string]string{"worker": cfg.Worker},
		QueueGroup:  queueGroup,
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) {
			c.log.Warn("service error", slog.String("subject", err.Subject), slog.String("error", err.Description))
		},
	}
	if cfg.Stats != nil {
		config.StatsHandler = func(*micro.Endpoint) any { return cfg.Stats() }
	}
	svc, err := micro.AddService(c.nc, config)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	s.micro = svc
	for _, q := range []*questions{s.resumes, s.cancels} {
		s.looking.Go(func() { q.run(life) })
	}
	if err = s.register(svc); err == nil {
		err = c.flush(ctx) // the server knows the endpoints
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve: %w", err), s.Close())
	}
	return s, nil
}

func (s *Service) register(svc micro.Service) error {
	for _, m := range s.cfg.Models {
		if !ValidModel(m.Name) {
			return fmt.Errorf("model %q is not [a-z0-9-]{1,%d}", m.Name, maxModelName)
		}
		handle := micro.HandlerFunc(func(r micro.Request) { s.realtime(m.Name, r) })
		// No model's name has the character that tells the two endpoints apart.
		for _, e := range []endpoint{
			{name: m.Name, subject: s.conn.subjects.realtime(m.Name)},
			{name: m.Name + "_client", subject: s.conn.subjects.realtimeOf(m.Name, "*")},
		} {
			err := svc.AddEndpoint(e.name, handle, micro.WithEndpointSubject(e.subject), micro.WithEndpointMetadata(m.metadata()))
			if err != nil {
				return fmt.Errorf("endpoint of model %s: %w", m.Name, err)
			}
		}
	}
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
	svc := s.micro
	s.micro = nil
	s.mu.Unlock()
	if svc == nil {
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
	if err := svc.Stop(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		errs = append(errs, err)
	}
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
	svc, kept := s.micro, s.kept
	s.micro, s.kept, s.closed = nil, nil, true
	s.mu.Unlock()
	var errs []error
	if svc != nil {
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
