package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

const (
	// drainPoll is above the interval in which the library looks whether a
	// subscription that drains has nothing left.
	drainPoll = time.Second
	// drainBlind is above the time for which it waits for a server that is away.
	drainBlind = requestTimeout + drainPoll
)

// SetModels makes models the ones that core requests are taken for and that
// discovery shows, and returns when the server knows them. The worker stays in
// the queue group of a model that it has before and after, whatever its version:
// no request in between goes unheard or is heard twice. Requests for a model that
// leaves which have arrived are still delivered, the last of them maybe a moment
// after SetModels returns. Statistics of the endpoints begin anew.
//
// Without a connection it waits for one until ctx ends. After another error than
// that of a bad model the change may have been made, and the server may not know
// it yet; the same call again settles it. After Drain or Close it does nothing.
func (s *Service) SetModels(ctx context.Context, models []ServedModel) error {
	if err := s.checkModels(models); err != nil {
		return fmt.Errorf("set models of the service: %w", err)
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if err := awaitConnected(ctx, s.conn.nc); err != nil {
		return fmt.Errorf("set models of the service: %w", err)
	}
	session := s.conn.nc.Stats().Reconnects
	old, err := s.replaceModels(models)
	if err != nil {
		return fmt.Errorf("set models of the service: %w", err)
	}
	// The server takes the subscriptions and their ends in order, so it never has
	// none of a model that stays.
	if old != nil {
		err = old.Stop()
		s.exorcise(session)
	}
	if err = errors.Join(err, s.conn.flush(ctx)); err != nil {
		return fmt.Errorf("set models of the service: %w", err)
	}
	return nil
}

// checkModels checks what is served.
func (s *Service) checkModels(models []ServedModel) error {
	if len(models) > 0 && (s.cfg.Deliver == nil || s.cfg.Credits == nil) {
		return errors.New("models need credits and a receiver of deliveries")
	}
	seen := map[string]bool{}
	for _, m := range models {
		if !ValidModel(m.Name) {
			return fmt.Errorf("model %q is not [a-z0-9-]{1,%d}", clip(m.Name), maxModelName)
		}
		if seen[m.Name] {
			return fmt.Errorf("model %s: twice", m.Name)
		}
		seen[m.Name] = true
	}
	return nil
}

// replaceModels registers the endpoints of models, none after Drain, and returns
// the service that had those before, which is to be stopped; nil: none had.
func (s *Service) replaceModels(models []ServedModel) (old micro.Service, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drained {
		return nil, nil
	}
	var svc micro.Service
	if len(models) > 0 {
		svc, err = s.addService(func(svc micro.Service) error { return s.registerModels(svc, models) })
		if err != nil {
			return nil, err
		}
	}
	old, s.models = s.models, svc
	return old, nil
}

func (s *Service) registerModels(svc micro.Service, models []ServedModel) error {
	for _, m := range models {
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
	return nil
}

// exorcise looks, after a moment, whether the connection was lost while the
// subscriptions of a stopped service drained; session counts the reconnections
// before. The library makes a subscription that drains known to the server again,
// and when it has drained forgets it without a word: the server would go on to
// choose it from the queue group, and nobody would hear. Another reconnection ends
// that.
func (s *Service) exorcise(session uint64) {
	nc, wait := s.conn.nc, drainPoll
	if !nc.IsConnected() {
		wait = drainBlind
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return // the connection ends next
	}
	s.ghosts.Go(func() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-s.life.Done():
			return
		case <-timer.C:
		}
		if nc.Stats().Reconnects == session {
			return
		}
		s.conn.log.Warn("connection lost while endpoints drained: connecting again")
		if err := nc.ForceReconnect(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			s.conn.log.Warn("not connected again", slog.Any("error", err))
		}
	})
}
