package target

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// How long a worker may take to start, and to end.
const (
	startWait = time.Minute
	stopWait  = 10 * time.Second
)

// Options describe a worker to start.
type Options struct {
	// Program is the path of the cellmq program. Empty: it is built.
	Program string
	// Args follow "worker" on its command line.
	Args []string
}

// Worker is a worker in a process of its own.
type Worker struct {
	// URL of its embedded server, and the address of its admin server.
	URL, Admin string

	cmd   *exec.Cmd
	dir   string
	lines chan string // of what it logs, until it serves
	ended chan struct{}
	mu    sync.Mutex
	last  []string // of what it logged
}

// Start starts a worker and returns when it serves. The caller stops it.
func Start(ctx context.Context, o Options) (w *Worker, err error) {
	dir, err := os.MkdirTemp("", "cellmq-load-")
	if err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	w = &Worker{dir: dir, lines: make(chan string, 64), ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start worker: %w", err), w.Stop())
			w = nil
		}
	}()
	if o.Program == "" {
		o.Program = filepath.Join(dir, "cellmq")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.Program, "github.com/cellmq/cellmq")
		if out, err := build.CombinedOutput(); err != nil {
			return w, fmt.Errorf("build cellmq: %w: %s", err, out)
		}
	}
	if w.Admin, err = freeAddress(ctx); err != nil {
		return w, err
	}
	args := append([]string{"worker", "--port", "0", "--data-dir", filepath.Join(dir, "streams"), "--admin", w.Admin}, o.Args...)
	if err := w.launch(o.Program, args); err != nil {
		return w, err
	}
	return w, w.await(ctx)
}

// freeAddress returns an address that was free a moment ago.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

func (w *Worker) launch(program string, args []string) error {
	cmd := exec.Command(program, args...)
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		return err
	}
	w.cmd = cmd
	go func() {
		_ = cmd.Wait() // how it ended shows in what it logged
		_ = write.Close()
		close(w.ended)
	}()
	go w.read(read)
	return nil
}

// read keeps the last lines of the log, and passes lines on while they are
// wanted.
func (w *Worker) read(log io.Reader) {
	defer close(w.lines)
	scan := bufio.NewScanner(log)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		w.mu.Lock()
		w.last = append(w.last[max(0, len(w.last)-10):], scan.Text())
		w.mu.Unlock()
		select {
		case w.lines <- scan.Text():
		default: // it serves, and nobody reads any more
		}
	}
	_, _ = io.Copy(io.Discard, log) // after a line that is too long
}

// await returns when the worker serves.
func (w *Worker) await(ctx context.Context) error {
	timeout := time.NewTimer(startWait)
	defer timeout.Stop()
	for {
		select {
		case line, ok := <-w.lines:
			if !ok {
				w.mu.Lock()
				defer w.mu.Unlock()
				return fmt.Errorf("it ended: %s", strings.Join(w.last, "\n"))
			}
			if strings.Contains(line, "embedded server started") {
				w.URL = attribute(line, "url=")
			}
			if strings.Contains(line, "msg=serving") {
				return nil
			}
		case <-timeout.C:
			return errors.New("it does not serve")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// attribute returns the value of an attribute in a line of the log.
func attribute(line, name string) string {
	_, rest, _ := strings.Cut(line, " "+name)
	value, _, _ := strings.Cut(rest, " ")
	return strings.Trim(value, `"`)
}

// ID is that of the worker's process.
func (w *Worker) ID() int { return w.cmd.Process.Pid }

// Stop ends the worker, by force if it must, and removes its files.
func (w *Worker) Stop() error {
	if w.cmd != nil {
		_ = w.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		timeout := time.NewTimer(stopWait)
		defer timeout.Stop()
		select {
		case <-w.ended:
		case <-timeout.C:
			_ = w.cmd.Process.Kill()
			<-w.ended
		}
	}
	return os.RemoveAll(w.dir)
}
