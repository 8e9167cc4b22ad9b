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
	// overlap is above the time between the server's choice of whom a request goes
	// to and its delivery. A request for which the only subscription ends in between
	// finds nobody.
	overlap = 50 * time.Millisecond
	// drainPoll is well above the interval in which the library looks whether a
	// subscription that drains has nothing left, 100 ms.
	drainPoll = 500 * time.Millisecond
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
// Without a connection, and when it is lost meanwhile, it waits for one until ctx
// ends. After another error than that of a bad model the change may have been
// made, and the server may not know it yet; the same call again settles it. After
// Drain or Close it does nothing.
func (s *Service) SetModels(ctx context.Context, models []ServedModel) error {
	if err := s.checkModels(models); err != nil {
		return fmt.Errorf("set models of the service: %w", err)
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if err := awaitConnected(ctx, s.conn.nc); err != nil {
		return fmt.Errorf("set models of the service: %w", err)
	}
	replaced, err := s.replaceModels(models)
	if err != nil {
		return fmt.Errorf("set models of the service: %w", err)
	}
	if replaced {
		err = errors.Join(s.settle(ctx), s.overlap(ctx))
		session := s.conn.nc.Stats().Reconnects
		err = errors.Join(err, s.stopReplaced())
		s.exorcise(session)
	}
	if err = errors.Join(err, s.settle(ctx)); err != nil {
		return fmt.Errorf("set models of the service: %w", err)
	}
	return nil
}

// settle returns when the server knows the subscriptions there are. It hears of
// them again with every new connection.
func (s *Service) settle(ctx context.Context) error {
	for {
		err := awaitConnected(ctx, s.conn.nc)
		if err != nil {
			return err
		}
		if err = s.conn.flush(ctx); err == nil || ctx.Err() != nil || s.life.Err() != nil {
			return err
		}
	}
}

// overlap waits while both the new and the replaced endpoints are in the queue
// groups.
func (s *Service) overlap(ctx context.Context) error {
	timer := time.NewTimer(overlap)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.life.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// stopReplaced ends the endpoints that replaceModels left.
func (s *Service) stopReplaced() error {
	s.mu.Lock()
	old := s.replaced
	s.replaced = nil
	s.mu.Unlock()
	if old == nil {
		return nil // by Drain or Close
	}
	return old.Stop()
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

// replaceModels registers the endpoints of models, none after Drain, and reports
// whether there were some before, which are s.replaced then.
func (s *Service) replaceModels(models []ServedModel) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drained {
		return false, nil
	}
	var svc micro.Service
	if len(models) > 0 {
		var err error
		svc, err = s.addService(func(svc micro.Service) error { return s.registerModels(svc, models) })
		if err != nil {
			return false, err
		}
	}
	s.replaced, s.models, s.served = s.models, svc, models
	return s.replaced != nil, nil
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
		ticker := time.NewTicker(wait)
		defer ticker.Stop()
		for again := true; again; again = !nc.IsConnected() {
			select {
			case <-s.life.Done():
				return
			case <-ticker.C:
			}
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
