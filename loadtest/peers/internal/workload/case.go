package workload

import (
	"errors"
	"fmt"
)

// Kind is what a case computes.
type Kind string

// The kinds.
const (
	// Product is a matrix product with a bias: y = W x + b for each row.
	Product Kind = "product"
	// LSTM is one step of a long short-term memory with PyTorch's gate order
	// (i, f, g, o).
	LSTM Kind = "lstm"
	// GRU is one step of a gated recurrent unit with PyTorch's gate order (r,
	// z, n), whose reset gate scales the recurrent product with its bias.
	GRU Kind = "gru"
)

// Weights is how a library keeps its weights.
type Weights string

// The ways to keep weights.
const (
	// F32 is float32.
	F32 Weights = "f32"
	// BF16 is bfloat16: the upper half of a float32.
	BF16 Weights = "bf16"
	// Int8 is an 8-bit integer with a scale.
	Int8 Weights = "int8"
)

// AllWeights returns the ways to keep weights, the most precise first.
func AllWeights() []Weights { return []Weights{F32, BF16, Int8} }

// Case is one computation.
type Case struct {
	Kind Kind `json:"kind"`
	// Inputs is how many numbers a row of x has: K of a product, I of a
	// recurrent step.
	Inputs int `json:"inputs"`
	// Units is how many numbers a row of the result has: N of a product, h of
	// a recurrent step.
	Units int `json:"units"`
	// Rows is the size of the batch.
	Rows int `json:"rows"`
	// Weights is how the weights are kept.
	Weights Weights `json:"weights"`
}

// Shape returns the case without its rows: what the weights depend on.
func (c Case) Shape() Case {
	c.Rows = 0
	return c
}

// String returns the case in words, such as "product 512 x 768".
func (c Case) String() string { return fmt.Sprintf("%s %d x %d", c.Kind, c.Inputs, c.Units) }

// Gates returns how many blocks of Units rows the weight matrices have: one of
// a product, four of an LSTM, three of a GRU.
func (c Case) Gates() int {
	switch c.Kind {
	case LSTM:
		return 4
	case GRU:
		return 3
	case Product:
	}
	return 1
}

// Flop returns the floating point operations of the matrix products of one
// call. Those of the gates are not counted.
func (c Case) Flop() float64 {
	width := c.Inputs
	if c.Kind != Product {
		width += c.Units
	}
	return 2 * float64(c.Rows) * float64(c.Gates()*c.Units) * float64(width)
}

// OutputWidth returns how many results a row has. A row of an LSTM is the new
// hidden state and then the new cell state.
func (c Case) OutputWidth() int {
	if c.Kind == LSTM {
		return 2 * c.Units
	}
	return c.Units
}

// Outputs returns how many results a call has.
func (c Case) Outputs() int { return c.Rows * c.OutputWidth() }

// MostRows is the largest batch.
const MostRows = 1024

// largestWidth bounds inputs and units to what fits into a small machine.
const largestWidth = 1 << 17

// Validate returns what is wrong with the case, everything joined.
func (c Case) Validate() error {
	var errs []error
	within := func(name string, got, most int) {
		if got < 1 || got > most {
			errs = append(errs, fmt.Errorf("%s %d: want 1 to %d", name, got, most))
		}
	}
	switch c.Kind {
	case Product, LSTM, GRU:
	default:
		errs = append(errs, fmt.Errorf("kind %q: want %s, %s or %s", c.Kind, Product, LSTM, GRU))
	}
	switch c.Weights {
	case F32, BF16, Int8:
	default:
		errs = append(errs, fmt.Errorf("weights %q: want %s, %s or %s", c.Weights, F32, BF16, Int8))
	}
	within("inputs", c.Inputs, largestWidth)
	within("units", c.Units, largestWidth)
	within("rows", c.Rows, MostRows)
	return errors.Join(errs...)
}
