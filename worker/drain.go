package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// handBackWait bounds how long a stopping worker waits for the step that is
// running, and for the connection, so that it can hand back.
const handBackWait = 5 * time.Second

// hungWait is how long a stopping worker waits for a step loop after that, if
// there are requests that could not be handed back.
const hungWait = time.Second

// drainService leaves the queue groups. Requests that had arrived are refused
// with shutting_down.
func (w *Worker) drainService(s *broker.Service) {
	ctx, cancel := context.WithTimeout(context.Background(), handBackWait)
	defer cancel()
	if err := s.Drain(ctx); err != nil {
		w.log.LogAttrs(ctx, slog.LevelWarn, "service drain failed", slog.Any("error", err))
	}
}

// finishRuns waits for the running requests, at most for the grace period, and
// hands back the rest.
func (w *Worker) finishRuns(work context.Context) {
	grace := time.NewTimer(w.cfg.Grace)
	defer grace.Stop()
	select {
	case <-w.table.empty():
		return
	case <-grace.C:
	case <-w.handBack:
	case <-work.Done():
	}
	left := w.table.all()
	w.log.LogAttrs(context.Background(), slog.LevelInfo, "handing back", slog.Int("running", len(left)))
	for _, r := range left {
		w.stop(r, errHandBack)
	}
	wait := time.NewTimer(handBackWait)
	defer wait.Stop()
	select {
	case <-w.table.empty():
	case <-wait.C:
		w.log.LogAttrs(context.Background(), slog.LevelWarn, "requests could not be handed back, their leases run out",
			slog.Int("running", w.table.count()))
	}
}

// readiness says why the worker takes no requests, nil when it does.
func (w *Worker) readiness() error {
	awaited := ""
	if text := w.awaited.Load(); text != nil {
		awaited = *text
	}
	switch {
	case w.draining.Load():
		return errors.New("draining")
	case awaited != "":
		return errors.New(awaited)
	case !w.serving.Load():
		return errors.New("starting")
	case !w.conn.Connected():
		return errors.New("not connected to the broker")
	case w.stuck.Load():
		return errors.New("step loop makes no progress")
	}
	if err := w.conn.Denied(); err != nil {
		return err
	}
	return w.stores.failing()
}

func (w *Worker) closeQuietly(part string, closePart func() error) {
	if err := closePart(); err != nil {
		w.log.LogAttrs(context.Background(), slog.LevelWarn, "close failed", slog.String("part", part), slog.Any("error", err))
	}
}
