package alternative

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/ask"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// The codes of requests that failed.
const (
	// CodeRefused: the server answered with an error.
	CodeRefused = "refused"
	// CodeLost: the connection ended first.
	CodeLost = "connection_lost"
)

// longest bounds a message of a server.
const longest = 1 << 20

// question and answer are the messages.
type question struct {
	ID        uint64 `json:"id"`
	Input     string `json:"input"`
	MaxTokens int    `json:"max_tokens,omitempty"`
}

type answer struct {
	ID           uint64  `json:"id"`
	Error        string  `json:"error"`
	Text         *string `json:"text"`
	Label        *string `json:"label"`
	InputTokens  int     `json:"input_tokens"`
	OutputTokens int     `json:"output_tokens"`
}

// value is what was answered: a label or a text.
func (a *answer) value() string {
	switch {
	case a.Label != nil:
		return *a.Label
	case a.Text != nil:
		return *a.Text
	}
	return ""
}

// flight is a request under way. Its outcome points to its request.
type flight struct {
	ask.Outcome
	request workload.Request
	line    *line
	done    func(*ask.Outcome)
	answer  answer
}

// line is a connection and what is under way on it.
type line struct {
	conn   net.Conn
	flying int
	closed bool
}

// Client sends requests to servers, each to the one with the fewest under way. Ask
// belongs to one goroutine; the rest is safe for concurrent use.
type Client struct {
	patience time.Duration
	readers  sync.WaitGroup
	out      []byte

	mu      sync.Mutex
	lines   []*line
	flights map[uint64]*flight
	next    uint64
	counts  ask.Counts
}

// Dial connects to servers. The caller closes the client.
func Dial(ctx context.Context, addresses []string, patience time.Duration) (*Client, error) {
	if len(addresses) == 0 {
		return nil, errors.New("connect: no address")
	}
	if patience <= 0 {
		return nil, fmt.Errorf("patience %v: not positive", patience)
	}
	c := &Client{patience: patience, flights: map[uint64]*flight{}}
	for _, address := range addresses {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect: %w", err), c.Close())
		}
		l := &line{conn: conn}
		c.lines = append(c.lines, l)
		c.readers.Go(func() { c.read(l) })
	}
	return c, nil
}

// Close ends the connections. Requests under way end with [CodeLost].
func (c *Client) Close() error {
	var errs []error
	for _, l := range c.lines {
		if err := l.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	c.readers.Wait()
	return errors.Join(errs...)
}

// Ask sends a request that was due at a time. done is told how it ends, by
// another goroutine that holds a lock: it must be short, must not call the client,
// and must not keep the outcome. After an error nothing was sent, and done is not
// called. Requests are texts that are answered as a whole; what else a request
// wants is left out.
func (c *Client) Ask(r *workload.Request, due time.Time, done func(*ask.Outcome)) error {
	if r.Input.IsIDs {
		return errors.New("request: token ids, want a text")
	}
	f := &flight{request: *r, done: done}
	f.Outcome = ask.Outcome{Request: &f.request, Due: due, Sent: time.Now()}
	return c.send(f)
}

func (c *Client) send(f *flight) error {
	number, err := c.add(f)
	if err != nil {
		return err
	}
	payload, err := json.Marshal(question{ID: number, Input: f.request.Input.Text, MaxTokens: f.request.MaxTokens})
	if err == nil {
		c.out = append(binary.BigEndian.AppendUint32(c.out[:0], uint32(len(payload))), payload...)
		_, err = f.line.conn.Write(c.out)
	}
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights[number] == nil {
		return nil // its end was told when the connection ended
	}
	delete(c.flights, number)
	f.line.flying--
	return fmt.Errorf("send request: %w", err)
}

// add chooses a line for a request and gives it a number.
func (c *Client) add(f *flight) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lines {
		if !l.closed && (f.line == nil || l.flying < f.line.flying) {
			f.line = l
		}
	}
	if f.line == nil {
		return 0, errors.New("send request: all connections have ended")
	}
	f.line.flying++
	number := c.next
	c.next++
	c.flights[number] = f
	return number, nil
}

// read takes the answers of a line until it ends.
func (c *Client) read(l *line) {
	in := bufio.NewReaderSize(l.conn, 1<<16)
	var payload []byte
	for {
		var size [4]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			break
		}
		n := binary.BigEndian.Uint32(size[:])
		if n > longest {
			c.malformed()
			break
		}
		payload = append(payload[:0], make([]byte, n)...)
		if _, err := io.ReadFull(in, payload); err != nil {
			break
		}
		var a answer
		if json.Unmarshal(payload, &a) != nil {
			c.malformed()
			continue
		}
		c.take(&a, time.Now())
	}
	_ = l.conn.Close() // it has ended, or is of no use
	c.lose(l)
}

func (c *Client) malformed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Malformed++
}

// take ends the request that was answered at now.
func (c *Client) take(a *answer, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.flights[a.ID]
	if f == nil {
		if a.ID < c.next {
			c.counts.Duplicates++
		} else {
			c.counts.Malformed++
		}
		return
	}
	f.answer = *a
	f.Input, f.Output = a.InputTokens, a.OutputTokens
	if a.Error != "" {
		f.Code = CodeRefused
	} else if a.Text != nil {
		f.First = now // the whole text came at once
	}
	c.end(a.ID, f, now)
}

// lose ends the requests of a line that has ended.
func (c *Client) lose(l *line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.closed = true
	for number, f := range c.flights {
		if f.line == l {
			f.Code = CodeLost
			c.end(number, f, time.Now())
		}
	}
}

func (c *Client) end(number uint64, f *flight, now time.Time) {
	delete(c.flights, number)
	f.line.flying--
	f.End = now
	f.done(&f.Outcome)
}

// Expire ends the requests whose patience has run out at now, all of them if now
// is zero. Their answers count as duplicates when they come after all.
func (c *Client) Expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for number, f := range c.flights {
		if now.IsZero() || now.Sub(f.Sent) >= c.patience {
			f.Code = ask.CodeTimeout
			c.end(number, f, f.Sent.Add(c.patience))
		}
	}
}

// InFlight is the number of requests under way.
func (c *Client) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.flights)
}

// Counts returns what the client saw.
func (c *Client) Counts() ask.Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Value sends a request and waits for its answer: a label or a text. No other
// goroutine may send meanwhile.
func (c *Client) Value(ctx context.Context, r *workload.Request) (string, error) {
	ended := make(chan struct{})
	f := &flight{request: *r, done: func(*ask.Outcome) { close(ended) }}
	f.Outcome = ask.Outcome{Request: &f.request, Sent: time.Now()}
	if err := c.send(f); err != nil {
		return "", err
	}
	select {
	case <-ended:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if f.Code != "" {
		return "", fmt.Errorf("%s: %s", f.Code, f.answer.Error)
	}
	return f.answer.value(), nil
}
