package queries

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Query is one query of a panel, or the one of the annotations.
type Query struct {
	// Panel is the panel's title.
	Panel string
	// Expr is the PromQL with the variables filled in: every model, every
	// instance, rates over five minutes.
	Expr string
	// Quiet says that no result is right while nothing is wrong.
	Quiet bool
}

// dashboard is what is read of Grafana's JSON.
type dashboard struct {
	Panels      []panel `json:"panels"`
	Annotations struct {
		List []struct {
			Name string `json:"name"`
			Expr string `json:"expr"`
		} `json:"list"`
	} `json:"annotations"`
}

type panel struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
	Panels []panel `json:"panels"`
}

// QuietMetrics are the metrics without a series while nothing goes wrong, or while
// there is no registry. Queries that read one of them are quiet.
func QuietMetrics() []string {
	return []string{
		"ALERTS", "cellmq_cancellations_total", "cellmq_dead_letters_total", "cellmq_deployments_total", "cellmq_duplicates_total", "cellmq_model_failed",
		"cellmq_refusals_total", "cellmq_registry_age_seconds", "cellmq_store_short_seconds",
	}
}

// Read returns the queries of a dashboard. A panel without a query, other than a
// row, and a variable that it does not know are errors.
func Read(r io.Reader) ([]Query, error) {
	var d dashboard
	if err := json.NewDecoder(r).Decode(&d); err != nil {
		return nil, fmt.Errorf("read dashboard: %w", err)
	}
	var out []Query
	add := func(title, expr string) error {
		filled, err := fill(expr)
		if err != nil {
			return fmt.Errorf("panel %q: %w", title, err)
		}
		out = append(out, Query{Panel: title, Expr: filled, Quiet: quiet(filled)})
		return nil
	}
	panels := d.Panels
	for len(panels) > 0 {
		p := panels[0]
		panels = append(panels[1:], p.Panels...)
		if p.Type != "row" && len(p.Targets) == 0 {
			return nil, fmt.Errorf("panel %q has no query", p.Title)
		}
		for _, t := range p.Targets {
			if err := add(p.Title, t.Expr); err != nil {
				return nil, err
			}
		}
	}
	for _, a := range d.Annotations.List {
		if err := add(a.Name, a.Expr); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fill fills in variables.
func fill(expr string) (string, error) {
	filled := strings.NewReplacer("$__rate_interval", "5m", "$model", ".*", "$instance", ".*").Replace(expr)
	if left := regexp.MustCompile(`\$\w+`).FindString(filled); left != "" {
		return "", fmt.Errorf("unknown variable %s in %s", left, expr)
	}
	return filled, nil
}

// quiet tells whether expr reads a quiet metric, or a budget that is not set.
func quiet(expr string) bool {
	for _, name := range QuietMetrics() {
		if regexp.MustCompile(`\b` + name + `\b`).MatchString(expr) {
			return true
		}
	}
	return strings.Contains(expr, "cellmq_model_budget_bytes")
}
