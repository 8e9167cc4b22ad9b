package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/worker"
)

// local is a broker and a worker within this process, for one command.
type local struct {
	worker *worker.Worker
	nc     *nats.Conn
	close  func() error
}

// startLocal starts a broker without a listener in a temporary directory and a
// worker on it, and waits until the worker takes requests. Cfg says what it
// serves; what it says of brokers, measuring and the admin server does not count.
func startLocal(ctx context.Context, cfg worker.Config, s streams) (l *local, err error) {
	dir, err := os.MkdirTemp("", "cellmq-")
	if err != nil {
		return nil, err
	}
	remove := func() error { return os.RemoveAll(dir) }
	server, err := broker.StartServer(ctx, broker.ServerConfig{DataDir: dir, Port: broker.PortNone})
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	cfg.NatsURL, cfg.AdminAddress, cfg.LogLevel = "", "", "warn"
	cfg.NatsCredentials, cfg.NatsNkey, cfg.NatsCA, cfg.NatsCert, cfg.NatsKey = "", "", "", "", ""
	cfg.Replicas, cfg.Registry = 1, false
	cfg.Profile = 0 // it takes longer than one command gains by it
	w, err := worker.New(cfg, worker.Deps{Log: newLogger(cfg, s.err), Server: server, Version: version})
	if err != nil {
		server.Shutdown()
		return nil, errors.Join(usageError{err}, remove())
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	l = &local{worker: w}
	l.close = func() error {
		if l.nc != nil {
			l.nc.Close()
		}
		w.HandBack() // nobody waits for what still runs
		stop()
		err := <-ended
		server.Shutdown()
		return errors.Join(err, remove())
	}
	select {
	case <-w.Ready():
	case err := <-ended:
		ended <- nil
		return nil, errors.Join(err, l.close())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), l.close())
	}
	conn, err := broker.Connect(ctx, broker.Config{Server: server, Name: "cellmq client"})
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	l.nc = conn.NATS()
	return l, nil
}

// dial connects to the configured server as a client. With a name its inboxes
// are among the subjects that are its own.
func dial(ctx context.Context, cfg worker.Config, client string) (*nats.Conn, error) {
	url := cfg.NatsURL
	if url == "" {
		url = nats.DefaultURL
	}
	options, err := cfg.NatsOptions()
	if err != nil {
		return nil, usageError{err}
	}
	if broker.ValidClient(client) {
		options = append(options, broker.OwnInbox(cfg.SubjectPrefix, client))
	}
	nc, err := broker.Dial(ctx, url, "cellmq client", slog.New(slog.DiscardHandler), options...)
	switch {
	case err == nil:
		return nc, nil
	case ctx.Err() != nil, errors.Is(err, nats.ErrAuthorization):
		return nil, err // not for want of a server
	default:
		return nil, noServerError{url: url, err: err}
	}
}

// noServerError tells the user what to start.
type noServerError struct {
	url string
	err error
}

// Error says what to start. The URL is shown without user and password, and of
// the connection's error only the root, which does not repeat it.
func (e noServerError) Error() string {
	root := e.err
	for inner := errors.Unwrap(root); inner != nil; inner = errors.Unwrap(root) {
		root = inner
	}
	return "no NATS server answers at " + broker.RedactURL(e.url) + ": start a worker with 'cellmq worker', " +
		"name the server with --nats-url, or use --embedded (" + root.Error() + ")"
}

// Unwrap returns the connection's error.
func (e noServerError) Unwrap() error { return e.err }
