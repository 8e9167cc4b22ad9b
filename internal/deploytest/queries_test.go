package deploytest_test

import (
	"cmp"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/cellmq/cellmq/internal/deploytest/queries"
)

// root is the repository, seen from this package's directory.
const root = "../.."

// read returns the content of a file of the repository.
func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// rules returns the rules of a file in deploy/prometheus.
func rules(t *testing.T, name string) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse(read(t, "deploy/prometheus/"+name), false, model.UTF8Validation, newParser(), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatalf("%s: %v", name, errs)
	}
	var out []rulefmt.Rule
	for _, g := range groups.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) == 0 {
		t.Fatalf("%s has no rules", name)
	}
	return out
}

// dashboard returns the queries of the dashboard.
func dashboard(t *testing.T) []queries.Query {
	t.Helper()
	f, err := os.Open(filepath.Join(root, "deploy/grafana/dashboards/cellmq.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	all, err := queries.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestQueries evaluates the recording rules, the dashboard's queries and the
// alerts, in this order, over what a worker exposes.
func TestQueries(t *testing.T) {
	t.Parallel()
	m, at := observed(t)
	engine := newEngine()
	for _, r := range rules(t, "recording.rules.yml") {
		vector, err := m.evaluate(t.Context(), engine, r.Expr, at)
		if err != nil || len(vector) == 0 && !excused(r.Expr) {
			t.Errorf("%s has no result: %v", r.Record, err)
		}
		for _, s := range vector {
			l := labels.NewBuilder(s.Metric)
			l.Set("__name__", r.Record)
			m.add(l.Labels(), at, s.F)
		}
		selects(t, m, r.Record, r.Expr)
	}
	for _, q := range dashboard(t) {
		if vector, err := m.evaluate(t.Context(), engine, q.Expr, at); err != nil || len(vector) == 0 && !q.Quiet {
			t.Errorf("panel %q has no result: %s: %v", q.Panel, q.Expr, err)
		}
		selects(t, m, q.Panel, q.Expr)
	}
	for _, r := range rules(t, "alerts.rules.yml") {
		if vector, err := m.evaluate(t.Context(), engine, r.Expr, at); err != nil || len(vector) > 0 {
			t.Errorf("%s: %v, %v; want no result while nothing is wrong", r.Alert, vector, err)
		}
		selects(t, m, r.Alert, r.Expr)
	}
}

// excused tells whether a rule is rightly without a result after requests that
// all were served: it selects those that were not.
func excused(expr string) bool {
	return strings.Contains(expr, `outcome=~"internal|`)
}

// selects fails unless every selector of a query names a metric and labels that m
// has, or for a quiet metric ones that docs/operations.md lists, and unless every
// label to aggregate by is one of what is aggregated.
func selects(t *testing.T, m *memory, where, expr string) {
	t.Helper()
	parsed, err := newParser().ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			have := labelsOf(t, m, node.Name)
			if have == nil {
				t.Errorf("%s: a worker exposes no %s", where, node.Name)
				return nil
			}
			for _, matcher := range node.LabelMatchers {
				if !have[matcher.Name] {
					t.Errorf("%s: %s has labels %v, not %s", where, node.Name, slices.Sorted(maps.Keys(have)), matcher.Name)
				}
			}
		case *parser.AggregateExpr:
			have := map[string]bool{}
			parser.Inspect(node.Expr, func(inner parser.Node, _ []parser.Node) error {
				if selector, ok := inner.(*parser.VectorSelector); ok {
					maps.Copy(have, labelsOf(t, m, selector.Name))
				}
				return nil
			})
			for _, name := range node.Grouping {
				if !have[name] {
					t.Errorf("%s: %s has no label %s", where, node.Expr, name)
				}
			}
		}
		return nil
	})
}

// labelsOf returns the names of the labels that a metric has: in m, or for a quiet
// one by the documentation, or for a rule without a result of what it reads; nil
// for one that does not exist.
func labelsOf(t *testing.T, m *memory, metric string) map[string]bool {
	t.Helper()
	if have := m.labelsOf(metric); have != nil {
		return have
	}
	if metric == "ALERTS" {
		return set("__name__", "alertstate", "alertname")
	}
	for _, r := range rules(t, "recording.rules.yml") {
		if r.Record == metric && excused(r.Expr) {
			return set("__name__", "model")
		}
	}
	if slices.Contains(queries.QuietMetrics(), metric) {
		return documented(t)[metric]
	}
	return nil
}

func set(names ...string) map[string]bool {
	out := map[string]bool{}
	for _, name := range names {
		out[name] = true
	}
	return out
}

// documented returns the labels of the metrics in the tables of
// docs/operations.md, which a test of the worker holds against what it registers.
func documented(t *testing.T) map[string]map[string]bool {
	t.Helper()
	out := map[string]map[string]bool{}
	quoted := regexp.MustCompile("`(\\w+)`")
	for _, row := range regexp.MustCompile("(?m)^\\| (`cellmq_[^|]*) \\|([^|]*)\\|").FindAllStringSubmatch(string(read(t, "docs/operations.md")), -1) {
		have := set("__name__", "job", "instance")
		for _, label := range quoted.FindAllStringSubmatch(row[2], -1) {
			have[label[1]] = true
		}
		for _, name := range quoted.FindAllStringSubmatch(row[1], -1) {
			out[name[1]] = have
		}
	}
	return out
}

// TestAlerts wants each alert to say how bad it is and what to do, with a section in the documentation, and to
// have tests that it fires and that it does not.
func TestAlerts(t *testing.T) {
	t.Parallel()
	headings := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#{2,4} (.+)$`).FindAllStringSubmatch(string(read(t, "docs/operations.md")), -1) {
		headings[strings.ToLower(m[1])] = true
	}
	fires, quiet := tested(t)
	for _, r := range rules(t, "alerts.rules.yml") {
		switch r.Labels["severity"] {
		case "critical", "warning", "info":
		default:
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
		for _, name := range []string{"summary", "description"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		want := "https://github.com/cellmq/cellmq/blob/main/docs/operations.md#" + strings.ToLower(r.Alert)
		if r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if !headings[strings.ToLower(r.Alert)] {
			t.Errorf("docs/operations.md has no section %s", r.Alert)
		}
		if !fires[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s: tested to fire %t, tested not to fire %t", r.Alert, fires[r.Alert], quiet[r.Alert])
		}
	}
}

// tested returns the alerts that promtool's tests want to fire, and not to fire.
func tested(t *testing.T) (fires, quiet map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "deploy/prometheus/tests/*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatal(cmp.Or(err, os.ErrNotExist))
	}
	fires, quiet = map[string]bool{}, map[string]bool{}
	for _, name := range files {
		var file struct {
			Tests []struct {
				Alerts []struct {
					Name string `json:"alertname"`
					Want []any  `json:"exp_alerts"`
				} `json:"alert_rule_test"`
			} `json:"tests"`
		}
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		decode(t, name, content, &file)
		for _, test := range file.Tests {
			for _, a := range test.Alerts {
				if len(a.Want) > 0 {
					fires[a.Name] = true
				} else {
					quiet[a.Name] = true
				}
			}
		}
	}
	return fires, quiet
}
