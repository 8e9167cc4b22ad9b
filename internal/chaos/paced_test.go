//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/worker"
)

// pacedRole makes a process of the test binary a worker whose steps take a time
// that does not depend on the machine, so that what breaks meets many requests
// that run, and a busy machine gets through all the same. Its value is the time.
const pacedRole = "CHAOS_PACED_WORKER"

// pace is the least time of a step of slow workers.
const pace = 2 * time.Millisecond

// pacedWorker runs a worker that the environment describes until a signal, and
// returns the exit code.
func pacedWorker(ctx context.Context, pace string, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := runPaced(ctx, pace, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, err) // there is nobody else to tell
		return 1
	}
	return 0
}

func runPaced(ctx context.Context, pace string, stderr io.Writer) error {
	d, err := time.ParseDuration(pace)
	if err != nil {
		return err
	}
	cfg, err := worker.DefaultConfig().FromEnv()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b := &paced{Backend: cpu.New(cpu.Config{}), pace: d}
	w, err := worker.New(cfg, worker.Deps{Log: log, Backend: b})
	if err != nil {
		return err
	}
	go func() { // golden outputs need no pace
		select {
		case <-w.Ready():
			b.on.Store(true)
		case <-ctx.Done():
		}
	}()
	return w.Run(ctx)
}

// paced is a backend whose steps take a time at least once it is on.
type paced struct {
	cellrt.Backend
	pace time.Duration
	on   atomic.Bool
}

func (p *paced) Load(program *cellrt.Program, slots int) (cellrt.Executable, error) {
	e, err := p.Backend.Load(program, slots)
	if err != nil {
		return nil, err
	}
	states, ok := e.(cellrt.States)
	if !ok {
		return nil, errors.New("the backend has no checkpoints")
	}
	return pacedExecutable{e, states, p}, nil
}

type pacedExecutable struct {
	cellrt.Executable
	cellrt.States
	backend *paced
}

func (e pacedExecutable) NewRunner() cellrt.Runner {
	return pacedRunner{e.Executable.NewRunner(), e.backend}
}

type pacedRunner struct {
	cellrt.Runner
	backend *paced
}

func (r pacedRunner) Run(c *cellrt.Cell, rows []cellrt.Row, out []cellrt.Output) int {
	if r.backend.on.Load() {
		<-time.After(r.backend.pace)
	}
	return r.Runner.Run(c, rows, out)
}
