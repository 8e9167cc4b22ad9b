package batching

import (
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}, {[]float64{8, 2, 4, 100}, 6}} {
		if got := middle(tc.values); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.values, got, tc.want)
		}
	}
	m := median([]Measurement{
		{Throughput: 1, P50: 9, P90: 20, P99: 1, RowsPerStep: 4, Padding: 0.1, Late: 3},
		{Throughput: 3, P50: 7, P90: 10, P99: 2, RowsPerStep: 6, Padding: 0.3, Late: 2},
		{Throughput: 2, P50: 8, P90: 30, P99: 3, RowsPerStep: 5, Padding: 0.2, Late: 1},
	})
	if want := (Measurement{Throughput: 2, P50: 8, P90: 20, P99: 2, RowsPerStep: 5, Padding: 0.2, Late: 2}); m != want {
		t.Errorf("%+v, want %+v", m, want)
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	r := &Report{Host: Host{CPU: "Abacus", Cores: 2, Procs: 2, Go: "go1"}, Models: []Model{{
		Name: "lstm", Hidden: 512, Tokens: 4096, BucketRows: 16, Requests: 100,
		Cells:      []Cell{{Name: "encoder", MaxRows: 16, RowMicroseconds: 400}},
		Saturation: []Measurement{{Server: "cellular", Throughput: 12}, {Server: "round-robin", Throughput: 10, Padding: 0.25}},
		Loads: []Load{{Share: 0.5, Rate: 5, Requests: 150, Servers: []Measurement{
			{Server: "cellular", P50: 1, P90: 2, P99: 3, RowsPerStep: 1.5}, {Server: "round-robin", P50: 2, P90: 8, P99: 9, Late: 0.7},
		}}, {Share: 0.7, Rate: 7, Requests: 9, Servers: []Measurement{{Server: "cellular", P50: 1}}}},
	}}}
	got := r.Markdown()
	for _, want := range []string{
		"Abacus, 2 cores, GOMAXPROCS 2, go1, commit unknown.",
		"| round-robin | 10.0 | 1.20x | 0.0 | 25.0 % |",
		"| 50 % | 5.0 | cellular | 1.0 | 2.0 | 3.0 | 1.00x | 1.5 | 0.0 % |",
		"| 50 % | 5.0 | round-robin | 2.0 | 8.0 | 9.0 | 0.25x | 0.0 | 0.0 % |",
		"| 70 % | 7.0 | cellular | 1.0 | – | – | – | 0.0 | 0.0 % |",
		"150 requests a round, handed over at most 0.7 ms late (p99); fewer than 10 of them lie beyond p99.",
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
}

func TestFew(t *testing.T) {
	t.Parallel()
	for requests, want := range map[int]string{
		99:   "; fewer than 10 of them lie beyond p90",
		100:  "; fewer than 10 of them lie beyond p99",
		999:  "; fewer than 10 of them lie beyond p99",
		1000: "",
	} {
		if got := few(requests); got != want {
			t.Errorf("%d requests: %q, want %q", requests, got, want)
		}
	}
}
