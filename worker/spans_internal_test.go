package worker

import (
	"context"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cellmq/cellmq/broker"
)

// leftRun is a run that has left, of a request with a trace context.
func leftRun(tb testing.TB, traceParent string) *run {
	tb.Helper()
	now := time.Now()
	d := &broker.Delivery{
		Request: &broker.Request{ID: "0123456789", Model: "m", Client: "c", Durable: true, Published: now.Add(-time.Second), TraceParent: traceParent},
		Lease:   &broker.Lease{Epoch: 1, Attempt: 1},
	}
	r := newRun(d, &broker.TokenStream{}, now)
	r.admitted, r.firstToken, r.finished = now, now, now
	return r
}

func recorded() (*tracing, *tracetest.InMemoryExporter) {
	exporter := tracetest.NewInMemoryExporter()
	p := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithIDGenerator(spanIDs{}))
	return &tracing{provider: p, tracer: p.Tracer("test")}, exporter
}

const (
	sampledParent   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampledParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func TestUntracedCostsNothing(t *testing.T) { // not parallel: it counts allocations
	now := time.Now()
	r := leftRun(t, sampledParent)
	if n := leastAllocs(100, func() { (*tracing)(nil).closed(r, "stop", now) }); n != 0 {
		t.Errorf("%v allocations without a collector", n)
	}
	traces, exporter := recorded()
	defer func() { _ = traces.provider.Shutdown(context.Background()) }()
	r = leftRun(t, unsampledParent)
	if n := leastAllocs(100, func() { traces.closed(r, "stop", now) }); n != 0 || len(exporter.GetSpans()) != 0 {
		t.Errorf("%v allocations and %d spans of a request that is not sampled", n, len(exporter.GetSpans()))
	}
}

// TestSpansOfAttemptsAreKnown wants each attempt's id whoever makes it, and one
// trace of a request without a parent.
func TestSpansOfAttemptsAreKnown(t *testing.T) {
	t.Parallel()
	one := leftRun(t, "")
	two := leftRun(t, "")
	two.req.Published = one.req.Published
	a, b := spansOf(one, parentOf(one.req)), spansOf(two, parentOf(two.req))
	if a(1) != b(1) || a(2) != b(2) || a(1) == a(2) || a(1).trace != a(2).trace || !a(1).trace.IsValid() || !a(1).span.IsValid() {
		t.Errorf("%v and %v, %v and %v", a(1), b(1), a(2), b(2))
	}
	two.req.Client = "d"
	if spansOf(two, parentOf(two.req))(1).trace == a(1).trace {
		t.Error("two clients share a trace")
	}
}

func TestParents(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		sampledParent: true, unsampledParent: true,
		"01" + sampledParent[2:] + "-more": true,
		sampledParent + "-more":            false,
		"ff" + sampledParent[2:]:           false,
		"":                                 false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz": false,
	} {
		if got := parentOf(&broker.Request{TraceParent: s}).IsValid(); got != want {
			t.Errorf("%q: %v", s, got)
		}
	}
}

// BenchmarkRequestMeasured is what the end of a request costs to be counted, and to
// be traced.
func BenchmarkRequestMeasured(b *testing.B) {
	w, err := New(DefaultConfig(), Deps{})
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	b.Run("metrics", func(b *testing.B) {
		r := leftRun(b, "")
		b.ReportAllocs()
		for b.Loop() {
			w.metrics.closed(r, "stop", now)
		}
	})
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()), sdktrace.WithIDGenerator(spanIDs{}))
	traces := &tracing{provider: p, tracer: p.Tracer("bench")}
	b.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	for name, parent := range map[string]string{"unsampled": unsampledParent, "sampled": sampledParent} {
		b.Run(name, func(b *testing.B) {
			r := leftRun(b, parent)
			b.ReportAllocs()
			for b.Loop() {
				traces.closed(r, "stop", now)
			}
		})
	}
}
