package workload

import "math"

// The seeds of the tensors.
const (
	seedWeight = 1 + iota
	seedBias
	seedX
	seedRecurrent
	seedRecurrentBias
	seedH
	seedC
)

// Amplitudes. Weights have the variance 1 / (number of terms), so that sums are
// of the size of their terms.
const (
	biasAmplitude  = 0.5
	stateAmplitude = 1
)

// number returns one of the numbers of the tensor with the given seed.
func number(seed uint64, at int, amplitude float32) float32 {
	z := (uint64(at) + seed<<40) * 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	z ^= z >> 31
	return amplitude * (float32(z>>40)*(1.0/(1<<23)) - 1)
}

// tensor returns the first n numbers of a tensor.
func tensor(seed uint64, n int, amplitude float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = number(seed, i, amplitude)
	}
	return out
}

// Parameters are the weights of a case as PyTorch stores them: matrices are
// row-major, outputs by inputs.
type Parameters struct {
	// Weight is Gates*Units by Inputs.
	Weight []float32
	// Bias has Gates*Units numbers. That of an LSTM is the sum of PyTorch's
	// two biases.
	Bias []float32
	// Recurrent is Gates*Units by Units, nil for a product.
	Recurrent []float32
	// RecurrentBias has Gates*Units numbers, nil unless the case is a GRU.
	RecurrentBias []float32
}

// Inputs are what a case is computed for, one row after the other.
type Inputs struct {
	// X is Rows by Inputs.
	X []float32
	// H is Rows by Units, nil for a product.
	H []float32
	// C is Rows by Units, nil unless the case is an LSTM.
	C []float32
}

func (c Case) weightAmplitude() float32 {
	width := c.Inputs
	if c.Kind != Product {
		width += c.Units
	}
	return float32(math.Sqrt(3 / float64(width)))
}

// MakeParameters returns the weights of the case.
func (c Case) MakeParameters() Parameters {
	n, a := c.Gates()*c.Units, c.weightAmplitude()
	p := Parameters{Weight: tensor(seedWeight, n*c.Inputs, a), Bias: tensor(seedBias, n, biasAmplitude)}
	if c.Kind != Product {
		p.Recurrent = tensor(seedRecurrent, n*c.Units, a)
	}
	if c.Kind == GRU {
		p.RecurrentBias = tensor(seedRecurrentBias, n, biasAmplitude)
	}
	return p
}

// MakeInputs returns what the case is computed for.
func (c Case) MakeInputs() Inputs {
	in := Inputs{X: tensor(seedX, c.Rows*c.Inputs, stateAmplitude)}
	if c.Kind != Product {
		in.H = tensor(seedH, c.Rows*c.Units, stateAmplitude)
	}
	if c.Kind == LSTM {
		in.C = tensor(seedC, c.Rows*c.Units, stateAmplitude)
	}
	return in
}
