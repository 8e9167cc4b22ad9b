package cellrt

import "fmt"

// Weights is how a backend stores and multiplies the weight matrices of a
// program. States, gates and sums are float32 always. A backend may lack some.
type Weights uint8

// The weight types.
const (
	// F32 is the reference: float32, one fused chain per output.
	F32 Weights = iota
	// BF16 stores the upper 16 bits of each weight and computes in float32.
	// It halves the memory that a step reads.
	BF16
	// Int8 stores 8-bit weights with a scale per output and rounds each
	// input vector of a product to 8 bits with a scale of its own.
	Int8
)

// String returns the name that ParseWeights reads.
func (w Weights) String() string {
	switch w {
	case F32:
		return "f32"
	case BF16:
		return "bf16"
	case Int8:
		return "int8"
	}
	return fmt.Sprintf("Weights(%d)", uint8(w))
}

// ParseWeights returns the weight type of that name: f32, bf16 or int8.
func ParseWeights(name string) (Weights, error) {
	for _, w := range []Weights{F32, BF16, Int8} {
		if w.String() == name {
			return w, nil
		}
	}
	return 0, fmt.Errorf("weight type %q: want f32, bf16 or int8", name)
}
