package wire

import (
	"fmt"

	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// Missing stands for a library that is not available.
type Missing struct {
	// Name is the library's.
	Name string
	// Reason is why it is not available.
	Reason string
}

// Hello implements [Library].
func (m Missing) Hello() Hello { return Hello{Library: m.Name, Unavailable: m.Reason} }

// Load implements [Library]. It always fails.
func (m Missing) Load(workload.Case, workload.Parameters) (Model, error) {
	return nil, fmt.Errorf("%w: %s: %s", ErrUnsupported, m.Name, m.Reason)
}
