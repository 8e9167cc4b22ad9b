package workload_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// plan returns a valid plan of two models.
func plan(t *testing.T) *workload.Plan {
	t.Helper()
	p := &workload.Plan{
		Seed: 1, Arrivals: workload.Arrivals{Law: workload.Poisson, Rate: 100}, Lengths: law(t, "wmt"), Outputs: law(t, "fixed:8"),
		Models: mix(t, "a=3,b"), Priorities: mix(t, "high,std=3"), Clients: mix(t, "c1,c2"),
		Makers: map[string]*workload.Maker{"a": {Kind: workload.Words}, "b": {Kind: workload.IDs, Vocabulary: 9}},
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

func law(t *testing.T, text string) workload.Law {
	t.Helper()
	l, err := workload.ParseLaw(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mix(t *testing.T, text string) workload.Mix {
	t.Helper()
	m, err := workload.ParseMix("mix", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func draw(t *testing.T, p *workload.Plan, n int) []workload.Request {
	t.Helper()
	var out []workload.Request
	for s := p.Source(); len(out) < n; {
		r, ok := s.Next()
		if !ok {
			break
		}
		out = append(out, r)
	}
	return out
}

// TestArrivalLaws compares mean and variation of the gaps with the laws': the
// variation of a gamma law is one over the root of its shape.
func TestArrivalLaws(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		arrivals  workload.Arrivals
		variation float64
	}{
		{workload.Arrivals{Law: workload.Poisson, Rate: 250}, 1},
		{workload.Arrivals{Law: workload.Gamma, Rate: 250, Burstiness: 0.25}, 2},
		{workload.Arrivals{Law: workload.Gamma, Rate: 250, Burstiness: 1}, 1},
		{workload.Arrivals{Law: workload.Gamma, Rate: 250, Burstiness: 16}, 0.25},
		{workload.Arrivals{Law: workload.Constant, Rate: 250}, 0},
	} {
		p := plan(t)
		p.Arrivals = tc.arrivals
		p.Lengths, p.Outputs = law(t, "fixed:1"), workload.Law{}
		const n = 100_000
		sum, squares, last := 0.0, 0.0, time.Duration(0)
		for s := p.Source(); ; {
			r, _ := s.Next()
			gap := (r.At - last).Seconds()
			sum, squares, last = sum+gap, squares+gap*gap, r.At
			if r.Number == n-1 {
				break
			}
		}
		mean := sum / n
		variation := math.Sqrt(max(squares/n-mean*mean, 0)) / mean
		if math.Abs(mean*250-1) > 0.03 || math.Abs(variation-tc.variation) > 0.05*max(tc.variation, 0.1) {
			t.Errorf("%+v: mean gap %g s, variation %g, want %g and %g", tc.arrivals, mean, variation, 1.0/250, tc.variation)
		}
	}
}

// TestLongGaps has times that do not decrease however rare requests are.
func TestLongGaps(t *testing.T) {
	t.Parallel()
	for _, a := range []workload.Arrivals{
		{Law: workload.Poisson, Rate: 1e-12}, {Law: workload.Constant, Rate: 1e-300}, {Law: workload.Gamma, Rate: 1e-9, Burstiness: 0.001},
	} {
		p := plan(t)
		p.Arrivals = a
		s, last := p.Source(), time.Duration(0)
		for range 100_000 {
			r, _ := s.Next()
			if r.At < last {
				t.Fatalf("%+v: request %d is due at %v, after one at %v", a, r.Number, r.At, last)
			}
			last = r.At
		}
	}
}

// TestSeeds wants a seed to give the same requests again, another seed others,
// and another mix the same arrivals and lengths.
func TestSeeds(t *testing.T) {
	t.Parallel()
	first := draw(t, plan(t), 500)
	if again := draw(t, plan(t), 500); !reflect.DeepEqual(first, again) {
		t.Error("the same seed gave other requests")
	}
	other := plan(t)
	other.Seed = 2
	if again := draw(t, other, 500); again[0].At == first[0].At || again[400].Input.Text == first[400].Input.Text && again[401].Input.Text == first[401].Input.Text {
		t.Error("another seed gave the same requests")
	}
	mixed := plan(t)
	mixed.Models, mixed.Priorities, mixed.Cancel, mixed.CancelAfter, mixed.Realtime = mix(t, "a"), mix(t, "low"), 0.5, time.Second, 1
	for i, r := range draw(t, mixed, 500) {
		if r.At != first[i].At {
			t.Fatalf("request %d at %v, with another mix at %v", i, first[i].At, r.At)
		}
	}
}

// TestShares counts what is drawn.
func TestShares(t *testing.T) {
	t.Parallel()
	p := plan(t)
	p.Realtime, p.Final, p.Cancel, p.CancelAfter, p.Requests = 0.2, 0.1, 0.3, time.Second, 20_000
	n := map[string]float64{}
	for _, r := range draw(t, p, 1<<30) {
		for name, is := range map[string]bool{
			"a": r.Model == "a", "high": r.Priority == broker.High, "c1": r.Client == "c1", "realtime": r.Realtime, "final": r.Final,
			"cancel": r.CancelAfter == time.Second, "ids": r.Input.IsIDs, "all": true, "8": r.MaxTokens == 8,
		} {
			if is {
				n[name]++
			}
		}
	}
	for name, want := range map[string]float64{
		"a": 0.75, "high": 0.25, "c1": 0.5, "realtime": 0.2, "final": 0.1, "cancel": 0.3, "ids": 0.25, "all": 1, "8": 1,
	} {
		if got := n[name] / 20_000; math.Abs(got-want) > 0.02 {
			t.Errorf("%s: a share of %g, want %g", name, got, want)
		}
	}
}

// TestLengths compares laws by their statistics.
func TestLengths(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ mean, least, most float64 }{
		"wmt": {24.5, 1, 330}, "fixed:7": {7, 7, 7}, "uniform:10:20": {15, 10, 20}, "lognormal:100:0:200": {100, 100, 100},
	} {
		p := plan(t)
		p.Models, p.Lengths = mix(t, "b"), law(t, text)
		sum, least, most := 0.0, math.Inf(1), 0.0
		for _, r := range draw(t, p, 20_000) {
			n := float64(len(r.Input.IDs))
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
		if mean := sum / 20_000; math.Abs(mean/want.mean-1) > 0.05 || least < want.least || most > want.most {
			t.Errorf("%s: mean %g, %g to %g, want %v", text, mean, least, most, want)
		}
	}
}

func TestMakers(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for n := range 200 {
		if got := (&workload.Maker{Kind: workload.Text}).Make(r, n, 50).Text; len(got) > 50 || len(got) < 40 {
			t.Errorf("%d bytes of text: %q", len(got), got)
		}
		if got := (&workload.Maker{Kind: workload.Words}).Make(r, n, 4).Text; len(strings.Fields(got)) != 4 {
			t.Errorf("four words: %q", got)
		}
		tree := (&workload.Maker{Kind: workload.Tree}).Make(r, n, 1+n%40).Text
		if strings.Count(tree, "(") != strings.Count(tree, ")") || strings.Count(tree, "[") != strings.Count(tree, "]") {
			t.Errorf("unbalanced: %q", tree)
		}
		digits := 0
		for _, token := range strings.Fields(tree) {
			if token[0] >= '0' && token[0] <= '9' {
				digits++
			}
		}
		if digits != 1+n%40 {
			t.Errorf("%d digits, want %d: %q", digits, 1+n%40, tree)
		}
		if got := (&workload.Maker{Inputs: []string{"x", "y"}}).Make(r, n, 4).Text; got != []string{"x", "y"}[n%2] {
			t.Errorf("input %d: %q", n, got)
		}
	}
	inputs, err := workload.ReadInputs(strings.NewReader("one\n\n{\"input\": \"two\", \"label\": 3}\n{no json\n"))
	if err != nil || !slices.Equal(inputs, []string{"one", "two", "{no json"}) {
		t.Errorf("%q, %v", inputs, err)
	}
}

func TestRefusedPlans(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*workload.Plan){
		"rate 0: must be above 0":     func(p *workload.Plan) { p.Arrivals.Rate = 0 },
		"rate NaN":                    func(p *workload.Plan) { p.Arrivals.Rate = math.NaN() },
		`arrivals "uniform"`:          func(p *workload.Plan) { p.Arrivals.Law = "uniform" },
		"burstiness 0":                func(p *workload.Plan) { p.Arrivals.Law = workload.Gamma },
		"burstiness 1e-09":            func(p *workload.Plan) { p.Arrivals.Law, p.Arrivals.Burstiness = workload.Gamma, 1e-9 },
		"max concurrency 0":           func(p *workload.Plan) { p.Arrivals.Law = workload.Closed },
		"cancel 2: must be between":   func(p *workload.Plan) { p.Cancel = 2 },
		"cancel after 0s":             func(p *workload.Plan) { p.Cancel = 0.5 },
		"deadline -1s":                func(p *workload.Plan) { p.Deadline = -time.Second },
		"beam -1":                     func(p *workload.Plan) { p.Beam = -1 },
		"model a: nothing makes":      func(p *workload.Plan) { p.Makers = nil },
		"models, priorities and clie": func(p *workload.Plan) { p.Clients = workload.Mix{} },
		"model a: no law of lengths":  func(p *workload.Plan) { p.Lengths = workload.Law{} },
	} {
		p := plan(t)
		change(p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, text := range []string{"", "fixed", "fixed:0", "fixed:1.5", "uniform:5:3", "lognormal:1:-1:5", "normal:3", "fixed:1e9", "lognormal:NaN:1:5"} {
		if _, err := workload.ParseLaw(text); err == nil {
			t.Errorf("lengths %q were taken", text)
		}
	}
	for _, text := range []string{"", "a=", "a=0", "a=-1", "a=NaN", "a,a", "A", "a,,b"} {
		if _, err := workload.ParseMix("models", text, broker.ValidModel); err == nil {
			t.Errorf("mix %q was taken", text)
		}
	}
}

// TestPlanned compares how many requests a plan says are due before a time with those
// that it draws.
func TestPlanned(t *testing.T) {
	t.Parallel()
	trace, err := workload.ReadTrace(strings.NewReader("time\n0\n1\n1.5\n2\n9\n"))
	if err != nil {
		t.Fatal(err)
	}
	const until = 2 * time.Second
	for _, tc := range []struct {
		name     string
		trace    []workload.Entry
		arrivals workload.Arrivals
		requests int
		slack    int
	}{
		{"constant", nil, workload.Arrivals{Law: workload.Constant, Rate: 1000}, 0, 1},
		{"poisson", nil, workload.Arrivals{Law: workload.Poisson, Rate: 1000}, 0, 200},
		{"few", nil, workload.Arrivals{Law: workload.Poisson, Rate: 1000}, 50, 0},
		{"trace", trace, workload.Arrivals{}, 0, 0},
		{"few of a trace", trace, workload.Arrivals{}, 2, 0},
	} {
		p := plan(t)
		p.Trace, p.Arrivals, p.Requests = tc.trace, tc.arrivals, tc.requests
		n := 0
		for source := p.Source(); ; n++ {
			if r, ok := source.Next(); !ok || r.At >= until {
				break
			}
		}
		if got := p.Planned(until); got < n-tc.slack || got > n+tc.slack {
			t.Errorf("%s: %d planned, %d drawn", tc.name, got, n)
		}
	}
}
