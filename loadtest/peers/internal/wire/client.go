package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// Client is a library's process as the comparison sees it. It is used by one
// goroutine.
type Client struct {
	hello   Hello
	process *exec.Cmd
	stdin   io.WriteCloser
	out     *json.Encoder
	in      *json.Decoder
}

// Start starts a process with the given environment and reads its hello. What
// the process says about errors goes to stderr. Ending ctx kills it. A process that ends without a
// hello is a library that is not available.
func Start(ctx context.Context, stderr io.Writer, env []string, command string, args ...string) (*Client, error) {
	process := exec.CommandContext(ctx, command, args...)
	process.Env = env
	process.Stderr = stderr
	stdin, err := process.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	c := &Client{process: process, stdin: stdin, out: json.NewEncoder(stdin), in: json.NewDecoder(stdout)}
	if err := process.Start(); err != nil {
		return unavailable(err), nil
	}
	if err := c.in.Decode(&c.hello); err != nil {
		status := c.end()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return unavailable(fmt.Errorf("the process ended without a word: %w", errors.Join(status, err))), nil
	}
	return c, nil
}

// unavailable returns a client without a process.
func unavailable(why error) *Client { return &Client{hello: Hello{Unavailable: why.Error()}} }

// Hello returns what the library said of itself.
func (c *Client) Hello() Hello { return c.hello }

// Results returns the results of a case at the given places, and how the
// library computes it if it says so.
func (c *Client) Results(of workload.Case, at []int) (values []float32, detail string, err error) {
	r, err := c.ask(Request{Case: of, At: at})
	if err != nil {
		return nil, "", err
	}
	if len(r.Values) != 4*len(at) {
		return nil, "", fmt.Errorf("%d bytes for %d results", len(r.Values), len(at))
	}
	return unpack(r.Values), r.Detail, nil
}

// Times measures a case for about d.
func (c *Client) Times(of workload.Case, d time.Duration) (Response, error) {
	return c.ask(Request{Case: of, Duration: d.Nanoseconds()})
}

func (c *Client) ask(r Request) (Response, error) {
	if err := c.out.Encode(r); err != nil {
		return Response{}, fmt.Errorf("ask %s: %w", c.hello.Library, err)
	}
	var response Response
	if err := c.in.Decode(&response); err != nil {
		return Response{}, fmt.Errorf("answer of %s: %w", c.hello.Library, err)
	}
	return response, response.err()
}

// Close ends the process and waits for it.
func (c *Client) Close() error {
	if c.process == nil {
		return nil
	}
	return c.end()
}

func (c *Client) end() error {
	return errors.Join(c.stdin.Close(), c.process.Wait())
}
