package cpu

import (
	"os" //nolint:depguard // the tier is chosen for a whole process, for example a run of all tests, whoever makes the backend

	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// tierVariable is the environment variable that names the tier of backends
// whose configuration does not.
const tierVariable = "CELLMQ_ISA"

// Tiers returns the names of the instruction tiers that this build and machine
// have, the fastest last. The first is always the portable one, purego.
func Tiers() []string {
	var names []string
	for _, t := range kernel.Tables() {
		names = append(names, t.Name)
	}
	return names
}

// findTable returns the kernels of the tier with that name, or of the one that
// the environment names, or the fastest.
func findTable(name string) (*kernel.Table, error) {
	if name == "" {
		name = os.Getenv(tierVariable)
	}
	return kernel.Find(name)
}
