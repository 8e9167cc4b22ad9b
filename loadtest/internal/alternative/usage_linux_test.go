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
	begin := processorTime(ids)
	for processorTime(ids) == begin {
		// until a tick of processor time has been used
	}
	if host() == "" {
		t.Error("the machine has no name")
	}
}
