package worker

import (
	"context"
	"errors"
	"log/slog"

	"github.com/cellmq/cellmq/broker"
)

// errNoReason stands for the reason of a closed connection that has none.
var errNoReason = errors.New("no reason given")

// serverLeaves is told that the server is about to stop.
func (w *Worker) serverLeaves() {
	select {
	case w.moving <- struct{}{}:
	default:
	}
}

// take takes requests until ctx ends. When the server is about to stop and
// another one is known, it first ends the pulls, so that no request is sent to a
// connection that goes away and waits for its lease to run out, then moves, and
// goes on there. What runs goes on meanwhile.
func (w *Worker) take(ctx context.Context, intake *broker.Intake) error {
	for {
		pulling, pause := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- intake.Run(pulling, w.durable, w.admit) }()
		moves := false
		for !moves {
			select {
			case err := <-ended:
				pause()
				return err
			case <-w.moving:
				moves = w.conn.CanMove()
			}
		}
		pause()
		if err := <-ended; err != nil || ctx.Err() != nil {
			return err
		}
		if err := w.conn.Move(); err != nil { // it is closed, which ends the worker
			w.log.LogAttrs(ctx, slog.LevelWarn, "stays with its server", slog.Any("error", err))
		}
	}
}
