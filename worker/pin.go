package worker

import (
	"context"
	"log/slog"

	"github.com/cellmq/cellmq/broker"
)

// pin writes down on which version a request runs, for its later attempts. It goes
// out before all frames, on the same connection, and nobody waits for it. It reports
// false when it could not be sent: then no frame may be.
func (w *Worker) pin(r *run) bool {
	err := w.conn.SaveStateAsync(&broker.State{
		Client: r.req.Client, ID: r.req.ID, Request: r.req.Hash, Digest: r.served.key.Digest, Excused: r.excused,
	}, 0)
	if err != nil {
		w.log.LogAttrs(context.Background(), slog.LevelWarn, "version not written down, the request is handed back",
			slog.String("request_id", r.req.ID), slog.String("model", r.req.Model), slog.Any("error", err))
		return false
	}
	r.pinned = true
	w.metrics.pinned.Inc()
	return true
}
