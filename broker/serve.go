package broker

import (
	"context"
	"encoding/json"
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

// CancelState says what a cancel request found.
type CancelState string

// The states a worker or client reports.
const (
	// CancelUnknown: not ours. A worker that returns it stays silent; a client
	// gets it when no worker answered.
	CancelUnknown CancelState = "unknown"
	// CancelRunning: it was running and stops within a step.
	CancelRunning CancelState = "running"
	// CancelFinished: it had ended before.
	CancelFinished CancelState = "finished"
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
	// Cancel handles a cancel request; it must not block. Nil: no endpoint.
	Cancel func(client, id string) CancelState
	// Stats is called for service statistics; its result is encoded as JSON.
	Stats func() any
}

// ServiceStats counts what the service answered itself.
type ServiceStats struct {
	// Busy requests were refused for want of a credit.
	Busy uint64
	// Unanswerable requests named no usable reply subject and were dropped.
	Unanswerable uint64
}

// Service is the worker's face in NATS: core endpoints, cancellation,
// discovery and statistics. It is safe for concurrent use.
type Service struct {
	conn    *Conn
	cfg     ServiceConfig
	decoder *decoder

	busy, unanswerable atomic.Uint64

	mu     sync.Mutex
	micro  micro.Service      // nil after Drain
	cancel *nats.Subscription // while draining: what is left
	closed bool
}

// Serve registers the endpoints; they are reachable when it returns.
func (c *Conn) Serve(ctx context.Context, cfg ServiceConfig) (*Service, error) {
	s := &Service{conn: c, cfg: cfg, decoder: c.decoder()}
	if len(cfg.Models) > 0 && (cfg.Deliver == nil || cfg.Credits == nil) {
		return nil, errors.New("serve: models need credits and a receiver of deliveries")
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
		err := svc.AddEndpoint(m.Name, micro.HandlerFunc(func(r micro.Request) { s.realtime(m.Name, r) }),
			micro.WithEndpointSubject(s.conn.subjects.realtime(m.Name)),
			micro.WithEndpointMetadata(m.metadata()))
		if err != nil {
			return fmt.Errorf("endpoint of model %s: %w", m.Name, err)
		}
	}
	if s.cfg.Cancel == nil {
		return nil
	}
	err := svc.AddEndpoint("cancel", micro.HandlerFunc(func(r micro.Request) { s.serveCancel(r.Subject(), r.Reply(), r.Data()) }),
		micro.WithEndpointSubject(s.conn.subjects.cancel("*")),
		micro.WithEndpointQueueGroupDisabled()) // every worker hears it, the owner answers
	if err != nil {
		return fmt.Errorf("cancel endpoint: %w", err)
	}
	return nil
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

// cancelMessage is the payload of a cancel request and of its answer.
type cancelMessage struct {
	ID    string      `json:"id"`
	State CancelState `json:"state,omitempty"`
}

// serveCancel answers only for a request that is the worker's own.
func (s *Service) serveCancel(subject, reply string, payload []byte) {
	client := subject[len(s.conn.subjects.cancel("")):]
	id, err := cancelID(payload)
	if err != nil || !ValidClient(client) {
		s.conn.log.Debug("malformed cancel request", slog.String("client", clip(client)))
		return
	}
	state := s.cfg.Cancel(client, id)
	if state == CancelUnknown || state == "" || reply == "" {
		return
	}
	b, err := json.Marshal(cancelMessage{ID: id, State: state})
	if err == nil {
		err = s.conn.send(reply, "", b)
	}
	if err != nil {
		s.conn.log.Warn("cancel answer not sent", slog.String("request_id", id), slog.Any("error", err))
	}
}

// cancelID reads {"id": ...} in JSON or MessagePack.
func cancelID(payload []byte) (string, error) {
	const longest = 256
	var f Frame
	var err error
	switch {
	case len(payload) > longest:
		return "", fmt.Errorf("payload has %d bytes, limit %d", len(payload), longest)
	case len(payload) > 0 && payload[0] == '{':
		err = decodeJSONFrame(&f, payload)
	default:
		err = decodeMsgPackFrame(&f, payload)
	}
	if err != nil {
		return "", err
	}
	if !ValidID(f.ID) {
		return "", badID(f.ID)
	}
	return f.ID, nil
}

// Stats returns the counters.
func (s *Service) Stats() ServiceStats {
	return ServiceStats{Busy: s.busy.Load(), Unanswerable: s.unanswerable.Load()}
}

// Drain takes the worker out of the queue groups and of discovery. Requests that
// have arrived are still delivered, the last of them maybe a moment after it
// returns. Cancellation goes on.
func (s *Service) Drain(ctx context.Context) error {
	s.mu.Lock()
	svc := s.micro
	s.micro = nil
	s.mu.Unlock()
	if svc == nil {
		return nil
	}
	var errs []error
	if s.cfg.Cancel != nil {
		// For a moment both subscriptions hear a cancel request: harmless.
		if err := s.keepCancel(); err != nil {
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

func (s *Service) keepCancel() error {
	sub, err := s.conn.nc.Subscribe(s.conn.subjects.cancel("*"), func(m *nats.Msg) {
		s.serveCancel(m.Subject, m.Reply, m.Data)
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.cancel = sub
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return sub.Unsubscribe()
	}
	return nil
}

// Close ends everything, cancellation too.
func (s *Service) Close() error {
	s.mu.Lock()
	svc, sub := s.micro, s.cancel
	s.micro, s.cancel, s.closed = nil, nil, true
	s.mu.Unlock()
	var errs []error
	if svc != nil {
		errs = append(errs, svc.Stop())
	}
	if sub != nil {
		errs = append(errs, sub.Unsubscribe())
	}
	if err := errors.Join(errs...); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("close service: %w", err)
	}
	return nil
}
