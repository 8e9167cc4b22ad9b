package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	tendEvery = time.Second
	// tendPatience is how often in a row JetStream is found unwell before it is
	// started again.
	tendPatience = 3
	// tendRoom is how much must fit onto the disk before.
	tendRoom = 1 << 20
)

// Tend watches the server's JetStream until ctx ends, and starts it again when
// it has stopped or has a stream that takes no more messages, as after its disk
// was full: as soon as the disk has room, without losing connections. What was
// stored stays; streams in memory are lost, as in any restart. What a restart
// does not help is left as it is, and logged once.
func (s *Server) Tend(ctx context.Context) {
	ticker := time.NewTicker(tendEvery)
	defer ticker.Stop()
	unwell, helpless := 0, false
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		err := s.unwell()
		if err == nil {
			unwell, helpless = 0, false
			continue
		}
		if unwell++; unwell == tendPatience {
			s.log.Error("jetstream of the embedded server is unwell", slog.Any("error", err))
		}
		if unwell < tendPatience || helpless || s.room() != nil {
			continue
		}
		if err := s.restartJetStream(); err != nil {
			s.log.Error("jetstream of the embedded server not started again", slog.Any("error", err))
			continue
		}
		if err := s.unwell(); err != nil {
			helpless = true
			s.log.Error("jetstream of the embedded server is unwell after a restart too", slog.Any("error", err))
			continue
		}
		s.log.Warn("jetstream of the embedded server was started again")
	}
}

// unwell says what is wrong with JetStream, nil when nothing is. In a cluster the
// servers mend streams among themselves, so there only its end counts.
func (s *Server) unwell() error {
	status := s.srv.Healthz(&server.HealthzOptions{JSEnabledOnly: s.srv.JetStreamIsClustered()})
	if status.Error == "" {
		return nil
	}
	return errors.New(status.Error)
}

// room tries whether the disk takes a file.
func (s *Server) room() error {
	f, err := os.CreateTemp(s.jetStream.StoreDir, "room-")
	if err != nil {
		return fmt.Errorf("try the disk: %w", err)
	}
	_, err = f.Write(make([]byte, tendRoom))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// restartJetStream ends JetStream, if it has not ended, and starts it.
func (s *Server) restartJetStream() error {
	if err := s.srv.ShutdownJetStream(); err != nil {
		return fmt.Errorf("end jetstream: %w", err)
	}
	cfg := s.jetStream // it is changed
	if err := s.srv.EnableJetStream(&cfg); err != nil {
		return fmt.Errorf("start jetstream: %w", err)
	}
	return nil
}
