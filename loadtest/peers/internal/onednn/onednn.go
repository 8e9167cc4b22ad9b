//go:build onednn && cgo

package onednn

// #cgo CFLAGS: -O2 -Wall
// #cgo CXXFLAGS: -O2 -Wall -std=c++17 -fopenmp
// #cgo LDFLAGS: -ldnnl -fopenmp
// #include "step.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// library is oneDNN with the threads that were asked for.
type library struct{}

// Open sets the number of threads and binds the caller to its thread, which
// OpenMP's threads belong to.
func Open(threads int) wire.Library {
	runtime.LockOSThread()
	C.dn_step_threads(C.int(threads))
	return library{}
}

// Hello implements [wire.Library].
func (library) Hello() wire.Hello {
	return wire.Hello{
		Library: "oneDNN", Version: C.GoString(C.dn_step_version()),
		Weights: []workload.Weights{workload.F32, workload.BF16},
	}
}

// Load implements [wire.Library].
func (library) Load(shape workload.Case, p workload.Parameters) (wire.Model, error) {
	bf16 := C.int(0)
	switch shape.Weights {
	case workload.BF16:
		bf16 = 1
	case workload.Int8:
		return nil, fmt.Errorf("%w: weights %s", wire.ErrUnsupported, shape.Weights)
	case workload.F32:
	}
	var text failure
	m := C.dn_step_load(kind(shape.Kind), C.int(shape.Inputs), C.int(shape.Units), bf16,
		pointer(p.Weight), pointer(p.Recurrent), pointer(p.Bias), pointer(p.RecurrentBias), text.buffer())
	if m == nil {
		return nil, text.err()
	}
	return model{m}, nil
}

// failure is room for the text of an error.
type failure [C.DN_STEP_ERROR]C.char

func (f *failure) buffer() *C.char { return &f[0] }

func (f *failure) err() error { return errors.New(C.GoString(&f[0])) }

func kind(k workload.Kind) uint32 {
	switch k {
	case workload.LSTM:
		return C.DN_STEP_LSTM
	case workload.GRU:
		return C.DN_STEP_GRU
	case workload.Product:
	}
	return C.DN_STEP_PRODUCT
}

// pointer returns where v begins, for the duration of a call.
func pointer(v []float32) *C.float { return (*C.float)(unsafe.SliceData(v)) }

// model is loaded weights.
type model struct{ c *C.struct_dn_step_model }

// Bind implements [wire.Model].
func (m model) Bind(c workload.Case, in workload.Inputs) (wire.Call, error) {
	var text failure
	b := C.dn_step_bind(m.c, C.int(c.Rows), pointer(in.X), pointer(in.H), pointer(in.C), text.buffer())
	if b == nil {
		return nil, text.err()
	}
	return &call{c: b}, nil
}

// Close implements [wire.Model].
func (m model) Close() { C.dn_step_unload(m.c) }

// call is a batch.
type call struct {
	c    *C.struct_dn_step_call
	text failure
}

// Run implements [wire.Call].
func (b *call) Run() error {
	if C.dn_step_run(b.c, b.text.buffer()) != 0 {
		return b.text.err()
	}
	return nil
}

// Output implements [wire.Call].
func (b *call) Output(to []float32) error {
	if C.dn_step_output(b.c, pointer(to), b.text.buffer()) != 0 {
		return b.text.err()
	}
	return nil
}

// Detail returns the implementation that the library chose.
func (b *call) Detail() string { return C.GoString(C.dn_step_detail(b.c)) }

// Close implements [wire.Call].
func (b *call) Close() { C.dn_step_unbind(b.c) }
