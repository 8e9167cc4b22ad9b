package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestModeErrorOffersWhatIsServed wants the message not to name a mode that is
// refused.
func TestModeErrorOffersWhatIsServed(t *testing.T) {
	t.Parallel()
	e := readHeaders(&Request{}, nats.Header{HeaderMode: {"chunky"}}, time.Now())
	if e == nil || strings.Contains(e.Message, "resume") || !strings.Contains(e.Message, "stream or final") {
		t.Errorf("got %v", e)
	}
}
