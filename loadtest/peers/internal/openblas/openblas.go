//go:build openblas && cgo

package openblas

// #cgo CFLAGS: -Ofast -march=native -Wall
// #cgo LDFLAGS: -lopenblas -lm
// #include <cblas.h>
// #include "step.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// library is OpenBLAS with the threads that were asked for.
type library struct{}

// Open sets the number of threads and binds the caller to its thread.
func Open(threads int) wire.Library {
	runtime.LockOSThread()
	C.openblas_set_num_threads(C.int(threads))
	return library{}
}

// Hello implements [wire.Library].
func (library) Hello() wire.Hello {
	version := C.GoString(C.openblas_get_config())
	if fields := strings.Fields(version); len(fields) > 1 {
		version = fields[1]
	}
	return wire.Hello{
		Library: "OpenBLAS", Version: version + " " + C.GoString(C.openblas_get_corename()),
		Weights: []workload.Weights{workload.F32},
	}
}

// Load implements [wire.Library].
func (library) Load(shape workload.Case, p workload.Parameters) (wire.Model, error) {
	if shape.Weights != workload.F32 {
		return nil, fmt.Errorf("%w: weights %s", wire.ErrUnsupported, shape.Weights)
	}
	m := C.ob_step_load(kind(shape.Kind), C.int(shape.Inputs), C.int(shape.Units),
		pointer(p.Weight), pointer(p.Recurrent), pointer(p.Bias), pointer(p.RecurrentBias))
	if m == nil {
		return nil, errNoMemory
	}
	return model{m}, nil
}

var errNoMemory = errors.New("no memory")

func kind(k workload.Kind) uint32 {
	switch k {
	case workload.LSTM:
		return C.OB_STEP_LSTM
	case workload.GRU:
		return C.OB_STEP_GRU
	case workload.Product:
	}
	return C.OB_STEP_PRODUCT
}

// pointer returns where v begins, for the duration of a call.
func pointer(v []float32) *C.float { return (*C.float)(unsafe.SliceData(v)) }

// model is loaded weights.
type model struct{ c *C.struct_ob_step_model }

// Bind implements [wire.Model].
func (m model) Bind(c workload.Case, in workload.Inputs) (wire.Call, error) {
	b := C.ob_step_bind(m.c, C.int(c.Rows), pointer(in.X), pointer(in.H), pointer(in.C))
	if b == nil {
		return nil, errNoMemory
	}
	return call{b}, nil
}

// Close implements [wire.Model].
func (m model) Close() { C.ob_step_unload(m.c) }

// call is a batch.
type call struct{ c *C.struct_ob_step_call }

// Run implements [wire.Call].
func (b call) Run() error {
	C.ob_step_run(b.c)
	return nil
}

// Output implements [wire.Call].
func (b call) Output(to []float32) error {
	copy(to, unsafe.Slice((*float32)(unsafe.Pointer(b.c.out)), len(to)))
	return nil
}

// Close implements [wire.Call].
func (b call) Close() { C.ob_step_unbind(b.c) }
