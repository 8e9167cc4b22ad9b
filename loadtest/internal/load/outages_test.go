package load_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/load"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// TestOutages has the connection of a load be lost twice, of which one time before the
// load and a bit into it: the report says how long, and which failures fell into it.
func TestOutages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := options(t, workload.Arrivals{Law: workload.Constant, Rate: 10})
		o.Outages = &load.Outages{}
		o.Outages.Lost(time.Now())
		time.AfterFunc(time.Second, func() {
			if down := o.Outages.Restored(time.Now()); down != time.Second {
				t.Errorf("restored after %v", down)
			}
		})
		time.AfterFunc(10*time.Second, func() { o.Outages.Lost(time.Now()) })
		time.AfterFunc(12*time.Second, func() { o.Outages.Restored(time.Now()) })
		time.AfterFunc(13*time.Second, func() { o.Outages.Restored(time.Now()) })
		r := run(t, &server{parallel: true, service: 50 * time.Millisecond, fail: "timeout", failEvery: 2}, o)
		if d := r.Disconnected; d.Times != 2 || d.For != 3*time.Second || d.Failed < 9 || d.Failed > 11 || r.All.FailedCount() < 90 {
			t.Errorf("%+v of %d failures", d, r.All.FailedCount())
		}
		raw, err := json.Marshal(r)
		if err != nil || !bytes.Contains(raw, []byte(`"connection_losses":2,"connection_lost_seconds":3`)) || !strings.Contains(r.Markdown(), "| 2 (3.0);") ||
			len(r.Warnings()) != 1 || !strings.Contains(r.Warnings()[0], "own connection was lost") {
			t.Errorf("%v, %q: %s", err, r.Warnings(), r.Markdown())
		}
		o.Outages = &load.Outages{} // until the end
		time.AfterFunc(20*time.Second, func() { o.Outages.Lost(time.Now()) })
		if d := run(t, &server{service: time.Millisecond}, o).Disconnected; d.Times != 1 || d.For < 1900*time.Millisecond || d.For > 2100*time.Millisecond || d.Failed != 0 {
			t.Errorf("%+v", d)
		}
	})
}
