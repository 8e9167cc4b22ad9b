package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// roleVariable makes a process one part of a measurement; its value is a role.
const roleVariable = "LOADTEST_TRANSPORT"

// startWait bounds the start of a process.
const startWait = time.Minute

// role is what a process is told to be.
type role struct {
	Part     string // server, worker or client
	URL      string // of the server, except for itself
	Dir      string // of the server's files
	CellMQ   bool   // for a client
	Durable  bool
	Options  Options
	Duration time.Duration
}

// Main makes this process a part of a measurement when [Measure] has started it
// for that, and then does not return. A program that measures begins with it.
func Main() {
	text := os.Getenv(roleVariable)
	if text == "" {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is the parent's word, or the parent's end
		cancel()
	}()
	var r role
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = r.run(ctx, os.Stdout)
	}
	if err != nil && ctx.Err() == nil {
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", r.Part, err) // nobody is left to tell
		os.Exit(1)
	}
	os.Exit(0)
}

func (r *role) run(ctx context.Context, out io.Writer) error {
	switch r.Part {
	case "server":
		return r.server(ctx, out)
	case "worker":
		return r.plainWorker(ctx, out)
	case "client":
		return r.client(ctx, out)
	}
	return fmt.Errorf("part %q: unknown", r.Part)
}

func (r *role) server(ctx context.Context, out io.Writer) error {
	s, err := broker.StartServer(ctx, broker.ServerConfig{DataDir: r.Dir, Port: broker.PortRandom})
	if err != nil {
		return err
	}
	defer s.Shutdown()
	if _, err := fmt.Fprintln(out, "ready", s.URL()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// process is a part of a measurement, seen from the parent.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string // of its output; closed at its end
	ended chan struct{}
	mu    sync.Mutex
	last  []string // of what it wrote
}

// startPart starts a part in a process of its own.
func startPart(r *role) (*process, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+string(text))
	return startProcess(cmd)
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, lines: make(chan string, 64), ended: make(chan struct{})}
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // how it ended shows in what is missing
		_ = write.Close()
		close(p.ended)
	}()
	go func() {
		defer close(p.lines)
		scan := bufio.NewScanner(read)
		for scan.Scan() {
			p.mu.Lock()
			p.last = append(p.last[max(0, len(p.last)-10):], scan.Text())
			p.mu.Unlock()
			select {
			case p.lines <- scan.Text():
			case <-p.ended: // nobody need wait for it any more
			}
		}
	}()
	return p, nil
}

// says waits for a line with a text and returns what follows it.
func (p *process) says(ctx context.Context, text string, within time.Duration) (string, error) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.mu.Lock()
				defer p.mu.Unlock()
				return "", fmt.Errorf("%v ended without %q: %s", p.cmd.Args, text, strings.Join(p.last, "\n"))
			}
			if _, rest, found := strings.Cut(line, text); found {
				return rest, nil
			}
		case <-timeout.C:
			return "", fmt.Errorf("%v does not say %q", p.cmd.Args, text)
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// stop ends the process, and kills it if it does not.
func (p *process) stop() {
	_ = p.stdin.Close() // it may have ended
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timeout := time.After(10 * time.Second)
	for {
		select {
		case <-p.lines: // so that it can write
		case <-p.ended:
			return
		case <-timeout:
			_ = p.cmd.Process.Kill()
			<-p.ended
			return
		}
	}
}

// errNoAnswer: a request had no answer in time.
var errNoAnswer = errors.New("no answer")
