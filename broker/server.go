package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// PortNone runs an embedded server without a listener; PortRandom lets the
// system choose a port.
const (
	PortNone   = -1
	PortRandom = 0
)

// Defaults of [ServerConfig].
const (
	defaultMaxPayload = 1 << 20
	defaultMaxStore   = 2 << 30 // the request stream and its stores reserve half of it
	maxMemory         = 1 << 30 // the frames of mode resume reserve half of it
	maxPending        = 32 << 20
	readyTimeout      = 10 * time.Second
)

// ServerConfig describes an embedded NATS server.
type ServerConfig struct {
	// DataDir holds the JetStream files. Required. One server at a time.
	DataDir string
	// Host to listen on. Default 127.0.0.1.
	Host string
	// Port to listen on; [PortNone] and [PortRandom] are special.
	Port int
	// MaxPayload of a message, bytes. Default 1 MiB.
	MaxPayload int
	// MaxStore bounds the JetStream files, bytes. Default 2 GiB.
	MaxStore int64
	// Logger receives the server's warnings and errors. Default: discarded.
	Logger *slog.Logger
}

// Server is an embedded NATS server with JetStream on files.
type Server struct {
	srv    *server.Server
	listen bool
	lock   *os.File // of the data directory
}

// StartServer starts a server and waits until it takes connections or ctx ends.
// It locks the data directory, where the system can do that, and fails when
// another server has it.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	opts, err := cfg.options()
	if err != nil {
		return nil, fmt.Errorf("start nats server: %w", err)
	}
	if cfg.Port > 0 {
		if err := checkPort(ctx, opts.Host, cfg.Port); err != nil {
			return nil, fmt.Errorf("start nats server: %w", err)
		}
	}
	lock, err := lockDir(opts.StoreDir)
	if err != nil {
		return nil, fmt.Errorf("start nats server: %w", err)
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		_ = lock.Close() // the failure to start counts
		return nil, fmt.Errorf("start nats server: %w", err)
	}
	log := newServerLog(cfg.Logger)
	srv.SetLoggerV2(log, false, false, false)
	s := &Server{srv: srv, listen: cfg.Port != PortNone, lock: lock}
	srv.Start()
	if err := s.awaitReady(ctx, log); err != nil {
		s.Shutdown()
		return nil, fmt.Errorf("start nats server in %q: %w", cfg.DataDir, errors.Join(err, log.first()))
	}
	return s, nil
}

func (cfg *ServerConfig) options() (*server.Options, error) {
	if cfg.DataDir == "" {
		return nil, errors.New("data directory: missing")
	}
	if cfg.Port < PortNone || cfg.Port > 65535 {
		return nil, fmt.Errorf("port %d: not in -1..65535", cfg.Port)
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	opts := &server.Options{
		ServerName:             "cellmq",
		Host:                   cfg.Host,
		Port:                   cfg.Port,
		MaxPayload:             int32(defaultMaxPayload),
		MaxPending:             maxPending,
		WriteDeadline:          10 * time.Second,
		PingInterval:           20 * time.Second,
		MaxPingsOut:            2,
		NoFastProducerStall:    true, // one stuck reader must not slow the other streams of a worker
		NoSigs:                 true,
		JetStream:              true,
		StoreDir:               dir,
		JetStreamMaxStore:      defaultMaxStore,
		JetStreamMaxMemory:     maxMemory,
		DisableJetStreamBanner: true,
	}
	if opts.Host == "" {
		opts.Host = "127.0.0.1"
	}
	if cfg.MaxPayload > 0 {
		opts.MaxPayload = int32(min(cfg.MaxPayload, 64<<20))
	}
	if cfg.MaxStore > 0 {
		opts.JetStreamMaxStore = cfg.MaxStore
	}
	switch cfg.Port {
	case PortNone:
		opts.DontListen = true
	case PortRandom:
		opts.Port = server.RANDOM_PORT
	}
	return opts, nil
}

// checkPort says clearly that a port is taken; the server itself would only
// log it.
func checkPort(ctx context.Context, host string, port int) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("port %d is not free: %w", port, err)
	}
	return l.Close()
}

// awaitReady waits in short turns, since the server's own wait knows no
// context.
func (s *Server) awaitReady(ctx context.Context, log *serverLog) error {
	end := time.Now().Add(readyTimeout)
	for log.gaveUp() || !s.srv.ReadyForConnections(50*time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if log.gaveUp() || time.Now().After(end) {
			return errors.New("server did not become ready")
		}
	}
	if !s.srv.JetStreamEnabled() {
		return ErrNoJetStream
	}
	return nil
}

// URL is the address for clients; empty for a server without a listener.
func (s *Server) URL() string {
	if !s.listen {
		return ""
	}
	return s.srv.ClientURL()
}

// Option makes a connection in-process, without a socket.
func (s *Server) Option() nats.Option { return nats.InProcessServer(s.srv) }

// Shutdown stops the server, waits until its files are closed, and frees the
// data directory. More calls than one do no harm.
func (s *Server) Shutdown() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
	_ = s.lock.Close() // the end of the lock, or closed before
}
