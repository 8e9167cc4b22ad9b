package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// Client publishes requests and reads their token streams. It is safe for
// concurrent use.
type Client struct {
	nc       *nats.Conn
	cfg      ClientConfig
	subjects subjects
	subs     []*nats.Subscription // of the frames: as they come, and of mode resume
	status   chan nats.Status
	ids      idSource
	// mayNotAsk says that the server does not permit the question about streams.
	mayNotAsk atomic.Bool

	mu      sync.Mutex
	streams map[string]*Stream // by the last tokens of the subjects that they read
	closed  bool
	done    chan struct{} // closed with it
}

// What may wait for the client in its subscriptions. Nothing in it waits for a
// reader, so this much means that the process itself does not get to run;
// what the library drops then comes back by a resume request.
const (
	pendingFrames = 1 << 16
	pendingBytes  = 64 << 20
)

// NewClient returns a client on nc, which it does not own. Two subscriptions
// serve all its requests.
func NewClient(nc *nats.Conn, cfg ClientConfig) (*Client, error) {
	orDefault(&cfg.Name, "c"+nuid.Next())
	orDefault(&cfg.Prefix, defaultPrefix)
	orDefault(&cfg.QueueFrames, defaultQueueFrames)
	orDefault(&cfg.CancelTimeout, defaultCancelTimeout)
	orDefault(&cfg.ReceiptWait, defaultReceiptWait)
	orDefault(&cfg.NoQueueWait, defaultNoQueueWait)
	orDefault(&cfg.Silence, defaultSilence)
	orDefault(&cfg.QueueSilence, defaultQueueSilence)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if !ValidClient(cfg.Name) {
		return nil, fmt.Errorf("client name %q is not [A-Za-z0-9_-]{1,%d}", cfg.Name, maxClientName)
	}
	if cfg.QueueFrames < 1 {
		return nil, fmt.Errorf("queue frames %d: below 1", cfg.QueueFrames)
	}
	if least := min(cfg.ReceiptWait, cfg.NoQueueWait, cfg.Silence, cfg.QueueSilence); least < 0 {
		return nil, fmt.Errorf("receipt wait, wait without a queue or silence %v: negative", least)
	}
	s, err := newSubjects(cfg.Prefix)
	if err != nil {
		return nil, err
	}
	c := &Client{nc: nc, cfg: cfg, subjects: s, streams: map[string]*Stream{}, ids: idSource{nuid: nuid.New()}, done: make(chan struct{})}
	for _, subject := range []string{s.out(cfg.Name, "*"), s.outResume(cfg.Name, "*")} {
		sub, err := nc.Subscribe(subject, c.receiver())
		if err == nil {
			c.subs = append(c.subs, sub)
			sub.SetClosedHandler(func(string) { c.end() }) // also when the connection closes
			err = sub.SetPendingLimits(pendingFrames, pendingBytes)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("subscribe to replies: %w", err), c.Close())
		}
	}
	c.status = nc.StatusChanged(nats.CONNECTED)
	go c.follow()
	return c, nil
}

// idSource makes request ids.
type idSource struct {
	mu   sync.Mutex
	nuid *nuid.NUID
}

func (s *idSource) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nuid.Next()
}

// Dial connects to url as a client does: reconnecting for ever, failing at
// once when no server answers at the start. A refused user is
// [nats.ErrAuthorization]. The caller closes the connection.
func Dial(ctx context.Context, url, name string, log *slog.Logger, opts ...nats.Option) (*nats.Conn, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return dial(ctx, url, append(connOptions(name, log), opts...))
}

// Name is the client's name.
func (c *Client) Name() string { return c.cfg.Name }

// Request publishes a request and returns its stream at once; a refusal is the
// stream's error. An error returned here means that nothing was published: an
// [*Error] when the request itself is at fault. When ctx ends the request is
// cancelled.
func (c *Client) Request(ctx context.Context, model string, opts RequestOptions) (*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	m, s, err := c.build(ctx, model, &opts)
	if err != nil {
		return nil, err
	}
	if err := c.add(s); err != nil {
		return nil, err
	}
	// Before publishing: the end of ctx must find the stream.
	s.watch(context.AfterFunc(ctx, func() { s.fail(context.Cause(ctx), true) }))
	if !opts.Deadline.IsZero() {
		// A request that expires in the queue disappears without a word.
		late := NewError(CodeDeadlineExceeded, "no answer before the deadline")
		s.watch(time.AfterFunc(time.Until(opts.Deadline)+deadlineGrace, func() { s.fail(late, true) }).Stop)
	}
	s.arm(m)
	if err := c.nc.PublishMsg(m); err != nil {
		s.fail(err, false)
		if errors.Is(err, nats.ErrMaxPayload) {
			return nil, NewError(CodePayloadTooLarge, fmt.Sprintf("request has %d bytes and its headers, the server takes %d", len(m.Data), c.nc.MaxPayload()))
		}
		return nil, fmt.Errorf("publish request: %w", err)
	}
	return s, nil
}

func (c *Client) add(s *Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("request: client: %w", ErrClosed)
	}
	if c.streams[s.id] != nil {
		return badRequest("id %s: in use by another request of this client", s.id)
	}
	c.streams[s.id], c.streams[s.replies] = s, s
	return nil
}

func (c *Client) remove(s *Stream) {
	c.mu.Lock()
	for _, token := range []string{s.id, s.replies} {
		if c.streams[token] == s {
			delete(c.streams, token)
		}
	}
	c.mu.Unlock()
}

// receiver returns what takes the messages of one subscription. What the library
// drops it drops while messages wait, so the next one tells.
func (c *Client) receiver() nats.MsgHandler {
	dropped := 0 // the subscription's goroutine alone uses it
	return func(m *nats.Msg) {
		if n, err := m.Sub.Dropped(); err == nil && n != dropped {
			c.cfg.Logger.Warn("messages dropped: the process is too slow", slog.String("client", c.cfg.Name), slog.Int("messages", n-dropped))
			dropped = n
			c.each((*Stream).dropped)
		}
		c.receive(m)
	}
}

// receive hands a message to its stream and never blocks: one slow reader must
// not hold up the others.
func (c *Client) receive(m *nats.Msg) {
	c.mu.Lock()
	s := c.streams[lastToken(m.Subject)]
	c.mu.Unlock()
	if s != nil { // otherwise: late, the stream has ended
		s.receive(m)
	}
}

func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// Close ends the subscriptions; open streams end with [ErrClosed]. Requests
// under way are not cancelled.
func (c *Client) Close() error {
	c.end()
	var errs []error
	for _, sub := range c.subs {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
			errs = append(errs, fmt.Errorf("end subscription: %w", err))
		}
	}
	return errors.Join(errs...)
}

// end fails the open streams and takes no new ones.
func (c *Client) end() {
	c.mu.Lock()
	open := slices.Collect(maps.Values(c.streams))
	if !c.closed {
		c.closed = true
		close(c.done)
	}
	c.mu.Unlock()
	for _, s := range open {
		s.fail(ErrClosed, false)
	}
}
