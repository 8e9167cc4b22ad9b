package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// tracesWait bounds how long a worker that ends waits for the collector.
const tracesWait = 3 * time.Second

// tracing makes the spans of requests that have left, and has them sent to a
// collector. Nothing waits for that: spans that the collector does not take are
// dropped. A nil tracing makes none.
type tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	queue    *spanQueue
	log      *slog.Logger
}

// newTracing returns nil when no collector is configured.
func newTracing(ctx context.Context, cfg *Config, version string, counts *prometheus.CounterVec, log *slog.Logger) (*tracing, error) {
	if !traced(cfg) {
		return nil, nil //nolint:nilnil // nil is a tracing that does nothing
	}
	var options []otlptracehttp.Option
	if cfg.OtlpEndpoint != "" {
		options = append(options, otlptracehttp.WithEndpointURL(tracesURL(cfg.OtlpEndpoint)))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	queue, err := newSpanQueue(exporter, counts, log)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	// Of two attributes with one name the later one counts, so the environment wins.
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "cellmq"), attribute.String("service.version", cmp.Or(version, "unknown")),
			attribute.String("service.instance.id", cfg.Name)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "attributes of traces not read", slog.Any("error", err))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithIDGenerator(spanIDs{}),
		sdktrace.WithSpanProcessor(queue))
	return &tracing{provider: provider, tracer: provider.Tracer("github.com/cellmq/cellmq/worker"), queue: queue, log: log}, nil
}

// traced reports whether there is a collector, by the worker's own setting or by
// OpenTelemetry's.
func traced(cfg *Config) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return cmp.Or(cfg.OtlpEndpoint, os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) != ""
}

// tracesURL is where a collector takes traces: at its usual path, unless the URL
// has another.
func tracesURL(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil && strings.Trim(u.Path, "/") == "" {
		return u.JoinPath("v1", "traces").String()
	}
	return endpoint
}

// stop sends what has not been sent.
func (t *tracing) stop() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tracesWait)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.LogAttrs(ctx, slog.LevelWarn, "traces not sent", slog.Int64("spans", t.queue.waiting.Load()), slog.Any("error", err))
	}
}

// chosenIDs is the key of a context's [spanName], which a new span is to have.
type chosenIDs struct{}

// spanName is what a span is known by.
type spanName struct {
	trace trace.TraceID
	span  trace.SpanID
}

// spanIDs implements [sdktrace.IDGenerator]: random ids, but for spans whose ids
// were chosen.
type spanIDs struct{}

// NewIDs implements [sdktrace.IDGenerator].
func (spanIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if n, ok := ctx.Value(chosenIDs{}).(spanName); ok {
		return n.trace, n.span
	}
	var id trace.TraceID
	putRandom(id[:8])
	putRandom(id[8:])
	return id, spanIDs{}.NewSpanID(ctx, id)
}

// NewSpanID implements [sdktrace.IDGenerator].
func (spanIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if n, ok := ctx.Value(chosenIDs{}).(spanName); ok {
		return n.span
	}
	var id trace.SpanID
	putRandom(id[:])
	return id
}

// putRandom writes 8 bytes that are not all zero.
func putRandom(b []byte) {
	v := rand.Uint64() | 1
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
}
