package safetensors

import "fmt"

// FormatError says where a file breaks the format.
type FormatError struct {
	// Tensor is the tensor at fault; empty when it is the file as a whole.
	Tensor string
	// Field is the header's part at fault, for example "shape".
	Field string
	// Message says what is wrong, with the bound that was passed.
	Message string
}

// Error names the tensor, shortened when its name is long, the field and what
// is wrong.
func (e *FormatError) Error() string {
	if e.Tensor == "" {
		return "safetensors " + e.Field + ": " + e.Message
	}
	return fmt.Sprintf("safetensors tensor %.64q: %s: %s", e.Tensor, e.Field, e.Message)
}

func formatErrorf(tensor, field, format string, args ...any) error {
	return &FormatError{Tensor: tensor, Field: field, Message: fmt.Sprintf(format, args...)}
}
