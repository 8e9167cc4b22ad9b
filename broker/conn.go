package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// How a connection comes back after a loss. The jitter spreads the
// reconnections of a fleet.
const (
	reconnectWait   = 250 * time.Millisecond
	reconnectJitter = 250 * time.Millisecond
	pingInterval    = 10 * time.Second
	connectTimeout  = 5 * time.Second
	requestTimeout  = 10 * time.Second
)

// Conn is a worker's connection. It is safe for concurrent use.
type Conn struct {
	cfg      Config
	nc       *nats.Conn
	js       jetstream.JetStream
	subjects subjects
	log      *slog.Logger
	denials  *denials
	closed   chan struct{} // closed with the connection

	mu         sync.Mutex
	epochs     map[string]uint64 // consumer name -> creation time, unix ms
	made       int64             // creation time of the request stream, unix ms; 0: not asked yet
	publishers []*Publisher      // those that are open
}

// Connect connects, reconnects for ever afterwards, and checks that the server
// has JetStream ([ErrNoJetStream] when not). A refused user is
// [nats.ErrAuthorization], also with RetryConnect. The caller closes the connection.
func Connect(ctx context.Context, cfg Config) (*Conn, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("broker configuration: %w", err)
	}
	s, err := newSubjects(cfg.Prefix)
	if err != nil {
		return nil, err
	}
	c := &Conn{
		cfg: cfg, subjects: s, log: cfg.Logger, epochs: map[string]uint64{},
		denials: newDenials(s), closed: make(chan struct{}),
	}
	nc, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.nc = nc
	if err := c.checkServer(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("connect to %s: %w", cfg.serverName(), err)
	}
	return c, nil
}

// RedactURL returns a comma-separated server list without user names and
// passwords, for messages.
func RedactURL(urls string) string {
	var out []string
	for u := range strings.SplitSeq(urls, ",") {
		if at := strings.LastIndexByte(u, '@'); at >= 0 {
			scheme, _, found := strings.Cut(u[:at], "://")
			if !found {
				scheme = "nats"
			}
			u = scheme + "://" + u[at+1:]
		}
		out = append(out, u)
	}
	return strings.Join(out, ",")
}

// urlCause returns what is wrong with a URL without the URL itself, which may
// hold a password. Other errors stay as they are.
func urlCause(err error) error {
	var malformed *url.Error
	if errors.As(err, &malformed) {
		return malformed.Err
	}
	return err
}

func (c *Conn) connect(ctx context.Context) (*nats.Conn, error) {
	cfg := &c.cfg
	opts := append(connOptions(cfg.Name, cfg.Logger), c.handlers()...)
	opts = append(opts,
		// A worker must know that a frame was not sent: nothing is buffered
		// for later while disconnected.
		nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(cfg.RetryConnect),
		warnAbsent(cfg.URL, cfg.Logger))
	if cfg.Server != nil {
		opts = append(opts, cfg.Server.Option())
	}
	if cfg.Inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(cfg.Inbox))
	}
	nc, err := dial(ctx, cfg.URL, append(opts, cfg.Options...))
	if err != nil {
		return nil, err
	}
	if err := awaitConnected(ctx, nc); err != nil {
		nc.Close()
		return nil, fmt.Errorf("connect to %s: %w", cfg.serverName(), urlCause(err))
	}
	return nc, nil
}

// serverName is the server for messages.
func (cfg *Config) serverName() string {
	if cfg.Server != nil {
		return "the embedded server"
	}
	return RedactURL(cfg.URL)
}

// awaitConnected waits for the first connection when retrying is allowed.
func awaitConnected(ctx context.Context, nc *nats.Conn) error {
	status := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	for !nc.IsConnected() {
		if nc.IsClosed() {
			if err := nc.LastError(); err != nil {
				return err
			}
			return ErrClosed
		}
		select {
		case <-status:
		case <-ctx.Done():
			if err := nc.LastError(); err != nil {
				return fmt.Errorf("%w, last: %w", ctx.Err(), err)
			}
			return ctx.Err()
		}
	}
	return nil
}

// handlers follow what happens to the connection, beside what connOptions do.
func (c *Conn) handlers() []nats.Option {
	log := c.log
	return []nats.Option{
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			logError(log, sub, err)
			c.denials.note(err, time.Now())
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			for _, r := range c.resenders() {
				r.disconnected()
			}
			logDisconnected(log, err)
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			c.denials.connected()
			logReconnected(log, nc)
			for _, r := range c.resenders() {
				r.reconnected()
			}
		}),
		nats.LameDuckModeHandler(func(nc *nats.Conn) {
			log.Info("nats server is about to stop", slog.String("url", nc.ConnectedUrlRedacted()))
			if c.cfg.Leave != nil {
				c.cfg.Leave()
			}
		}),
		nats.ClosedHandler(func(nc *nats.Conn) {
			if err := nc.LastError(); err != nil {
				log.Warn("nats connection closed", slog.Any("error", err))
			}
			close(c.closed)
		}),
	}
}

func logError(log *slog.Logger, sub *nats.Subscription, err error) {
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	log.Warn("nats error", slog.String("subject", subject), slog.Any("error", err))
}

func logDisconnected(log *slog.Logger, err error) {
	if err != nil { // nil: we closed it
		log.Warn("nats disconnected", slog.Any("error", err))
	}
}

func logReconnected(log *slog.Logger, nc *nats.Conn) {
	log.Info("nats reconnected", slog.String("url", nc.ConnectedUrlRedacted()))
}

// connOptions are what workers and clients have in common.
func connOptions(name string, log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.Name(name),
		nats.Timeout(connectTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, time.Second),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { logError(log, sub, err) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { logDisconnected(log, err) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { logReconnected(log, nc) }),
	}
}

// resenders returns those of the publishers that are open.
func (c *Conn) resenders() []*resender {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*resender
	for _, p := range c.publishers {
		out = append(out, p.last)
	}
	return out
}

// checkServer asks for the JetStream account and fits the payload limit to the
// server's.
func (c *Conn) checkServer(ctx context.Context) error {
	js, err := jetstream.New(c.nc, jetstream.WithDefaultTimeout(requestTimeout))
	if err != nil {
		return fmt.Errorf("open jetstream: %w", err)
	}
	err = c.denials.permitted(ctx, jetstream.DefaultAPIPrefix, func(ctx context.Context) error { return c.askForAccount(ctx, js) })
	if err != nil {
		if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) ||
			errors.Is(err, nats.ErrNoResponders) {
			return fmt.Errorf("%w (start nats-server with -js): %w", ErrNoJetStream, err)
		}
		return fmt.Errorf("ask for jetstream account: %w", err)
	}
	c.js = js
	if limit := int(c.nc.MaxPayload()); limit > 0 {
		c.cfg.MaxPayload = min(c.cfg.MaxPayload, limit)
	}
	return nil
}

// askForAccount asks for the JetStream account; with RetryConnect again while a
// cluster has no leader, who alone answers.
func (c *Conn) askForAccount(ctx context.Context, js jetstream.JetStream) error {
	for failed := 0; ; failed++ {
		attempt, cancel := context.WithTimeout(ctx, ensureWait)
		_, err := js.AccountInfo(attempt)
		cancel()
		if err == nil || !c.cfg.RetryConnect || ctx.Err() != nil || errors.Is(err, nats.ErrNoResponders) || !c.passes(err) {
			return err
		}
		if failed == 0 {
			c.log.Warn("jetstream does not answer yet", slog.Any("error", err))
		}
		if pause(ctx, ensurePause) != nil {
			return err
		}
	}
}

// Connected reports whether the connection is up now.
func (c *Conn) Connected() bool { return c.nc.IsConnected() }

// Closed is closed when the connection is, by Close or because the server
// refuses the user for good. A connection that is only lost comes back.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// CanMove reports whether the connection knows another server than its own.
func (c *Conn) CanMove() bool { return len(c.nc.Servers()) > 1 }

// Move goes over to another server, as after a lost connection, but at once.
// Messages on their way to the worker are lost, so end what brings them before.
func (c *Conn) Move() error {
	if err := c.nc.ForceReconnect(); err != nil {
		return fmt.Errorf("move to another server: %w", err)
	}
	return nil
}

// NATS returns the underlying connection, for clients that share it.
func (c *Conn) NATS() *nats.Conn { return c.nc }

// MaxPayload is the largest request payload that is taken, bytes.
func (c *Conn) MaxPayload() int { return c.cfg.MaxPayload }

func (c *Conn) decoder() *decoder {
	return &decoder{subjects: c.subjects, replyPrefixes: c.cfg.ReplyPrefixes, maxPayload: c.cfg.MaxPayload, authorized: c.authorized, created: c.created}
}

// authorized reports whether users have permissions: the server wants them to
// authenticate, or this connection does so although the server would take
// others too.
func (c *Conn) authorized() bool {
	o := &c.nc.Opts
	return c.nc.AuthRequired() || o.Nkey != "" || o.UserJWT != nil || o.User != "" || o.Token != "" || strings.Contains(o.Url, "@")
}

// Close sends what is buffered, waits for that at most as long as ctx lives
// and 10 s, and closes the connection. Open streams must
// have ended before.
func (c *Conn) Close(ctx context.Context) error {
	defer c.nc.Close()
	if !c.nc.IsConnected() {
		return nil
	}
	return c.flush(ctx)
}

// flush waits until the server has processed everything sent so far.
func (c *Conn) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := c.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("flush connection: %w", err)
	}
	return nil
}
