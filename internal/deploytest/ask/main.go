// Ask evaluates the queries of a dashboard in a running Prometheus and fails when
// one of them has no result that should have one:
//
//	go run ./ask -dashboard ../../deploy/grafana/dashboards/cellmq.json -url http://127.0.0.1:9090
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
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, *file, *address, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ask:", err)
		os.Exit(1) //nolint:gocritic // the context ends with the process
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
		n, err := ask(ctx, address, q.Expr)
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

// ask evaluates an instant query and returns the number of series in the result.
func ask(ctx context.Context, address, expr string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Result []json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<24)).Decode(&answer); err != nil {
		return 0, fmt.Errorf("%s: %w", resp.Status, err)
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("%s: %s", resp.Status, answer.Error)
	}
	return len(answer.Data.Result), nil
}
