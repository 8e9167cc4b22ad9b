package worker

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/cellmq/cellmq/broker"
)

// closed makes the spans of a run that left:
//
//	request                 from publishing to the end of this attempt
//	  broker wait           to its arrival
//	  queue wait            to its submission to the step loop
//	  run                   to the end of its sequence; the steps are attributes
//	    frames              since its first token
//	  final                 to the end: storing, sending, settling
//
// They are made when all of it is over, on the publisher's goroutine, so that a step
// knows of no span. A request whose traceparent says that it is not sampled has
// none. Each attempt has spans of its own below the client's; one that follows
// another links to it.
func (t *tracing) closed(r *run, outcome string, now time.Time) {
	if t == nil {
		return
	}
	parent := parentOf(r.req)
	if parent.IsValid() && !parent.IsSampled() {
		return
	}
	names := spansOf(r, parent)
	ctx := context.WithValue(context.Background(), chosenIDs{}, names(r.attempt))
	if parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	began := earlier(r.req.Published, r.arrived)
	options := []trace.SpanStartOption{trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindConsumer)}
	if r.attempt > 1 {
		before := names(r.attempt - 1)
		options = append(options, trace.WithLinks(trace.Link{
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: before.trace, SpanID: before.span, TraceFlags: trace.FlagsSampled, Remote: true}),
			Attributes:  []attribute.KeyValue{attribute.Int("cellmq.attempt", r.attempt-1)},
		}))
	}
	_, span := t.tracer.Start(ctx, "request", options...)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(requestAttributes(r, outcome)...)
	if code := errorCode(r, outcome); code != "" {
		span.SetStatus(codes.Error, code)
	}
	t.parts(trace.ContextWithSpan(context.Background(), span), r, began, now)
	span.End(trace.WithTimestamp(now))
}

// parts makes the spans below that of a request.
func (t *tracing) parts(ctx context.Context, r *run, began, now time.Time) {
	t.part(ctx, "broker wait", began, r.arrived)
	over := r.finished
	if over.IsZero() {
		over = now
	}
	if r.admitted.IsZero() {
		t.part(ctx, "queue wait", r.arrived, over)
	} else {
		t.part(ctx, "queue wait", r.arrived, r.admitted)
		below := t.start(ctx, "run", r.admitted)
		below.SetAttributes(workAttributes(r)...)
		if !r.firstToken.IsZero() {
			t.part(trace.ContextWithSpan(ctx, below), "frames", r.firstToken, over,
				attribute.Int("cellmq.tokens", len(r.ids)), attribute.Int64("cellmq.frames", int64(r.stream.Frames())))
		}
		below.End(trace.WithTimestamp(over))
	}
	stored := r.end != nil && r.end.stored
	t.part(ctx, "final", over, now, attribute.Bool("cellmq.stored", stored))
}

func (t *tracing) start(ctx context.Context, name string, from time.Time) trace.Span {
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(from))
	return span
}

// part makes a span that is over.
func (t *tracing) part(ctx context.Context, name string, from, to time.Time, attributes ...attribute.KeyValue) {
	span := t.start(ctx, name, from)
	span.SetAttributes(attributes...)
	span.End(trace.WithTimestamp(to))
}

func requestAttributes(r *run, outcome string) []attribute.KeyValue {
	out := []attribute.KeyValue{
		attribute.String("messaging.system", "nats"), attribute.String("messaging.message.id", r.req.ID),
		attribute.String("cellmq.model", r.modelLabel()), attribute.String("cellmq.client", r.req.Client),
		attribute.Bool("cellmq.durable", r.req.Durable), attribute.Int("cellmq.attempt", r.attempt),
		attribute.String("cellmq.outcome", outcome), attribute.Int("cellmq.output_tokens", len(r.ids)),
	}
	if r.req.Durable {
		out = append(out, attribute.String("cellmq.priority", string(r.req.Priority)))
	}
	if r.served != nil {
		out = append(out, attribute.String("cellmq.version", r.served.shown.Version))
	}
	if r.unfolded != nil {
		out = append(out, attribute.Int("cellmq.input_tokens", r.unfolded.InputTokens))
	}
	return out
}

// workAttributes sum up a run's steps.
func workAttributes(r *run) []attribute.KeyValue {
	w := r.work
	mean := 0.0
	if w.Steps > 0 {
		mean = float64(w.Rows) / float64(w.Steps)
	}
	return []attribute.KeyValue{
		attribute.Int64("cellmq.steps", int64(w.Steps)), attribute.Int64("cellmq.rows", int64(w.Nodes)),
		attribute.Float64("cellmq.mean_batch", mean), attribute.Float64("cellmq.busy_seconds", w.Busy.Seconds()),
	}
}

// errorCode is the code of a run that ended with an error frame; empty: it did not.
func errorCode(r *run, outcome string) string {
	switch {
	case outcome == string(broker.CodeInternal):
		return outcome
	case r.end != nil && r.end.frame.Frame != nil && outcome == string(r.end.code):
		return outcome
	}
	return ""
}

// parentOf reads a request's traceparent. What is none is as if it were not there.
func parentOf(r *broker.Request) trace.SpanContext {
	const length = len("00-") + 32 + len("-") + 16 + len("-00")
	s := r.TraceParent
	if len(s) < length || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" || s[:2] == "00" && len(s) != length || len(s) > length && s[length] != '-' {
		return trace.SpanContext{}
	}
	traceID, err := trace.TraceIDFromHex(s[3:35])
	if err != nil {
		return trace.SpanContext{}
	}
	spanID, err := trace.SpanIDFromHex(s[36:52])
	if err != nil {
		return trace.SpanContext{}
	}
	var version, flags [1]byte
	if _, err := hex.Decode(version[:], []byte(s[:2])); err != nil {
		return trace.SpanContext{}
	}
	if _, err := hex.Decode(flags[:], []byte(s[53:55])); err != nil {
		return trace.SpanContext{}
	}
	state, _ := trace.ParseTraceState(r.TraceState) // without it when it is malformed
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags[0]) & trace.FlagsSampled, TraceState: state, Remote: true,
	})
}

// spansOf returns the names of the spans of a request's attempts. They follow from
// what all workers know of the request, so that the span of one attempt can link
// to that of another without having heard of it, and a request without a parent
// has one trace whoever serves it.
func spansOf(r *run, parent trace.SpanContext) func(attempt int) spanName {
	name := r.req.Client + " " + r.req.ID
	stored, epoch := uint64(r.req.Published.UnixNano()), r.delivery.Lease.Epoch
	digest := func(kind string, numbers ...uint64) [sha256.Size]byte {
		b := append([]byte(kind), 0)
		for _, n := range numbers {
			b = binary.BigEndian.AppendUint64(b, n)
		}
		return sha256.Sum256(append(b, name...))
	}
	traceID := parent.TraceID()
	if !parent.IsValid() {
		sum := digest("trace", stored)
		copy(traceID[:], sum[:])
	}
	return func(attempt int) spanName {
		n := spanName{trace: traceID}
		sum := digest("attempt", stored, epoch, uint64(attempt))
		copy(n.span[:], sum[:])
		return n
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
