package deploytest_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// memory is a store of samples in order of time, as Prometheus' engine reads it.
type memory struct {
	series map[string]*stored
}

type stored struct {
	labels  labels.Labels
	samples chunks.SampleSlice
}

func newMemory() *memory { return &memory{series: map[string]*stored{}} }

// add appends a sample.
func (m *memory) add(l labels.Labels, at time.Time, v float64) {
	key := l.String()
	s := m.series[key]
	if s == nil {
		s = &stored{labels: l}
		m.series[key] = s
	}
	s.samples = append(s.samples, sample{at.UnixMilli(), v})
}

// scrape appends everything in a text exposition, with the labels that a scrape adds.
func (m *memory) scrape(t *testing.T, exposition []byte, instance string, at time.Time) {
	t.Helper()
	p := textparse.NewPromParser(exposition, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("exposition: %v", err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, v := p.Series()
		var l labels.Labels
		p.Labels(&l)
		b := labels.NewBuilder(l)
		b.Set("job", "cellmq").Set("instance", instance)
		m.add(b.Labels(), at, v)
	}
	m.add(labels.FromStrings("__name__", "up", "job", "cellmq", "instance", instance), at, 1)
}

// labelsOf returns the names of the labels that the series of a metric have; none
// for a metric without series.
func (m *memory) labelsOf(metric string) map[string]bool {
	var out map[string]bool
	for _, s := range m.series {
		if s.labels.Get("__name__") != metric {
			continue
		}
		if out == nil {
			out = map[string]bool{}
		}
		s.labels.Range(func(l labels.Label) { out[l.Name] = true })
	}
	return out
}

// evaluate runs an instant query.
func (m *memory) evaluate(ctx context.Context, engine *promql.Engine, expr string, at time.Time) (promql.Vector, error) {
	queryable := storage.QueryableFunc(func(int64, int64) (storage.Querier, error) { return querier{m}, nil })
	q, err := engine.NewInstantQuery(ctx, queryable, nil, expr, at)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	result := q.Exec(ctx)
	if result.Err != nil {
		return nil, result.Err
	}
	vector, err := result.Vector()
	return slices.Clone(vector), err
}

func newEngine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1 << 20, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: newParser(),
	})
}

func newParser() parser.Parser { return parser.NewParser(parser.Options{}) }

// sample implements [chunks.Sample] for a float.
type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// querier implements [storage.Querier] on a memory.
type querier struct{ m *memory }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, s := range q.m.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			found = append(found, storage.NewListSeries(s.labels, s.samples))
		}
	}
	slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return &seriesSet{series: found}
}

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

func (querier) Close() error { return nil }

// seriesSet implements [storage.SeriesSet] on a slice.
type seriesSet struct {
	series []storage.Series
	next   int
}

func (s *seriesSet) Next() bool                        { s.next++; return s.next <= len(s.series) }
func (s *seriesSet) At() storage.Series                { return s.series[s.next-1] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
