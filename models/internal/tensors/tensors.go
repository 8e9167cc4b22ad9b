package tensors

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/internal/brief"
	"github.com/cellmq/cellmq/models/safetensors"
)

// Linear are a projection's weights.
type Linear struct {
	Weight *cellrt.Matrix
	// Bias may be nil.
	Bias []float32
}

// Recurrent are the weights of one recurrent layer in one direction. An LSTM
// has the sum of its biases in InputBias and no RecurrentBias.
type Recurrent struct {
	Input, Hidden            *cellrt.Matrix
	InputBias, RecurrentBias []float32
}

// Kind is the kind of a recurrent layer.
type Kind uint8

// The kinds.
const (
	LSTM Kind = iota + 1
	GRU
)

// gates returns how many gates a layer of the kind has.
func (k Kind) gates() int {
	if k == GRU {
		return 3
	}
	return 4
}

// Taker takes tensors out of a file. It belongs to one goroutine.
type Taker struct {
	file       *safetensors.File
	taken      map[string]bool
	parameters int
	errs       brief.List
}

// NewTaker returns a taker of f's tensors.
func NewTaker(f *safetensors.File) *Taker {
	return &Taker{file: f, taken: make(map[string]bool)}
}

// Vector returns the values of a tensor that must have the given shape, or nil
// when it has not. The slice is the caller's.
func (t *Taker) Vector(name string, shape ...int) []float32 {
	if tensor := t.take(name, shape...); tensor != nil {
		return tensor.Float32s()
	}
	return nil
}

// take returns a tensor that must have the given shape, or nil when it has not.
func (t *Taker) take(name string, shape ...int) *safetensors.Tensor {
	tensor, ok := t.file.Tensor(name)
	if !ok {
		t.fail("tensor %s: missing, shape %v wanted", name, shape)
		return nil
	}
	t.taken[name] = true
	if !slices.Equal(tensor.Shape, shape) {
		t.fail("tensor %s: shape %v, %v wanted", name, tensor.Shape, shape)
		return nil
	}
	t.parameters += tensor.Len()
	return tensor
}

// Matrix takes a matrix. Its values are those of the file where they can be
// used as they lie there, so they live as long as the file's bytes and are not
// to be changed.
func (t *Taker) Matrix(name string, rows, cols int) *cellrt.Matrix {
	m := &cellrt.Matrix{Name: name, Rows: rows, Cols: cols}
	if tensor := t.take(name, rows, cols); tensor != nil {
		var ok bool
		if m.Data, ok = tensor.View(); !ok {
			m.Data = tensor.Float32s()
		}
	}
	return m
}

// Linear takes the weight and the bias of a module.
func (t *Taker) Linear(module string, rows, cols int) Linear {
	return Linear{Weight: t.Matrix(module+".weight", rows, cols), Bias: t.Vector(module+".bias", rows)}
}

// Recurrent takes the weights that PyTorch names like "encoder.weight_ih_l0"
// with the given suffix, here "l0".
func (t *Taker) Recurrent(k Kind, module, suffix string, in, hidden int) Recurrent {
	rows := k.gates() * hidden
	w := Recurrent{
		Input:         t.Matrix(module+".weight_ih_"+suffix, rows, in),
		Hidden:        t.Matrix(module+".weight_hh_"+suffix, rows, hidden),
		InputBias:     t.Vector(module+".bias_ih_"+suffix, rows),
		RecurrentBias: t.Vector(module+".bias_hh_"+suffix, rows),
	}
	if k == LSTM && len(w.InputBias) == len(w.RecurrentBias) {
		for i, b := range w.RecurrentBias {
			w.InputBias[i] += b
		}
		w.RecurrentBias = nil
	}
	return w
}

// Finish returns the number of parameters taken. Its error joins the first
// faults of those taken and the first tensors that nobody took, and says how
// many more there are of each.
func (t *Taker) Finish() (parameters int, err error) {
	var unknown brief.List
	for _, tensor := range t.file.Tensors() {
		if !t.taken[tensor.Name] {
			unknown.Add(fmt.Errorf("tensor %s: shape %v, not part of the model", plain(tensor.Name), tensor.Shape))
		}
	}
	return t.parameters, errors.Join(t.errs.Err(), unknown.Err())
}

func (t *Taker) fail(format string, args ...any) {
	t.errs.Add(fmt.Errorf(format, args...))
}

// plain returns a tensor's name as it is when it is short and printable, else
// quoted and shortened.
func plain(name string) string {
	quoted := fmt.Sprintf("%.64q", name)
	if quoted == `"`+name+`"` {
		return name
	}
	return quoted
}
