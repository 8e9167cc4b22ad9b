package onnx

import (
	"fmt"
	"math"

	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// The names of a model's inputs and outputs.
const (
	inputX, inputH, inputC     = "x", "h", "c"
	outputY, outputH, outputC  = "y", "next_h", "next_c"
	weight, recurrent, biases  = "weight", "recurrent", "biases"
	weightScale, weightZero    = "weight_scale", "weight_zero"
	recurrentScale             = "recurrent_scale"
	recurrentZero              = "recurrent_zero"
	attributeHidden            = "hidden_size"
	attributeLinearBeforeReset = "linear_before_reset"
)

// Encode returns the ONNX model of a case, for its number of rows. A product
// has the input x and the output y, both rows by width. A recurrent step has
// the inputs x, h and, for an LSTM, c, and the outputs next_h and next_c, with
// a time step or direction in front: 1 by rows by width. The error wraps
// [wire.ErrUnsupported] when there is no operator for the case.
func Encode(c workload.Case, p workload.Parameters) ([]byte, error) {
	small := c.Weights == workload.Int8
	if c.Weights == workload.BF16 || small && c.Kind == workload.GRU {
		return nil, fmt.Errorf("%w: %s with weights %s", wire.ErrUnsupported, c.Kind, c.Weights)
	}
	g := &graph{}
	switch {
	case c.Kind == workload.Product && small:
		g.quantisedProduct(c, p)
	case c.Kind == workload.Product:
		g.product(c, p)
	case c.Kind == workload.LSTM:
		g.lstm(c, p, small)
	default:
		g.gru(c, p)
	}
	return g.model(), nil
}

// product adds y = x weight + bias, with the weight inputs by outputs.
func (g *graph) product(c workload.Case, p workload.Parameters) {
	g.input(value(inputX, c.Rows, c.Inputs))
	g.output(value(outputY, c.Rows, c.Units))
	g.constant(floats(weight, transpose(p.Weight, c.Units, c.Inputs), c.Inputs, c.Units))
	g.constant(floats(biases, p.Bias, c.Units))
	g.node(node("MatMul", "", []string{inputX, weight}, []string{"product"}, nil))
	g.node(node("Add", "", []string{"product", biases}, []string{outputY}, nil))
}

func (g *graph) quantisedProduct(c workload.Case, p workload.Parameters) {
	q, scale := quantise(p.Weight, c.Units, c.Inputs)
	g.input(value(inputX, c.Rows, c.Inputs))
	g.output(value(outputY, c.Rows, c.Units))
	g.constant(int8s(weight, transpose(q, c.Units, c.Inputs), c.Inputs, c.Units))
	g.constant(floats(weightScale, scale, c.Units))
	g.constant(int8s(weightZero, make([]int8, c.Units), c.Units))
	g.constant(floats(biases, p.Bias, c.Units))
	g.node(node("DynamicQuantizeMatMul", microsoftOperators,
		[]string{inputX, weight, weightScale, weightZero, biases}, []string{outputY}, nil))
}

// step declares the inputs and outputs of a recurrent step.
func (g *graph) step(c workload.Case) {
	g.input(value(inputX, 1, c.Rows, c.Inputs))
	g.input(value(inputH, 1, c.Rows, c.Units))
	g.output(value(outputH, 1, c.Rows, c.Units))
	if c.Kind == workload.LSTM {
		g.input(value(inputC, 1, c.Rows, c.Units))
		g.output(value(outputC, 1, c.Rows, c.Units))
	}
}

// lstm adds an LSTM, whose gates the operators have in the order i, o, f, g.
func (g *graph) lstm(c workload.Case, p workload.Parameters, small bool) {
	n := 4 * c.Units
	order := []int{0, 3, 1, 2}
	w, r := gates(p.Weight, order, c.Units*c.Inputs), gates(p.Recurrent, order, c.Units*c.Units)
	b := append(gates(p.Bias, order, c.Units), make([]float32, n)...)
	g.step(c)
	g.constant(floats(biases, b, 1, 2*n))
	inputs := []string{inputX, weight, recurrent, biases, "", inputH, inputC}
	outputs := []string{"", outputH, outputC}
	attributes := map[string]int64{attributeHidden: int64(c.Units)}
	if !small {
		g.constant(floats(weight, w, 1, n, c.Inputs))
		g.constant(floats(recurrent, r, 1, n, c.Units))
		g.node(node("LSTM", "", inputs, outputs, attributes))
		return
	}
	qw, sw := quantise(w, n, c.Inputs)
	qr, sr := quantise(r, n, c.Units)
	g.constant(int8s(weight, transpose(qw, n, c.Inputs), 1, c.Inputs, n))
	g.constant(int8s(recurrent, transpose(qr, n, c.Units), 1, c.Units, n))
	g.constant(floats(weightScale, sw, 1, n))
	g.constant(floats(recurrentScale, sr, 1, n))
	g.constant(int8s(weightZero, make([]int8, n), 1, n))
	g.constant(int8s(recurrentZero, make([]int8, n), 1, n))
	inputs = append(inputs, "", weightScale, weightZero, recurrentScale, recurrentZero)
	g.node(node("DynamicQuantizeLSTM", microsoftOperators, inputs, outputs, attributes))
}

// gru adds a GRU, whose gates the operator has in the order z, r, n.
func (g *graph) gru(c workload.Case, p workload.Parameters) {
	n := 3 * c.Units
	order := []int{1, 0, 2}
	b := append(gates(p.Bias, order, c.Units), gates(p.RecurrentBias, order, c.Units)...)
	g.step(c)
	g.constant(floats(weight, gates(p.Weight, order, c.Units*c.Inputs), 1, n, c.Inputs))
	g.constant(floats(recurrent, gates(p.Recurrent, order, c.Units*c.Units), 1, n, c.Units))
	g.constant(floats(biases, b, 1, 2*n))
	g.node(node("GRU", "", []string{inputX, weight, recurrent, biases, "", inputH}, []string{"", outputH},
		map[string]int64{attributeHidden: int64(c.Units), attributeLinearBeforeReset: 1}))
}

// gates returns a tensor with its blocks of the given size in another order.
func gates(values []float32, order []int, size int) []float32 {
	out := make([]float32, 0, len(values))
	for _, gate := range order {
		out = append(out, values[gate*size:(gate+1)*size]...)
	}
	return out
}

// transpose returns a matrix of outputs by inputs as one of inputs by outputs.
func transpose[T any](m []T, outputs, inputs int) []T {
	out := make([]T, len(m))
	for o := range outputs {
		for i := range inputs {
			out[i*outputs+o] = m[o*inputs+i]
		}
	}
	return out
}

// quantise rounds a matrix of outputs by inputs to 8-bit integers with a scale
// per output.
func quantise(m []float32, outputs, inputs int) ([]int8, []float32) {
	q, scale := make([]int8, len(m)), make([]float32, outputs)
	for o := range outputs {
		row := m[o*inputs : (o+1)*inputs]
		largest := float32(0)
		for _, v := range row {
			largest = max(largest, max(v, -v))
		}
		if largest == 0 {
			continue
		}
		scale[o] = largest / math.MaxInt8
		for i, v := range row {
			q[o*inputs+i] = int8(math.RoundToEven(float64(v / scale[o])))
		}
	}
	return q, scale
}
