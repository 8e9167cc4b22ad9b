package alternative

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/loadtest/internal/ask"
	"github.com/cellmq/cellmq/loadtest/internal/load"
	"github.com/cellmq/cellmq/loadtest/internal/target"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// client is the name that requests have.
const client = "loadtest"

// system is one that serves a model.
type system struct {
	name string
	// ask sends requests, value one of which the answer is wanted.
	ask   load.Asker
	value func(context.Context, *workload.Request) (string, error)
	// ids of its processes.
	ids []int
	// realtime: requests skip the queue.
	realtime bool
	// closed: only the closed loop is measured.
	closed bool
	// start is how long it took until the first answer.
	start time.Duration
}

// contest is the systems that serve one model, with all that has to be ended.
type contest struct {
	systems []*system
	ends    []func() error
}

func (c *contest) stop() error {
	var errs []error
	for i := len(c.ends) - 1; i >= 0; i-- {
		errs = append(errs, c.ends[i]())
	}
	return errors.Join(errs...)
}

// gather starts all systems for a model. The caller stops the contest, also after
// an error.
func gather(ctx context.Context, o *Options, m *Model) (*contest, error) {
	c := &contest{}
	if err := c.cellmq(ctx, o, m); err != nil {
		return c, err
	}
	for _, shape := range o.Shapes {
		if err := c.alternative(ctx, o, m, shape); err != nil {
			return c, err
		}
	}
	return c, nil
}

// cellmq starts a worker: one system on the realtime path, which has no queue on
// disk, as the alternative has none, and one on the durable path.
func (c *contest) cellmq(ctx context.Context, o *Options, m *Model) error {
	begin := time.Now()
	args := append([]string{"--models", m.Name, "--model-dir", filepath.Dir(m.Directory)}, o.WorkerArgs...)
	w, err := target.Start(ctx, target.Options{Program: o.Program, Args: args})
	if err != nil {
		return err
	}
	c.ends = append(c.ends, w.Stop)
	settings := target.Settings{SubjectPrefix: "infer"}
	nc, err := settings.Connect(ctx, w.URL, client)
	if err != nil {
		return err
	}
	c.ends = append(c.ends, func() error { nc.Close(); return nil })
	reader, err := broker.NewClient(nc, broker.ClientConfig{Name: client, Prefix: settings.SubjectPrefix})
	if err != nil {
		return err
	}
	c.ends = append(c.ends, reader.Close)
	asker, err := ask.New(nc, ask.Config{Prefix: settings.SubjectPrefix, Clients: []string{client}, Patience: o.Patience})
	if err != nil {
		return err
	}
	c.ends = append(c.ends, asker.Close)
	value := func(ctx context.Context, r *workload.Request) (string, error) { return answerOf(ctx, reader, r) }
	if _, err := value(ctx, m.first()); err != nil {
		return fmt.Errorf("cellmq: %w", err)
	}
	start := time.Since(begin)
	for _, realtime := range []bool{true, false} {
		s := &system{name: "cellmq", ask: asker, value: value, ids: []int{w.ID()}, realtime: realtime, start: start}
		if !realtime {
			s.name, s.closed = "cellmq, durable", true
		}
		c.systems = append(c.systems, s)
	}
	return nil
}

// answerOf asks cellmq, and returns a label or a text.
func answerOf(ctx context.Context, reader *broker.Client, r *workload.Request) (string, error) {
	o := broker.RequestOptions{Input: r.Input, Mode: broker.ModeFinal}
	if r.MaxTokens > 0 {
		o.Params.MaxTokens = &r.MaxTokens
	}
	s, err := reader.Request(ctx, r.Model, o)
	if err != nil {
		return "", err
	}
	f, err := s.Final()
	switch {
	case err != nil:
		return "", err
	case f.Final != nil && f.Final.Label != "":
		return f.Final.Label, nil
	}
	return f.Text, nil
}

// alternative starts the alternative in a shape.
func (c *contest) alternative(ctx context.Context, o *Options, m *Model, shape Shape) error {
	begin := time.Now()
	command := append(append([]string{}, o.Server...), m.Directory, "--threads", strconv.Itoa(shape.Threads))
	server, err := Start(ctx, append(command, o.ServerArgs...), []string{"OMP_NUM_THREADS=" + strconv.Itoa(shape.Threads)}, shape.Processes)
	if err != nil {
		return err
	}
	c.ends = append(c.ends, server.Stop)
	asker, err := Dial(ctx, server.Addresses, o.Patience)
	if err != nil {
		return err
	}
	c.ends = append(c.ends, asker.Close)
	if _, err := asker.Value(ctx, m.first()); err != nil {
		return fmt.Errorf("%s: %w", shape, err)
	}
	c.systems = append(c.systems, &system{
		name: shape.String(), ask: asker, value: asker.Value, ids: server.IDs, start: time.Since(begin),
	})
	return nil
}
