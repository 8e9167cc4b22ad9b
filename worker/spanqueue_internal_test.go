package worker

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// stuckExporter answers with err, and only when it is let.
type stuckExporter struct {
	let chan struct{}
	err error
}

func (e *stuckExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	<-e.let
	return e.err
}

func (e *stuckExporter) Shutdown(context.Context) error { return nil }

// TestSpansAreAccountedFor ends more spans than may wait for a collector, which takes
// them or not: all of them are sent, refused, dropped or waiting.
func TestSpansAreAccountedFor(t *testing.T) {
	const spans, most = 100, 40
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "40")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16")
	for name, refusal := range map[string]error{spansSent: nil, spansRefused: errors.New("busy")} {
		synctest.Test(t, func(t *testing.T) {
			counts := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spans"}, []string{"outcome"})
			exporter := &stuckExporter{let: make(chan struct{}), err: refusal}
			q, err := newSpanQueue(exporter, counts, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(q))
			end := func() {
				for range spans {
					_, s := p.Tracer("test").Start(t.Context(), "span")
					s.End()
				}
				synctest.Wait()
			}
			of := func(outcome string) float64 { return testutil.ToFloat64(counts.WithLabelValues(outcome)) }
			end()
			if of(spansDropped) != spans-most || q.waiting.Load() != most || of(name) != 0 {
				t.Errorf("%s: stuck: %v dropped, %d wait, %v %s", name, of(spansDropped), q.waiting.Load(), of(name), name)
			}
			close(exporter.let)
			if err := p.ForceFlush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if of(spansDropped) != spans-most || q.waiting.Load() != 0 || of(name) != most {
				t.Errorf("%s: flushed: %v dropped, %d wait, %v %s", name, of(spansDropped), q.waiting.Load(), of(name), name)
			}
			end()
			if err := p.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			if sum := of(spansDropped) + of(name); sum != 2*spans || q.waiting.Load() != 0 {
				t.Errorf("%s: %v of %v spans are accounted for, %d wait", name, sum, 2*spans, q.waiting.Load())
			}
		})
	}
}

// TestQueueSettings refuses what the library would end the process for.
func TestQueueSettings(t *testing.T) {
	for value, want := range map[string]int{"": 7, "1": 1, "100": 100, "0": 0, "-1": 0, "101": 0, "many": 0, "1e2": 0} {
		t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", value)
		n, err := queueSetting("OTEL_BSP_MAX_QUEUE_SIZE", 7, 100)
		if n != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %d, %v", value, n, err)
		}
	}
}
