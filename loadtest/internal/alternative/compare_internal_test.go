package alternative

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMedians(t *testing.T) {
	t.Parallel()
	got := medians([]Figures{
		{Rate: 5, Throughput: 3, P50: 9, P90: 20, P99: 0, CPU: 1, Failed: 1, Sustained: true},
		{Rate: 5, Throughput: 1, P50: 1, P90: 10, P99: 7, CPU: 4, Failed: 2, Sustained: true},
		{Rate: 5, Throughput: 2, P50: 4, P90: 30, P99: 8, CPU: 2},
	})
	want := Figures{Rate: 5, Throughput: 2, P50: 4, P90: 20, CPU: 2, Failed: 3, Sustained: true}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("medians differ (-want +got):\n%s", d)
	}
	if got := medians([]Figures{{P50: 1, Throughput: 2}, {P50: 3, Throughput: 4}}); got.P50 != 2 || got.Throughput != 3 {
		t.Errorf("of two rounds: %+v, want their mean", got)
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	if a, b := order(3, 0), order(3, 1); !slices.Equal(a, []int{0, 1, 2}) || !slices.Equal(b, []int{2, 1, 0}) {
		t.Errorf("turns %v and %v", a, b)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	if s, err := ParseShape("2x1"); err != nil || s != (Shape{2, 1}) || s.String() != "PyTorch, 2 x 1" {
		t.Errorf("%v, %v", s, err)
	}
	for _, text := range []string{"", "2", "2x", "0x1", "1x65", "2x1x", "02x1", "-1x1"} {
		if _, err := ParseShape(text); err == nil {
			t.Errorf("shape %q was accepted", text)
		}
	}
	models, err := ParseModels([]string{"listops", "lstm-1024"}, "zoo", "other")
	if err != nil || models[0].Directory != "zoo/listops" || models[1].Directory != "other/lstm-1024" {
		t.Errorf("%+v, %v", models, err)
	}
	if _, err := ParseModels([]string{"nobody"}, "", ""); err == nil || !strings.Contains(err.Error(), "g2p-en") {
		t.Errorf("error %v, want one that says what there is", err)
	}
}

// Each model's plan gives the same requests at a rate and in a closed loop.
func TestPlans(t *testing.T) {
	t.Parallel()
	models, err := ParseModels([]string{"g2p-en", "kjv-lm", "langid", "listops", "lstm-1024"}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	o := &Options{Seed: 3, Concurrency: 8}
	for _, m := range models {
		open, err := m.plan(o, 100)
		if err != nil {
			t.Fatal(err)
		}
		closed, err := m.plan(o, 0)
		if err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{"open": open.Validate(), "closed": closed.Validate()} {
			if err != nil {
				t.Errorf("%s, %s: %v", m.Name, name, err)
			}
		}
		a, _ := open.Source().Next()
		b, _ := closed.Source().Next()
		a.At = 0
		if d := cmp.Diff(a, b); d != "" || a.Input.Text == "" || (a.MaxTokens > 0) != (m.outputs != "") {
			t.Errorf("%s: requests differ, or are not the model's: %+v\n%s", m.Name, a, d)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	good := Options{
		Models: []*Model{{}}, Server: []string{"x"}, Shapes: []Shape{{1, 1}}, Shares: []float64{0.5}, Concurrency: 1, Rounds: 1,
		Duration: time.Second, Patience: time.Second, Sample: 1,
	}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Options){
		"models": func(o *Options) { o.Models = nil }, "server": func(o *Options) { o.Server = nil },
		"shapes": func(o *Options) { o.Shapes = nil }, "share": func(o *Options) { o.Shares = []float64{0} },
		"concurrency": func(o *Options) { o.Concurrency = 0 }, "rounds": func(o *Options) { o.Rounds = 0 },
		"duration": func(o *Options) { o.Duration = 0 }, "sample": func(o *Options) { o.Sample = 0 },
	} {
		bad := good
		spoil(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	open := func(p99 float64) []Figures {
		return []Figures{{Rate: 10, Throughput: 9.96, P50: 1, P90: 2, P99: p99, Sustained: true}}
	}
	r := &Report{Models: []*ModelReport{{Name: "m", Text: "a model", Sample: 40, Systems: []*SystemReport{
		{Name: "cellmq", Equal: 40, Closed: Figures{Throughput: 123.45, P50: 4.567}, Open: open(3), MemoryBytes: 5 << 20},
		{Name: "other", Equal: 39, Closed: Figures{Throughput: 12, Failed: 2}, Open: open(0)},
	}}}}
	text := r.Markdown("alternatives")
	for _, want := range []string{
		"| m | cellmq | 123.5 | 4.57 | - | - | 0.000 | 0 | 40 of 40 |", "| m | other | 12.0 | - | - | - | 0.000 | 2 | 39 of 40 |",
		"| m | cellmq | 0.00 | 5 |", "| 10 | cellmq | 10.0 | 1.00 | 2.00 | 3.00 | 0.000 | 0 | yes |", "| 10 | other | 10.0 | 1.00 | 2.00 | - |",
		"\nA model. Poisson", "](alternatives/m.svg)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	figures := r.Figures()
	if f := figures["m.svg"]; f == nil || len(f.Series) != 4 || f.Validate() != nil {
		t.Errorf("figures %+v", figures)
	}
}
