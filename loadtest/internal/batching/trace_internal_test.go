package batching

import (
	"math"
	"reflect"
	"testing"
)

func TestTracesRepeat(t *testing.T) {
	t.Parallel()
	n := tinyNetwork(t, Seq2Seq)
	const count = 50
	one, other := traces{network: n, seed: 3}, traces{network: n, seed: 4}
	if !reflect.DeepEqual(one.open(1, 2, count, 10), one.open(1, 2, count, 10)) || !reflect.DeepEqual(one.backlog(0, count), one.backlog(0, count)) {
		t.Error("two traces of one seed, experiment and round differ")
	}
	seen := map[int64]string{}
	for name, trace := range map[string][]request{
		"backlog": one.backlog(0, count), "next round": one.backlog(1, count), "load": one.open(0, 0, count, 10),
		"load, last round": one.open(0, mostRounds-1, count, 10), "next load": one.open(1, 0, count, 10), "other seed": other.backlog(0, count),
	} {
		key := int64(0)
		for _, r := range trace {
			key = key*31 + int64(len(r.source))
		}
		if same, ok := seen[key]; ok {
			t.Errorf("%s and %s have the same lengths", name, same)
		}
		seen[key] = name
	}
}

func TestLengths(t *testing.T) {
	t.Parallel()
	n := tinyNetwork(t, Seq2Seq)
	const count, rate = 20_000, 250.0
	trace := traces{network: n, seed: 1}.open(0, 0, count, rate)
	sources, logRatio, squares := 0, 0.0, 0.0
	for i, r := range trace {
		if len(r.source) < 1 || len(r.source) > longestLength || r.target < 1 {
			t.Fatalf("request %d: source of %d, target of %d", i, len(r.source), r.target)
		}
		if i > 0 && r.arrival < trace[i-1].arrival {
			t.Fatalf("request %d arrives before the one before it", i)
		}
		for _, token := range r.source {
			if token < 0 || int(token) >= n.tokens {
				t.Fatalf("token %d of %d", token, n.tokens)
			}
		}
		sources += len(r.source)
		v := math.Log(float64(r.target) / float64(len(r.source)))
		logRatio += v
		squares += v * v
	}
	near := func(what string, got, want, within float64) {
		if math.Abs(got-want) > within {
			t.Errorf("%s: %.3f, want %.3f", what, got, want)
		}
	}
	near("mean source", float64(sources)/count, 24.9, 0.5)
	near("mean of log target/source", logRatio/count, 0, 0.01)
	near("deviation of log target/source", math.Sqrt(squares/count), targetSigma, 0.02)
	near("arrivals a second", count/trace[count-1].arrival.Seconds(), rate, 0.03*rate)

	if r := draw(tinyNetwork(t, LSTM), 1)[0]; r.target != 0 || r.nodes() != len(r.source) {
		t.Errorf("a network that only reads has a target of %d", r.target)
	}
}
