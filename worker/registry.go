package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/registry"
)

// How the connection to the registry comes back, and how long an answer may take.
const (
	registryReconnect = 250 * time.Millisecond
	registryAnswer    = 5 * time.Second
)

// shelf is the registry as a worker uses it, on a connection of its own: parts of
// a large model do not stand before frames, and a user who may not use the registry
// is no fault of the worker's connection.
type shelf struct {
	*registry.Registry
	nc  *nats.Conn
	on  context.Context //nolint:containedctx // ends when the user turns out to lack a permission
	off context.CancelFunc
}

// open reports whether there is a registry as far as the user is concerned.
func (s *shelf) open() bool { return s != nil && s.on.Err() == nil }

func (s *shelf) close() {
	s.off()
	s.nc.Close()
}

// openShelf connects, to the server that the worker is connected to as long as that
// is there, and asks nothing. The caller closes it.
func (w *Worker) openShelf(server *broker.Server, options []nats.Option) (*shelf, error) {
	s := &shelf{}
	s.on, s.off = context.WithCancel(context.Background())
	opts := append([]nats.Option{
		nats.Name(w.cfg.Name + " registry"), nats.CustomInboxPrefix(inbox + w.cfg.Name),
		nats.MaxReconnects(-1), nats.ReconnectWait(registryReconnect), nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) && s.on.Err() == nil {
				s.off()
				w.log.LogAttrs(context.Background(), slog.LevelWarn, "the model registry is off: the server does not permit it to this user", slog.Any("error", err))
			}
		}),
		nats.LameDuckModeHandler(func(nc *nats.Conn) {
			if len(nc.Servers()) > 1 {
				_ = nc.ForceReconnect() // fails when it is closed
			}
		}),
		nats.DontRandomize(),
	}, options...)
	url := w.conn.NATS().ConnectedUrl() + "," + w.cfg.NatsURL
	if server != nil {
		url, opts = "", append(opts, server.Option())
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("connection of the registry: %w", err)
	}
	s.nc = nc
	s.Registry, err = registry.New(registry.Config{
		Conn: nc, Prefix: w.cfg.SubjectPrefix, Log: w.log, Timeout: registryAnswer,
	})
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("registry: %w", err)
	}
	return s, nil
}
