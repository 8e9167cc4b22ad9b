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
		{1064, 0, "1064 workers began"},
		{1064, 1060, "4 workers began"},
		{1064, 1063, "handed back, or cut off, in 1063 of 1064"},
		{1064, 1064, "handed back, or cut off, in 1064 of 1064"},
		{2, 200, "in 2 of 2"},
	} {
		if e := undelivered(tc.attempts, tc.excused); e.Code != broker.CodeAttemptsExhausted || !strings.Contains(e.Message, tc.says) {
			t.Errorf("%d of %d excused: %s, %s", tc.excused, tc.attempts, e.Code, e.Message)
		}
	}
}
