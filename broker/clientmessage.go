package broker

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"
)

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
		if payload, err = encodeRequest(o.Encoding, &o.Input, &o.Params); err != nil {
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
