// Ask evaluates the queries of a dashboard in a running Prometheus and fails when
// one of them has no result that should have one:
//
//	go run ./ask -dashboard ../../deploy/grafana/dashboards/cellmq.json -url http://127.0.0.1:9090
//
// Or it asks one query until the answer is one series with the value that is wanted:
//
//	go run ./ask -query 'sum(up{job="cellmq"})' -want 2 -within 1m -url http://127.0.0.1:9090
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/cellmq/cellmq/internal/deploytest/queries"
)

func main() {
	file := flag.String("dashboard", "", "the dashboard's file")
	address := flag.String("url", "http://127.0.0.1:9090", "where Prometheus answers")
	query := flag.String("query", "", "one query, in place of a dashboard's")
	want := flag.String("want", "", "the value that the query must have; none: no series")
	within := flag.Duration("within", time.Minute, "how long to ask")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *within)
	var err error
	if *query != "" {
		err = await(ctx, *address, *query, *want)
	} else {
		err = run(ctx, *file, *address, os.Stdout)
	}
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ask:", err)
		os.Exit(1)
	}
}

// await asks a query once a second until its answer is one series of value want,
// or none at all when want is empty.
func await(ctx context.Context, address, query, want string) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		result, err := ask(ctx, address, query)
		if err == nil && (len(result) == 0 && want == "" || len(result) == 1 && result[0].value() == want) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s is %v (%w), want %q", query, result, err, want)
		}
	}
}

// run evaluates every query once and joins what is wrong with each.
func run(ctx context.Context, file, address string, out io.Writer) error {
	f, err := os.Open(file) //nolint:gosec // the file is the caller's choice
	if err != nil {
		return err
	}
	all, err := queries.Read(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	var failures []error
	empty := 0
	for _, q := range all {
		result, err := ask(ctx, address, q.Expr)
		n := len(result)
		switch {
		case err != nil:
			failures = append(failures, fmt.Errorf("panel %q: %s: %w", q.Panel, q.Expr, err))
		case n == 0 && !q.Quiet:
			failures = append(failures, fmt.Errorf("panel %q has no result: %s", q.Panel, q.Expr))
		case n == 0:
			empty++
		}
	}
	_, _ = fmt.Fprintf(out, "%d queries, %d of them rightly without a result\n", len(all), empty)
	return errors.Join(failures...)
}

// series is one series of an instant query's result.
type series struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"` // the time in seconds, and the value as a string
}

func (s series) value() string { return fmt.Sprint(s.Value[1]) }

// ask evaluates an instant query.
func ask(ctx context.Context, address, expr string) ([]series, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Result []series `json:"result"`
		} `json:"data"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<24)).Decode(&answer)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", resp.Status, err)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", resp.Status, answer.Error)
	}
	return answer.Data.Result, nil
}
