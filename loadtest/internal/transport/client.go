package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/cellmq/cellmq/broker"
)

// asker has a request answered and says when the first token has come.
type asker interface {
	ask(ctx context.Context, id string, tokens int, first func()) error
	close()
}

// result is what a client reports.
type result struct {
	Requests int
	Seconds  float64
	First    float64 // median milliseconds until the first token
}

// client asks as often as it can, first for a while that does not count.
func (r *role) client(ctx context.Context, out io.Writer) error {
	a, err := r.asker(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	var counting, ids atomic.Int64
	var mu sync.Mutex
	var firsts []time.Duration
	var all sync.WaitGroup
	errs := make([]error, r.Options.InFlight)
	for i := range r.Options.InFlight {
		all.Go(func() {
			for counting.Load() < 2 && run.Err() == nil {
				id := "ask" + strconv.FormatInt(1_000_000_000+ids.Add(1), 10)
				start, first := time.Now(), time.Duration(0)
				if err := a.ask(run, id, r.Options.Tokens, func() { first = time.Since(start) }); err != nil {
					if run.Err() == nil { // the first to fail
						errs[i] = err
					}
					cancel()
				} else if counting.Load() == 1 {
					mu.Lock()
					firsts = append(firsts, first)
					mu.Unlock()
				}
			}
		})
	}
	pause(run, r.Duration/4)
	if _, err := fmt.Fprintln(out, "begin"); err != nil {
		return err
	}
	counting.Store(1)
	start := time.Now()
	pause(run, r.Duration)
	mu.Lock()
	n, seconds := len(firsts), time.Since(start).Seconds()
	text, err := json.Marshal(result{Requests: n, Seconds: seconds, First: middle(slices.Clone(firsts))})
	mu.Unlock()
	if err == nil && run.Err() == nil {
		_, err = fmt.Fprintln(out, "end", string(text))
	}
	counting.Store(2)
	all.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	<-ctx.Done() // so that its processor time can be read
	return nil
}

func middle(times []time.Duration) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return float64(times[len(times)/2].Microseconds()) / 1000
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (r *role) asker(ctx context.Context) (asker, error) {
	if !r.CellMQ {
		return newPlainClient(r.URL, r)
	}
	nc, err := broker.Dial(ctx, r.URL, "loadtest", nil)
	if err != nil {
		return nil, err
	}
	c, err := broker.NewClient(nc, broker.ClientConfig{Name: "loadtest"})
	if err != nil {
		return nil, err
	}
	payload, err := msgpack.Marshal(map[string]any{
		"input": []int32{1}, "max_tokens": r.Options.Tokens, "prompt": make([]byte, r.Options.Prompt),
	})
	return &cellmqClient{client: c, payload: payload, realtime: !r.Durable, done: nc.Close}, err
}

// cellmqClient asks a worker of cellmq.
type cellmqClient struct {
	client   *broker.Client
	payload  []byte
	realtime bool
	done     func()
}

func (c *cellmqClient) close() {
	_ = c.client.Close() // the connection ends with it
	c.done()
}

func (c *cellmqClient) ask(ctx context.Context, id string, tokens int, first func()) error {
	s, err := c.client.Request(ctx, modelName, broker.RequestOptions{
		ID: id, Payload: c.payload, ContentType: broker.TypeMsgPack, Realtime: c.realtime,
	})
	if err != nil {
		return err
	}
	n := 0
	for f, err := range s.Frames() {
		switch {
		case err != nil:
			return err
		case f.Type == broker.FrameToken:
			if n == 0 {
				first()
			}
			n += len(f.Tokens)
		case f.Type == broker.FrameFinal && (n != tokens || len(f.Tokens) != tokens):
			return fmt.Errorf("%d and %d tokens, %d wanted", n, len(f.Tokens), tokens)
		}
	}
	return nil
}
