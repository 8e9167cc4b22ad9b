package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/loadtest/peers/internal/compare"
	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// TestMain makes the test binary the program when it is started as a worker.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerCommand {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// TestAgreement wants every library that is available to have the results of
// the reference, everywhere, for shapes that fit no vector. A library that is
// not available says why.
func TestAgreement(t *testing.T) {
	t.Parallel()
	s, err := parse(nil, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	contenders, err := s.contenders()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range contenders {
		for _, threads := range []int{1, 2} {
			// One after the other: threads that spin want the cores for themselves.
			t.Run(c.Name+"/"+strconv.Itoa(threads), func(t *testing.T) {
				args, env := c.Command(threads)
				client, err := wire.Start(t.Context(), t.Output(), env, args[0], args[1:]...)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := client.Close(); err != nil {
						t.Error(err)
					}
				}()
				if reason := client.Hello().Unavailable; reason != "" {
					if c.Name == "cellmq" {
						t.Fatal(reason)
					}
					t.Skipf("%s is not available: %s", client.Hello().Library, reason)
				}
				t.Log(client.Hello().Library, client.Hello().Version)
				agree(t, client)
			})
		}
	}
}

// agree compares a library with the reference.
func agree(t *testing.T, client *wire.Client) {
	t.Helper()
	for _, shape := range []workload.Case{
		{Kind: workload.Product, Inputs: 33, Units: 47},
		{Kind: workload.Product, Inputs: 64, Units: 32},
		{Kind: workload.LSTM, Inputs: 17, Units: 29},
		{Kind: workload.LSTM, Inputs: 32, Units: 64},
		{Kind: workload.GRU, Inputs: 19, Units: 31},
		{Kind: workload.GRU, Inputs: 64, Units: 32},
	} {
		for _, w := range client.Hello().Weights {
			for _, rows := range []int{1, 2, 7, 33} {
				c := shape
				c.Weights, c.Rows = w, rows
				at := c.Samples()
				got, detail, err := client.Results(c, at)
				if errors.Is(err, wire.ErrUnsupported) {
					continue
				}
				if err != nil {
					t.Fatalf("%s, %s, %d rows: %v", c, w, rows, err)
				}
				if _, err := c.Check(got, c.Want(c.MakeParameters(), at)); err != nil {
					t.Errorf("%s, %s, %d rows %s: %v", c, w, rows, detail, err)
				}
				if r, err := client.Times(c, 1); err != nil || r.Best <= 0 {
					t.Errorf("times %+v, error %v", r, err)
				}
			}
		}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	args := "-shapes product:8x16,gru:4x8 -rows 1,3 -threads 1 -libraries cellmq,onnxruntime -rounds 1 -duration 1ms -pause 0 -json"
	if code := run(t.Context(), strings.Fields(args), nil, &out, t.Output()); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	var report compare.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Measurements) < 4 || len(report.Libraries) != 2 || report.Libraries[0].Name != "cellmq" {
		t.Errorf("report %+v", report)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args string
		want int
	}{
		{"-help", exitOK},
		{"-shapes product:8", exitUsage},
		{"-shapes rnn:8x8", exitUsage},
		{"-rows many", exitUsage},
		{"-threads 0", exitUsage},
		{"-weights f64", exitUsage},
		{"what", exitUsage},
		{"-libraries abacus", exitFailure},
		{"-libraries onednn:ZEN", exitFailure},
		{"worker", exitFailure},
		{"worker abacus 1", exitFailure},
	} {
		if got := run(t.Context(), strings.Fields(test.args), nil, &bytes.Buffer{}, t.Output()); got != test.want {
			t.Errorf("%s: exit code %d, want %d", test.args, got, test.want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	env := []string{"HOME=/", "OMP_NUM_THREADS=8", "OPENBLAS_CORETYPE=ZEN", "CELLMQ_ISA=avx2"}
	common := []string{"HOME=/", "OMP_NUM_THREADS=2", "OPENBLAS_NUM_THREADS=2"}
	for _, test := range []struct {
		library, kernels string
		want             []string
	}{
		{"openblas", "", nil},
		{"openblas", "HASWELL", []string{"OPENBLAS_CORETYPE=HASWELL"}},
		{"cellmq", "purego", []string{"CELLMQ_ISA=purego"}},
		{"torch", "", nil},
	} {
		got, want := environment(env, 2, test.library, test.kernels), slices.Concat(common, test.want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s %s: %v, want %v", test.library, test.kernels, got, want)
		}
	}
}
