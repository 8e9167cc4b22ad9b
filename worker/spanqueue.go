package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// What becomes of spans that ended: the collector has them, or it did not take
// them, or too many waited for it.
const (
	spansSent    = "sent"
	spansRefused = "refused"
	spansDropped = "dropped"
)

// spanQueue is a batch processor with a bound of its own, not above that of the
// batch processor, which drops spans and tells nobody. Every span that ends is
// waiting, or counted by what became of it. Its methods are safe for concurrent use.
type spanQueue struct {
	sdktrace.SpanProcessor
	most    int64
	waiting atomic.Int64 // spans that the exporter has not answered for
	counts  *prometheus.CounterVec
}

// newSpanQueue returns the queue before an exporter.
func newSpanQueue(exporter sdktrace.SpanExporter, counts *prometheus.CounterVec, log *slog.Logger) (*spanQueue, error) {
	const mostSpans = 1 << 20
	most, err := queueSetting("OTEL_BSP_MAX_QUEUE_SIZE", sdktrace.DefaultMaxQueueSize, mostSpans)
	if err != nil {
		return nil, err
	}
	batch, err := queueSetting("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", sdktrace.DefaultMaxExportBatchSize, mostSpans)
	if err != nil {
		return nil, err
	}
	q := &spanQueue{most: int64(most), counts: counts}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(&countedExporter{SpanExporter: exporter, queue: q, log: log},
		sdktrace.WithMaxQueueSize(most), sdktrace.WithMaxExportBatchSize(min(batch, most)))
	return q, nil
}

// queueSetting reads one of OpenTelemetry's variables that sizes the queue. The
// library ends the process for some values.
func queueSetting(name string, usual, most int) (int, error) {
	value := os.Getenv(name)
	if value == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s %q: must be a number from 1 to %d", name, value, most)
	}
	return n, nil
}

// OnEnd implements [sdktrace.SpanProcessor].
func (q *spanQueue) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > q.most {
		q.waiting.Add(-1)
		q.counts.WithLabelValues(spansDropped).Inc()
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// countedExporter counts what a collector takes, and logs the first of the failures
// in a row.
type countedExporter struct {
	sdktrace.SpanExporter
	queue  *spanQueue
	log    *slog.Logger
	failed atomic.Bool
}

// ExportSpans implements [sdktrace.SpanExporter].
func (e *countedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	outcome := spansSent
	if err != nil {
		outcome = spansRefused
	}
	e.queue.counts.WithLabelValues(outcome).Add(float64(len(spans)))
	e.queue.waiting.Add(-int64(len(spans)))
	if failed := err != nil; e.failed.Swap(failed) != failed {
		if failed {
			e.log.LogAttrs(ctx, slog.LevelWarn, "collector takes no traces", slog.Any("error", err))
		} else {
			e.log.LogAttrs(ctx, slog.LevelInfo, "collector takes traces again")
		}
	}
	return nil // it was told, and the library would write it elsewhere
}
