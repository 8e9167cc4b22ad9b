package kernel

import "fmt"

// Format is how a [Matrix] stores its weights.
type Format uint8

// The formats.
const (
	// F32 stores weights as they are: the reference.
	F32 Format = iota
	// BF16 stores the upper half of each weight, rounded to nearest even, and
	// computes in float32.
	BF16
	// Int8 stores 8-bit codes with one scale for each output, and computes
	// with 8-bit codes of the input, which has one scale for each row.
	Int8
)

// String returns the format's name.
func (f Format) String() string {
	switch f {
	case F32:
		return "f32"
	case BF16:
		return "bf16"
	case Int8:
		return "int8"
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}
