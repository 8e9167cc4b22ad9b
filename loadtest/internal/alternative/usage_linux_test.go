package alternative

import (
	"os"
	"testing"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	ids := []int{os.Getpid()}
	if n := memory(ids); n < 1<<20 {
		t.Errorf("this process takes %d bytes", n)
	}
	spins := 0
	for begin := processorTime(ids); processorTime(ids) == begin; {
		spins++ // until a tick of processor time has been used
	}
	t.Logf("asked %d times until the processor time had changed", spins)
	if host() == "" {
		t.Error("the machine has no name")
	}
}
