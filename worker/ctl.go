package worker

import (
	"context"
	"log/slog"

	"github.com/cellmq/cellmq/broker"
)

// control is the endpoint of operators' requests to this worker. A drain ends
// the worker, as a signal does; there is no way back from it, because queue
// groups and leases are left for good.
func (w *Worker) control(c broker.Control) broker.ControlReply {
	if c.Op == broker.ControlDrain {
		w.log.LogAttrs(context.Background(), slog.LevelInfo, "asked to drain")
		w.Drain()
	}
	state := "serving"
	if c.Op == broker.ControlDrain || w.draining.Load() {
		state = "draining"
	}
	return broker.ControlReply{State: state, Status: w.serviceStats()}
}
