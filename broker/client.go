package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/trace"
)

// Defaults of [ClientConfig].
const (
	defaultQueueFrames   = 256
	defaultCancelTimeout = 500 * time.Millisecond
	// deadlineGrace is how long a client waits for the worker's own word after
	// the deadline.
	deadlineGrace = time.Second
)

// ClientConfig describes a [Client]. The zero value of a field means its
// default.
type ClientConfig struct {
	// Name of the client, the last token of its subjects; [A-Za-z0-9_-]{1,64}.
	// Default: "c" and a random suffix.
	Name string
	// Prefix of all subjects. Default "infer".
	Prefix string
	// QueueFrames bounds the frames that wait for a slow reader, per request;
	// newer output is then gathered in one more frame. Default 256.
	QueueFrames int
	// CancelTimeout is how long Cancel waits for an answer. Default 500 ms.
	CancelTimeout time.Duration
	// ReceiptWait is how long the server may take to confirm a durable request
	// while the client is connected; then it is published again under its id, a
	// few times, and fails with [ErrNoReceipt]. Default 2 s.
	ReceiptWait time.Duration
	// NoQueueWait is how long a durable request is published again for which the
	// server has no queue, as in an election and while JetStream starts; then it
	// is refused with the code busy. When the server or a worker says that no
	// stream captures the model it is unknown_model at once. Default 10 s.
	NoQueueWait time.Duration
	// Silence is how long a request that a worker has accepted may go without a
	// frame; then the workers are asked, and it fails with [ErrSilent] when they say
	// that the queue has it no more. A realtime request fails at once, and one
	// without a receipt when two questions found no answer. Default 60 s, which
	// should be many heartbeats and some ack waits of the workers.
	Silence time.Duration
	// QueueSilence is the same for a request that is queued, or that wants
	// nothing but its terminal frame. Until then the workers are asked after Silence,
	// and again after twice, four times and eight times as long, since the
	// answer may have been lost on the way. It also bounds the time without a frame or an
	// answer of a worker. Default 16 min, longer than the queue keeps a request.
	QueueSilence time.Duration
	// Logger. Default: discarded.
	Logger *slog.Logger
}

// RequestOptions are a request's parameters and how it is carried. The zero
// value is a durable MessagePack request of priority std that streams.
type RequestOptions struct {
	Input  Input
	Params Params
	// Payload, when set, is sent as it is instead of Input and Params.
	Payload []byte
	// ContentType of the payload; default by Encoding, or sniffed by the
	// worker when Payload is set.
	ContentType string
	// Encoding of the request and its frames.
	Encoding Encoding
	// ID of the request; default a new one.
	ID       string
	Priority Priority
	Mode     Mode
	OnGone   OnGone
	Version  string
	// Deadline is the whole budget; zero: the context's deadline, if any.
	Deadline time.Time
	// TraceParent and TraceState are the W3C trace context that the worker's spans
	// belong to; default that of OpenTelemetry in the context, if any.
	TraceParent, TraceState string
	// Realtime takes the core path: lowest latency, no persistence.
	Realtime bool
}

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

// build checks the options and makes message and stream.
func (c *Client) build(ctx context.Context, model string, o *RequestOptions) (*nats.Msg, *Stream, error) {
	if o.ID == "" {
		o.ID = c.ids.next()
	}
	orDefault(&o.Priority, Std)
	switch {
	case !ValidModel(model):
		return nil, nil, badRequest("model %q: not [a-z0-9-]{1,%d}", clip(model), maxModelName)
	case !ValidID(o.ID):
		return nil, nil, badID(o.ID)
	case !o.Priority.valid():
		return nil, nil, badRequest("priority %q: not high, std or low", clip(string(o.Priority)))
	}
	payload := o.Payload
	if payload == nil {
		var err error
		if payload, err = appendRequest(nil, o.Encoding, &o.Input, &o.Params); err != nil {
			return nil, nil, err
		}
	}
	m := &nats.Msg{Subject: c.subjects.request(model, o.Priority, c.cfg.Name), Data: payload, Header: c.headers(ctx, o)}
	if o.Realtime {
		m.Subject = c.subjects.realtimeOf(model, c.cfg.Name)
	}
	m.Reply = c.subjects.out(c.cfg.Name, o.ID)
	return m, newStream(c, model, o), nil
}

func (c *Client) headers(ctx context.Context, o *RequestOptions) nats.Header {
	h := nats.Header{HeaderID: {o.ID}}
	set := func(name, value string) {
		if value != "" {
			h[name] = []string{value}
		}
	}
	contentType := o.ContentType
	if contentType == "" && o.Payload == nil {
		contentType = TypeMsgPack
		if o.Encoding == JSON {
			contentType = TypeJSON
		}
	}
	set(HeaderContentType, contentType)
	set(HeaderMode, string(o.Mode))
	set(HeaderOnGone, string(o.OnGone))
	set(HeaderVersion, o.Version)
	parent, state := o.TraceParent, o.TraceState
	if parent == "" {
		parent, state = traceContext(ctx)
	}
	set(HeaderTraceParent, parent)
	set(HeaderTraceState, state)
	deadline := o.Deadline
	if d, ok := ctx.Deadline(); deadline.IsZero() && ok {
		deadline = d
	}
	if !deadline.IsZero() {
		set(HeaderDeadline, strconv.FormatInt(deadline.UnixMilli(), 10))
		setBudget(h, deadline, !o.Realtime)
	}
	return h
}

// traceContext is the span in a context as headers have it; empty: there is none.
func traceContext(ctx context.Context) (parent, state string) {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return "", ""
	}
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-" + (span.TraceFlags() & trace.FlagsSampled).String(), span.TraceState().String()
}

// setBudget sets what is left until the deadline.
func setBudget(h nats.Header, deadline time.Time, durable bool) {
	left := time.Until(deadline)
	h[HeaderTimeout] = []string{strconv.FormatInt(max(left.Milliseconds(), 1), 10)}
	if durable { // whole seconds, rounded up; the server takes no less than one
		seconds := int64(max(left, time.Second)+time.Second-1) / int64(time.Second)
		h[HeaderTTL] = []string{strconv.FormatInt(seconds, 10)}
	}
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

// CancelReply is the answer to a cancel request.
type CancelReply struct {
	ID    string
	State CancelState
}

// Cancel asks the workers to stop a request of this client. State is
// [CancelUnknown] when no worker answers in time: it may be queued, and then
// ends when a worker takes it. Of a request whose stream is open here, and of one
// whose id the workers made, the place in the queue is known, and a queued one is
// taken out at once.
func (c *Client) Cancel(ctx context.Context, id string) (CancelReply, error) {
	c.mu.Lock()
	s := c.streams[id]
	c.mu.Unlock()
	var sequence uint64
	if s != nil {
		sequence = s.sequence()
	}
	return c.CancelAt(ctx, id, sequence)
}

// CancelAt is Cancel for a request whose sequence in the queue is known, as the
// receipt of a plain publication says it; 0 is not known.
func (c *Client) CancelAt(ctx context.Context, id string, sequence uint64) (CancelReply, error) {
	reply := CancelReply{ID: id, State: CancelUnknown}
	if !ValidID(id) {
		return reply, badID(id)
	}
	payload, err := json.Marshal(cancelMessage{ID: id, Sequence: sequence})
	if err != nil {
		return reply, fmt.Errorf("cancel: %w", err)
	}
	wait, cancel := context.WithTimeout(ctx, c.cfg.CancelTimeout)
	defer cancel()
	m, err := c.nc.RequestWithContext(wait, c.subjects.cancel(c.cfg.Name), payload)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return reply, fmt.Errorf("cancel: %w", ctx.Err())
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return reply, nil
	default:
		return reply, fmt.Errorf("cancel: %w", err)
	}
	var answer cancelMessage
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.ID != id {
		return reply, errors.New("cancel: malformed answer")
	}
	reply.State = answer.State
	return reply, nil
}

// sendCancel asks without waiting for an answer.
func (c *Client) sendCancel(id string, sequence uint64) {
	payload, err := json.Marshal(cancelMessage{ID: id, Sequence: sequence})
	if err == nil {
		err = c.nc.Publish(c.subjects.cancel(c.cfg.Name), payload)
	}
	if err != nil {
		c.cfg.Logger.Warn("cancel not sent", slog.String("request_id", id), slog.Any("error", err))
	}
}

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
