package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// serviceWait bounds how long the server may take to learn of the endpoints.
const serviceWait = 30 * time.Second

// connect reaches the broker, starting an embedded one when none is
// configured, and the registry on it. The returned function takes down what was
// brought up.
func (w *Worker) connect(ctx context.Context) (disconnect func(), err error) {
	server, owned, err := w.startServer(ctx)
	if err != nil {
		return nil, err
	}
	shutdown := func() {}
	if owned {
		tending, stop := context.WithCancel(context.WithoutCancel(ctx))
		tended := make(chan struct{})
		go func() {
			defer close(tended)
			server.Tend(tending)
		}()
		shutdown = func() {
			stop()
			<-tended
			server.Shutdown()
		}
	}
	options, err := w.cfg.NatsOptions()
	if err != nil {
		shutdown()
		return nil, err
	}
	conn, err := broker.Connect(ctx, w.brokerConfig(server, options))
	if err != nil {
		shutdown()
		return nil, err
	}
	disconnect = func() {
		ctx, cancel := context.WithTimeout(context.Background(), handBackWait)
		defer cancel()
		w.closeQuietly("connection", func() error { return conn.Close(ctx) })
		shutdown()
	}
	w.conn = conn
	w.link.Store(conn)
	if !w.cfg.Registry {
		return disconnect, nil
	}
	if dir, err := w.cfg.CachePath(); err == nil {
		sweepCache(dir, time.Now())
	}
	if w.shelf, err = w.openShelf(server, options); err != nil {
		disconnect()
		return nil, err
	}
	hangUp := disconnect
	return func() {
		w.shelf.close()
		hangUp()
	}, nil
}

// startServer returns the embedded server to use, nil for a configured one, and
// whether the worker has to shut it down.
func (w *Worker) startServer(ctx context.Context) (server *broker.Server, owned bool, err error) {
	if w.deps.Server != nil || w.cfg.NatsURL != "" {
		w.showSocket(w.deps.Server)
		return w.deps.Server, false, nil
	}
	dir, err := w.cfg.DataPath()
	if err != nil {
		return nil, false, err
	}
	server, err = broker.StartServer(ctx, broker.ServerConfig{
		DataDir: dir, Host: w.cfg.EmbeddedHost, Port: w.cfg.EmbeddedPort, Logger: w.log,
		WebSocketPort: w.cfg.EmbeddedWebsocketPort, ConfigFile: w.cfg.EmbeddedConfig,
	})
	if err != nil {
		return nil, false, err
	}
	w.log.LogAttrs(ctx, slog.LevelInfo, "embedded server started", slog.String("url", server.URL()),
		slog.String("websocket_url", server.WebSocketURL()), slog.String("data_dir", dir))
	w.showSocket(server)
	return server, true, nil
}

// showSocket lets the live page connect to an embedded server; nil is none.
func (w *Worker) showSocket(server *broker.Server) {
	if server != nil {
		u := server.WebSocketURL()
		w.webSocket.Store(&u)
	}
}

// inbox is the prefix of the workers' inboxes. It differs from that of clients,
// so that permissions can keep them out.
const inbox = "_INBOX_cellmq."

func (w *Worker) brokerConfig(server *broker.Server, options []nats.Option) broker.Config {
	return broker.Config{
		URL: w.cfg.NatsURL, Server: server, Name: w.cfg.Name, Options: options,
		RetryConnect: server == nil, Logger: w.log, Inbox: inbox + w.cfg.Name, Leave: w.serverLeaves,
		Prefix: w.cfg.SubjectPrefix, MaxPayload: w.cfg.MaxPayload, AckWait: w.cfg.AckWait,
		Stream: broker.StreamConfig{
			Replicas:    w.cfg.Replicas,
			MaxMessages: int64(w.cfg.MaxQueued), MaxPerClient: int64(w.cfg.MaxQueuedPerClient), MaxAge: w.cfg.MaxQueuedAge,
			MaxDeliver: deliveries(w.cfg.MaxAttempts),
			Finals:     broker.StoreConfig{MaxBytes: int64(w.cfg.StoreBytes), MaxMessages: finalsIn(int64(w.cfg.StoreBytes))},
			States:     broker.StoreConfig{MaxBytes: int64(w.cfg.StoreBytes)},
		},
	}
}

// finalsIn is how many finals so many bytes may hold: 200,000 in 64 MiB, which is
// met before the bytes only if frames have fewer than some 140 bytes each.
func finalsIn(bytes int64) int64 {
	const finals, in = 200_000, 64 << 20
	return max(bytes/in*finals+bytes%in*finals/in, 1)
}

// serviceStats is what service discovery shows as this worker's own figures.
func (w *Worker) serviceStats() any {
	stats := w.runtime.Stats()
	return struct {
		Running       int    `json:"running"`
		Slots         int    `json:"slots"`
		RealtimeSlots int    `json:"realtime_slots"`
		Draining      bool   `json:"draining"`
		Tokens        uint64 `json:"tokens"`
		Steps         uint64 `json:"steps"`
		Rows          uint64 `json:"rows"`
	}{
		w.table.count(), w.cfg.Slots, w.cfg.realtimeSlots(), w.draining.Load(),
		stats.Tokens, stats.Steps, stats.Rows,
	}
}

// startService opens the realtime, cancel and discovery endpoints.
func (w *Worker) startService(ctx context.Context) (*broker.Service, error) {
	ctx, cancel := context.WithTimeout(ctx, serviceWait)
	defer cancel()
	return w.conn.Serve(ctx, broker.ServiceConfig{
		Worker: w.cfg.Name, Version: w.deps.Version, Models: w.routes.Load().describe(),
		Credits: w.realtime, Deliver: w.admit, Cancel: w.cancel, Stats: w.serviceStats, Finals: w.finals,
		Resume: w.resume, Control: w.control, Dropped: w.metrics.dropped.Inc, Refused: w.metrics.refusedAtOnce,
	})
}
