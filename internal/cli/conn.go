package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/worker"
)

// closeWait bounds how long a connection may take to close.
const closeWait = 5 * time.Second

// connOptions are the flags of commands that ask the server itself, as an operator.
type connOptions struct {
	natsURL string
	json    bool
}

func (o *connOptions) bind(set *pflag.FlagSet) {
	set.StringVar(&o.natsURL, "nats-url", "", "NATS server to connect to (default $CELLMQ_NATS_URL or nats://127.0.0.1:4222)")
	set.BoolVar(&o.json, "json", false, "print JSON, an object in each line")
}

// withConn runs f with a connection to the server that has this name there.
func (o *connOptions) withConn(ctx context.Context, cfg worker.Config, s streams, name string, f func(*broker.Conn) error) (err error) {
	if o.natsURL != "" {
		cfg.NatsURL = o.natsURL
	}
	if cfg.NatsURL == "" {
		cfg.NatsURL = nats.DefaultURL
	}
	options, err := cfg.NatsOptions()
	if err != nil {
		return usageError{err}
	}
	cfg.LogLevel = "warn"
	conn, err := broker.Connect(ctx, broker.Config{
		URL: cfg.NatsURL, Name: name, Options: options, Prefix: cfg.SubjectPrefix, Logger: newLogger(cfg, s.err),
	})
	switch {
	case err == nil:
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("no server answers at %s, name it with --nats-url: %w", broker.RedactURL(cfg.NatsURL), nats.ErrNoServers)
	default:
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
		defer cancel()
		err = errors.Join(err, conn.Close(closing))
	}()
	return f(conn)
}
