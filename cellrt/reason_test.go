package cellrt_test

import (
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

// TestReasonWords holds the words that clients and golden outputs have.
func TestReasonWords(t *testing.T) {
	t.Parallel()
	for r, want := range map[cellrt.Reason]string{cellrt.Stopped: "stop", cellrt.Length: "length", 0: "none"} {
		if got := r.String(); got != want {
			t.Errorf("reason %d is %q, want %q", uint8(r), got, want)
		}
	}
}
