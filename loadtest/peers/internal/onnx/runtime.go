//go:build onnxruntime && cgo

package onnx

import (
	"fmt"
	"os"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// library is ONNX Runtime with the threads that were asked for.
type library struct{ threads int }

// Open loads the shared library, or says why that failed.
func Open(threads int) wire.Library {
	path := os.Getenv("ONNXRUNTIME_LIB")
	if path == "" {
		path = "libonnxruntime.so"
	}
	ort.SetSharedLibraryPath(path)
	if err := ort.InitializeEnvironment(); err != nil {
		return wire.Missing{Name: "ONNX Runtime", Reason: fmt.Sprintf("%s: %v", path, err)}
	}
	return library{threads: threads}
}

// Hello implements [wire.Library].
func (library) Hello() wire.Hello {
	return wire.Hello{
		Library: "ONNX Runtime", Version: ort.GetVersion(),
		Weights: []workload.Weights{workload.F32, workload.Int8},
	}
}

// Load implements [wire.Library].
func (l library) Load(shape workload.Case, p workload.Parameters) (wire.Model, error) {
	shape.Rows = 1
	if _, err := Encode(shape, p); err != nil {
		return nil, err
	}
	return model{threads: l.threads, params: p}, nil
}

// model is weights that have not been packed: a session has fixed sizes, so
// each batch has one of its own.
type model struct {
	threads int
	params  workload.Parameters
}

// Bind implements [wire.Model].
func (m model) Bind(c workload.Case, in workload.Inputs) (wire.Call, error) {
	encoded, err := Encode(c, m.params)
	if err != nil {
		return nil, err
	}
	b := &call{c: c}
	if err := b.open(encoded, in, m.threads); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close implements [wire.Model].
func (model) Close() {}

// call is a session with its tensors.
type call struct {
	c       workload.Case
	session *ort.AdvancedSession
	inputs  []ort.Value
	outputs []*ort.Tensor[float32]
}

// open makes the tensors and the session.
func (b *call) open(encoded []byte, in workload.Inputs, threads int) error {
	rows, units := int64(b.c.Rows), int64(b.c.Units)
	var inputNames, outputNames []string
	input := func(name string, values []float32, shape ...int64) error {
		t, err := ort.NewTensor(ort.NewShape(shape...), values)
		if err != nil {
			return fmt.Errorf("input %s: %w", name, err)
		}
		b.inputs, inputNames = append(b.inputs, t), append(inputNames, name)
		return nil
	}
	output := func(name string, shape ...int64) error {
		t, err := ort.NewEmptyTensor[float32](ort.NewShape(shape...))
		if err != nil {
			return fmt.Errorf("output %s: %w", name, err)
		}
		b.outputs, outputNames = append(b.outputs, t), append(outputNames, name)
		return nil
	}
	var steps []func() error
	if b.c.Kind == workload.Product {
		steps = append(steps,
			func() error { return input(inputX, in.X, rows, int64(b.c.Inputs)) },
			func() error { return output(outputY, rows, units) })
	} else {
		steps = append(steps,
			func() error { return input(inputX, in.X, 1, rows, int64(b.c.Inputs)) },
			func() error { return input(inputH, in.H, 1, rows, units) },
			func() error { return output(outputH, 1, rows, units) })
	}
	if b.c.Kind == workload.LSTM {
		steps = append(steps,
			func() error { return input(inputC, in.C, 1, rows, units) },
			func() error { return output(outputC, 1, rows, units) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return b.start(encoded, inputNames, outputNames, threads)
}

// start makes the session.
func (b *call) start(encoded []byte, inputNames, outputNames []string, threads int) error {
	options, err := ort.NewSessionOptions()
	if err != nil {
		return fmt.Errorf("make options: %w", err)
	}
	defer func() { _ = options.Destroy() }() // they are copied by the session
	if err := options.SetIntraOpNumThreads(threads); err != nil {
		return fmt.Errorf("set the threads: %w", err)
	}
	if err := options.SetInterOpNumThreads(1); err != nil {
		return fmt.Errorf("set the threads: %w", err)
	}
	var outputs []ort.Value
	for _, t := range b.outputs {
		outputs = append(outputs, t)
	}
	b.session, err = ort.NewAdvancedSessionWithONNXData(encoded, inputNames, outputNames, b.inputs, outputs, options)
	if err != nil {
		return fmt.Errorf("make a session: %w", err)
	}
	return nil
}

// Run implements [wire.Call].
func (b *call) Run() error { return b.session.Run() }

// Output implements [wire.Call].
func (b *call) Output(to []float32) error {
	n, width := b.c.Units, b.c.OutputWidth()
	for i, t := range b.outputs {
		values := t.GetData()
		for r := range b.c.Rows {
			copy(to[r*width+i*n:], values[r*n:(r+1)*n])
		}
	}
	return nil
}

// Close implements [wire.Call].
func (b *call) Close() {
	if b.session != nil {
		_ = b.session.Destroy() // nothing is left to do about it
	}
	for _, t := range b.inputs {
		_ = t.Destroy()
	}
	for _, t := range b.outputs {
		_ = t.Destroy()
	}
}
