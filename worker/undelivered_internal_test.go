package worker

import (
	"strings"
	"testing"

	"github.com/cellmq/cellmq/broker"
)

// TestUndelivered wants a client to be told whether its request failed or was
// only handed back.
func TestUndelivered(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		attempts, excused int
		says              string
	}{
		{104, 0, "104 workers began"},
		{104, 100, "4 workers began"},
		{104, 103, "handed back, or cut off, in 103 of 104"},
		{104, 104, "handed back, or cut off, in 104 of 104"},
		{2, 200, "in 2 of 2"},
	} {
		if e := undelivered(tc.attempts, tc.excused); e.Code != broker.CodeAttemptsExhausted || !strings.Contains(e.Message, tc.says) {
			t.Errorf("%d of %d excused: %s, %s", tc.excused, tc.attempts, e.Code, e.Message)
		}
	}
}
