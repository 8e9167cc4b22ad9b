package accuracy

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// slots is how many requests run at once.
const slots = 64

// server runs requests of one model.
type server struct {
	model   *models.Model
	runtime *cellrt.Runtime
	loaded  *cellrt.Model
}

// call is a request on its way; the runtime writes it before it closes done.
type call struct {
	out  models.Output
	err  error
	done chan struct{}
}

// serve calls use with a server of m, which runs until use returns.
func serve(ctx context.Context, b cellrt.Backend, m *models.Model, use func(context.Context, *server) error) error {
	s := &server{model: m}
	var err error
	if s.runtime, err = cellrt.New(cellrt.Config{Executors: runtime.GOMAXPROCS(0)}, b, s); err != nil {
		return err
	}
	if s.loaded, err = s.runtime.Load(m.Program(), slots); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.runtime.Run(running) }()
	err = use(ctx, s)
	stop()
	return errors.Join(err, <-ended)
}

// Deliver implements [cellrt.Sink].
func (s *server) Deliver(results []cellrt.Result) {
	for _, r := range results {
		c := r.Sequence.Owner().(*call)
		c.out.Tokens = append(c.out.Tokens, r.Tokens...)
		if r.Done {
			c.out.Reason, c.err = r.Reason, r.Err
			close(c.done)
		}
	}
}

// run runs a request to its end. At most slots calls may be under way. It is a
// [models.Run].
func (s *server) run(ctx context.Context, req *models.Request) (models.Output, error) {
	c := &call{done: make(chan struct{})}
	sequence := cellrt.NewSequence(s.loaded, req.Graph, cellrt.SequenceOptions{Owner: c})
	if err := s.runtime.Submit(sequence); err != nil {
		return models.Output{}, fmt.Errorf("submit: %w", err)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		s.runtime.Cancel(sequence, context.Cause(ctx))
		<-c.done
	}
	return c.out, c.err
}

// all runs n requests and gives each and its output to use, which is called for
// different requests at the same time.
func (s *server) all(ctx context.Context, n int, unfold func(i int) (*models.Request, error),
	use func(i int, req *models.Request, out models.Output),
) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(slots)
	for i := range n {
		group.Go(func() error {
			req, err := unfold(i)
			if err != nil {
				return fmt.Errorf("case %d: %w", i+1, err)
			}
			out, err := s.run(ctx, req)
			if err != nil {
				return fmt.Errorf("case %d: %w", i+1, err)
			}
			use(i, req, out)
			return nil
		})
	}
	return group.Wait()
}
