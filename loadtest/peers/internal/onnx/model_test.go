package onnx_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"testing"

	"github.com/cellmq/cellmq/loadtest/peers/internal/onnx"
	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// TestModels has the models checked and computed by the onnx package of
// Python, which knows the specification and not this encoder.
func TestModels(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		c      workload.Case
		output string
	}{
		{"product", workload.Case{Kind: workload.Product, Inputs: 5, Units: 7, Rows: 3, Weights: workload.F32}, "y"},
		{"one row", workload.Case{Kind: workload.Product, Inputs: 32, Units: 48, Rows: 1, Weights: workload.F32}, "y"},
		{"product of int8", workload.Case{Kind: workload.Product, Inputs: 50, Units: 70, Rows: 3, Weights: workload.Int8}, "y"},
		{"lstm", workload.Case{Kind: workload.LSTM, Inputs: 5, Units: 7, Rows: 3, Weights: workload.F32}, "next_h"},
		{"lstm of int8", workload.Case{Kind: workload.LSTM, Inputs: 50, Units: 70, Rows: 2, Weights: workload.Int8}, "next_h"},
		{"gru", workload.Case{Kind: workload.GRU, Inputs: 5, Units: 7, Rows: 3, Weights: workload.F32}, "next_h"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, p, in := test.c, test.c.MakeParameters(), test.c.MakeInputs()
			model, err := onnx.Encode(c, p)
			if err != nil {
				t.Fatal(err)
			}
			got := evaluate(t, model, map[string][]byte{"x": raw(in.X), "h": raw(in.H), "c": raw(in.C)}, test.output)
			var at []int // of the hidden state
			for r := range c.Rows {
				for j := range c.Units {
					at = append(at, r*c.OutputWidth()+j)
				}
			}
			if _, err := c.Check(got, c.Want(p, at)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnsupported(t *testing.T) {
	t.Parallel()
	for _, c := range []workload.Case{
		{Kind: workload.GRU, Inputs: 2, Units: 3, Rows: 1, Weights: workload.Int8},
		{Kind: workload.Product, Inputs: 2, Units: 3, Rows: 1, Weights: workload.BF16},
	} {
		if _, err := onnx.Encode(c, c.MakeParameters()); !errors.Is(err, wire.ErrUnsupported) {
			t.Errorf("%s with weights %s: error %v, want %v", c, c.Weights, err, wire.ErrUnsupported)
		}
	}
}

// evaluate runs a model in Python and returns an output.
func evaluate(t *testing.T, model []byte, inputs map[string][]byte, output string) []float32 {
	t.Helper()
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		python = "python3"
	}
	request, err := json.Marshal(map[string]any{"model": model, "inputs": inputs})
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), python, "testdata/evaluate.py")
	command.Stdin = bytes.NewReader(append(request, '\n'))
	command.Stderr = t.Output()
	out, err := command.Output()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skipf("not available: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var response struct {
		Unavailable string            `json:"unavailable"`
		Outputs     map[string][]byte `json:"outputs"`
	}
	if err := json.Unmarshal(out, &response); err != nil {
		t.Fatal(err)
	}
	if response.Unavailable != "" {
		t.Skipf("not available: %s", response.Unavailable)
	}
	bytes := response.Outputs[output]
	values := make([]float32, len(bytes)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
	}
	return values
}

func raw(values []float32) []byte {
	var out []byte
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}
