package worker

import (
	"context"
	"errors"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// rehearsal is a sequence that no client asked for.
type rehearsal struct {
	out  models.Output
	err  error
	done chan struct{}
}

// take is called by the outbox with its lock held.
func (r *rehearsal) take(res *cellrt.Result) {
	r.out.Tokens = append(r.out.Tokens, res.Tokens...)
	if res.Done {
		r.out.Reason, r.err = res.Reason, res.Err
		close(r.done)
	}
}

// rehearse returns what runs a request of a loaded model to its end. The
// runtime's sink is the outbox.
func rehearse(runtime *cellrt.Runtime, loaded *cellrt.Model) models.Run {
	return func(ctx context.Context, req *models.Request) (models.Output, error) {
		r := &rehearsal{done: make(chan struct{})}
		seq := cellrt.NewSequence(loaded, req.Graph, cellrt.SequenceOptions{Owner: r})
		if err := runtime.Submit(seq); err != nil {
			return models.Output{}, err
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			if runtime.Cancel(seq, context.Cause(ctx)) {
				<-r.done
			}
			return models.Output{}, errors.Join(context.Cause(ctx), r.err)
		}
		return r.out, r.err
	}
}

// prove checks a model that is not served against its golden outputs, so many
// at a time, in a runtime of its own: neither the profile nor the counters of
// the worker's are concerned, and its memory goes when prove returns.
func (w *Worker) prove(ctx context.Context, m *models.Model, slots int) error {
	runtime, err := cellrt.New(cellrt.Config{
		MaxRows: w.cfg.MaxRows, Executors: w.cfg.Executors, Threads: w.cfg.Threads,
	}, w.deps.Backend, w.outbox)
	if err != nil {
		return err
	}
	loaded, err := runtime.Load(m.Program(), slots)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- runtime.Run(running) }()
	_, err = m.VerifyGolden(ctx, slots, rehearse(runtime, loaded))
	stop()
	return errors.Join(err, <-ended)
}
