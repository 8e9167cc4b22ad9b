package alternative

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// How long a server may take to start, and to end once its input has ended.
const (
	startWait = 3 * time.Minute
	stopWait  = 10 * time.Second
)

// Server is a server in processes of their own.
type Server struct {
	// Addresses of the processes, and their ids.
	Addresses []string
	IDs       []int

	inputs []io.Closer
	ends   []chan struct{}
	kills  []func() error
}

// Start starts a command so many times, and returns when all have said where they
// listen: the line "listening ADDRESS". Each gets env beside the environment, and
// is to end with its standard input. The caller stops the server.
func Start(ctx context.Context, command, env []string, processes int) (_ *Server, err error) {
	s := &Server{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start %s: %w", command[0], err), s.Stop())
		}
	}()
	lines := make([]chan string, processes)
	for i := range processes {
		if lines[i], err = s.launch(command, env); err != nil {
			return s, err
		}
	}
	timeout := time.NewTimer(startWait)
	defer timeout.Stop()
	for i := range lines {
		select {
		case line := <-lines[i]:
			address, ok := strings.CutPrefix(line, "listening ")
			if !ok {
				return s, fmt.Errorf("it does not say where it listens, but %q", line)
			}
			s.Addresses = append(s.Addresses, address)
		case <-timeout.C:
			return s, errors.New("it does not say where it listens")
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
	return s, nil
}

// launch starts one process. Its first line comes on the channel, empty if there
// is none.
func (s *Server) launch(command, env []string) (chan string, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	first, ended := make(chan string, 1), make(chan struct{}) // room for the line, so that nobody has to take it
	s.IDs = append(s.IDs, cmd.Process.Pid)
	s.inputs, s.ends, s.kills = append(s.inputs, in), append(s.ends, ended), append(s.kills, cmd.Process.Kill)
	go func() {
		defer close(ended)
		read := bufio.NewReader(out)
		line, _ := read.ReadString('\n') // an end shows in the line
		first <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, read)
		_ = cmd.Wait() // nothing depends on how it ended
	}()
	return first, nil
}

// Stop ends the processes, by force if it must.
func (s *Server) Stop() error {
	for _, in := range s.inputs {
		_ = in.Close() // it is gone, or reads the end
	}
	timeout := time.NewTimer(stopWait)
	defer timeout.Stop()
	var errs []error
	for i, ended := range s.ends {
		select {
		case <-ended:
		case <-timeout.C:
			timeout.Reset(0)
			errs = append(errs, s.kills[i]())
			<-ended
		}
	}
	return errors.Join(errs...)
}
