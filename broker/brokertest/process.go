package brokertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// keptOutput is how much of a process's output is kept, bytes.
const keptOutput = 1 << 20

// Process is the test binary in a process of its own. It is safe for concurrent
// use.
type Process struct {
	cmd   *exec.Cmd
	stdin io.Closer     // its end tells the process that the test is gone
	done  chan struct{} // closed when it has ended
	err   error         // of its end, valid after done

	mu     sync.Mutex
	output bytes.Buffer  // the end of stdout and stderr together
	wrote  chan struct{} // closed and replaced when there is more output
}

// Start starts the test binary again, with arguments and with variables beside
// those of this process, which tell its TestMain what to be. The process is
// killed when the test ends; [ExitWithTest] makes it end also when the test
// itself is killed. What it wrote is shown when the test fails.
func Start(tb testing.TB, env []string, args ...string) *Process {
	tb.Helper()
	p, err := Launch(env, args...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			tb.Logf("process %d %v:\n%s", p.PID(), args, tail(p.Output()))
		}
	})
	return p
}

// Launch is Start for a process that the caller kills, for use beside the
// test's own goroutine.
func Launch(env []string, args ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(os.Args[0], args...), done: make(chan struct{}), wrote: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Write takes the output of the process.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if over := p.output.Len() + len(b) - keptOutput; over > 0 {
		p.output.Next(over)
	}
	p.output.Write(b)
	close(p.wrote)
	p.wrote = make(chan struct{})
	return len(b), nil
}

// Output is what the process wrote, the last MiB of it.
func (p *Process) Output() string {
	text, _ := p.look()
	return text
}

func (p *Process) look() (text string, more <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String(), p.wrote
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the process ended, nil for success. It is valid after Done.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Kill ends the process at once, without its doing, and waits for its end. It
// does nothing to one that has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
	_ = p.stdin.Close() // closed with the process
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// errEnded: the process ended before it said what was waited for.
var errEnded = errors.New("process ended")

// Says waits until the output contains text, and returns the rest of that line.
func (p *Process) Says(text string, within time.Duration) (string, error) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		output, more := p.look()
		if _, after, ok := strings.Cut(output, text); ok {
			if line, _, whole := strings.Cut(after, "\n"); whole {
				return line, nil
			}
		}
		select {
		case <-more:
		case <-p.done:
			if o, _ := p.look(); o != output {
				continue
			}
			return "", fmt.Errorf("wait for %q: %w: %w\n%s", text, errEnded, p.err, tail(output))
		case <-timeout.C:
			return "", fmt.Errorf("wait for %q: not within %v\n%s", text, within, tail(output))
		}
	}
}

// tail is the end of a long text.
func tail(s string) string {
	const most = 8 << 10
	if len(s) > most {
		return "[...]" + s[len(s)-most:]
	}
	return s
}

// ExitWithTest makes this process, which [Start] has started, exit when the
// test that started it is gone.
func ExitWithTest() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // nothing is ever written
		os.Exit(1)
	}()
}
