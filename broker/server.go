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
	defaultMaxStore   = 2 << 30   // the request stream and its stores reserve 456 MiB of it
	maxMemory         = 128 << 20 // the frames of mode resume reserve half of it
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
	// WebSocketPort is a second port for clients that speak WebSocket, on the same
	// host; 0 is none, and a negative one lets the system choose. Without a
	// certificate in ConfigFile it is in the clear, and web pages of other origins
	// are refused unless ConfigFile allows them.
	WebSocketPort int
	// ConfigFile is a configuration file of nats-server: users and their
	// permissions, TLS, a cluster, limits. DataDir, Host, Port, WebSocketPort when it
	// is not 0, and MaxPayload and MaxStore when they are set come before what it
	// says. Empty: none, and everybody may connect and do everything.
	ConfigFile string
	// Logger receives the server's warnings and errors. Default: discarded.
	Logger *slog.Logger
}

// Server is an embedded NATS server with JetStream on files.
type Server struct {
	srv       *server.Server
	listen    bool
	webSocket bool     // it has a port for WebSocket
	lock      *os.File // of the data directory
	log       *slog.Logger
	jetStream server.JetStreamConfig
}

// StartServer starts a server and waits until it takes connections or ctx ends.
// It locks the data directory, where the system can do that, and fails when
// another server has it.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	opts, err := cfg.options()
	if err != nil {
		return nil, fmt.Errorf("start nats server: %w", err)
	}
	err = errors.Join(checkPort(ctx, opts.Host, opts.Port), checkPort(ctx, opts.Websocket.Host, opts.Websocket.Port))
	if err != nil {
		return nil, fmt.Errorf("start nats server: %w", err)
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
	s := &Server{
		srv: srv, listen: cfg.Port != PortNone, webSocket: opts.Websocket.Port != 0, lock: lock, log: log.log,
		jetStream: server.JetStreamConfig{
			StoreDir: opts.StoreDir, SyncInterval: opts.SyncInterval, SyncAlways: opts.SyncAlways, Strict: !opts.NoJetStreamStrict,
			MaxMemory: opts.JetStreamMaxMemory, MaxStore: opts.JetStreamMaxStore, Domain: opts.JetStreamDomain, UniqueTag: opts.JetStreamUniqueTag,
		},
	}
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
	if cfg.WebSocketPort > 65535 {
		return nil, fmt.Errorf("websocket port %d: above 65535", cfg.WebSocketPort)
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	opts := &server.Options{}
	if cfg.ConfigFile != "" {
		if opts, err = server.ProcessConfigFile(cfg.ConfigFile); err != nil {
			return nil, fmt.Errorf("configuration file %q: %w", cfg.ConfigFile, err)
		}
	}
	opts.Host, opts.Port = cfg.Host, cfg.Port
	orDefault(&opts.Host, "127.0.0.1")
	switch cfg.Port {
	case PortNone:
		opts.DontListen = true
	case PortRandom:
		opts.Port = server.RANDOM_PORT
	}
	if cfg.MaxPayload > 0 {
		opts.MaxPayload = int32(min(cfg.MaxPayload, 64<<20))
	}
	if cfg.MaxStore > 0 {
		opts.JetStreamMaxStore = cfg.MaxStore
	}
	opts.JetStream, opts.StoreDir = true, dir
	opts.NoSigs, opts.DisableJetStreamBanner = true, true
	opts.NoFastProducerStall = true // one stuck reader must not slow the other streams of a worker
	setDefaults(opts)
	cfg.webSocket(opts)
	return opts, nil
}

// setDefaults sets what no configuration said.
func setDefaults(opts *server.Options) {
	orDefault(&opts.ServerName, "cellmq")
	orDefault(&opts.MaxPayload, int32(defaultMaxPayload))
	orDefault(&opts.MaxPending, int64(maxPending))
	orDefault(&opts.WriteDeadline, 10*time.Second)
	orDefault(&opts.PingInterval, 20*time.Second)
	orDefault(&opts.MaxPingsOut, 2)
	orDefault(&opts.JetStreamMaxStore, int64(defaultMaxStore))
	orDefault(&opts.JetStreamMaxMemory, int64(maxMemory))
}

// webSocket opens the second port.
func (cfg *ServerConfig) webSocket(opts *server.Options) {
	ws := &opts.Websocket
	if cfg.WebSocketPort != 0 {
		ws.Host, ws.Port = opts.Host, max(cfg.WebSocketPort, server.RANDOM_PORT)
	}
	if ws.Port == 0 {
		return
	}
	ws.NoTLS = ws.TLSConfig == nil
	// A page from anywhere, open in a browser on this host, could connect.
	ws.SameOrigin = ws.SameOrigin || len(ws.AllowedOrigins) == 0
}

// checkPort says clearly that a port is taken; the server itself would only
// log it. A port that is not above 0 is none, or not chosen yet.
func checkPort(ctx context.Context, host string, port int) error {
	if port <= 0 {
		return nil
	}
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

// WebSocketURL is the address for clients that speak WebSocket; empty when
// there is none.
func (s *Server) WebSocketURL() string {
	if !s.webSocket {
		return ""
	}
	return s.srv.WebsocketURL()
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
