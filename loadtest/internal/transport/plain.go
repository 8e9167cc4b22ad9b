package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/vmihailenco/msgpack/v5"
)

// The plain system's subjects.
const (
	plainRequests = "plain.req"
	plainRealtime = "plain.rt"
	plainReplies  = "plain.out."
)

// plainRequest is a request of the plain system.
type plainRequest struct {
	_msgpack struct{} `msgpack:",as_array"` //nolint:unused // tells the encoder
	ID       string
	Prompt   []byte
}

// plainFrame is a frame of the plain system: a token, or the whole output.
type plainFrame struct {
	_msgpack struct{} `msgpack:",as_array"` //nolint:unused // tells the encoder
	Last     bool
	ID       string
	Seq      int
	Attempt  int
	Tokens   []int32
	Text     string
}

// plainRun is a request under way in the plain worker.
type plainRun struct {
	reply, id string
	ack       func() error
	tokens    []int32
}

// plainWorker answers requests until ctx ends.
func (r *role) plainWorker(ctx context.Context, out io.Writer) error {
	nc, err := nats.Connect(r.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	coming := make(chan plainRun, r.Options.Slots)
	stop, err := r.take(ctx, nc, coming)
	if err != nil {
		return err
	}
	defer stop()
	if err := nc.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	var runs []plainRun
	for {
		if len(runs) == 0 {
			select {
			case run := <-coming:
				runs = append(runs, run)
			case <-ctx.Done():
				return nil
			}
		}
		for full := false; len(runs) < r.Options.Slots && !full; {
			select {
			case run := <-coming:
				runs = append(runs, run)
			default:
				full = true
			}
		}
		if runs, err = r.step(nc, runs); err != nil {
			return err
		}
	}
}

// take has requests sent to coming.
func (r *role) take(ctx context.Context, nc *nats.Conn, coming chan<- plainRun) (stop func(), err error) {
	if !r.Durable {
		sub, err := nc.QueueSubscribe(plainRealtime, "w", func(m *nats.Msg) {
			var q plainRequest
			if msgpack.Unmarshal(m.Data, &q) == nil {
				coming <- plainRun{reply: m.Reply, id: q.ID}
			}
		})
		if err != nil {
			return nil, err
		}
		return func() { _ = sub.Unsubscribe() }, nil // the connection ends with it
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "PLAIN", Subjects: []string{plainRequests}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return nil, err
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "w", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		return nil, err
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		var q plainRequest
		if msgpack.Unmarshal(m.Data(), &q) == nil {
			coming <- plainRun{reply: plainReplies + q.ID, id: q.ID, ack: m.Ack}
		}
	}, jetstream.PullMaxMessages(r.Options.Slots), jetstream.PullHeartbeat(time.Second), jetstream.PullExpiry(5*time.Second))
	if err != nil {
		return nil, err
	}
	return consuming.Stop, nil
}

// step gives each run a token, ends those that have all, and returns the
// others.
func (r *role) step(nc *nats.Conn, runs []plainRun) ([]plainRun, error) {
	left := runs[:0]
	for _, run := range runs {
		n := len(run.tokens)
		run.tokens = append(run.tokens, 0)
		f := plainFrame{ID: run.id, Seq: n, Attempt: 1, Tokens: run.tokens[n:], Text: " 0"}
		if err := send(nc, run.reply, &f); err != nil {
			return nil, err
		}
		if n+1 < r.Options.Tokens {
			left = append(left, run)
			continue
		}
		f = plainFrame{Last: true, ID: run.id, Seq: n + 1, Attempt: 1, Tokens: run.tokens, Text: strings.Repeat(" 0", n+1)}
		if err := send(nc, run.reply, &f); err != nil {
			return nil, err
		}
		if run.ack != nil {
			if err := run.ack(); err != nil {
				return nil, err
			}
		}
	}
	return left, nil
}

func send(nc *nats.Conn, subject string, f *plainFrame) error {
	b, err := msgpack.Marshal(f)
	if err != nil {
		return err
	}
	return nc.Publish(subject, b)
}

// plainClient asks the plain worker.
type plainClient struct {
	nc      *nats.Conn
	js      jetstream.JetStream // nil: the core path
	prompt  []byte
	mu      sync.Mutex
	waiting map[string]chan plainFrame
}

func newPlainClient(url string, r *role) (*plainClient, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	c := &plainClient{nc: nc, prompt: make([]byte, r.Options.Prompt), waiting: map[string]chan plainFrame{}}
	_, err = nc.Subscribe(plainReplies+"*", func(m *nats.Msg) {
		var f plainFrame
		if msgpack.Unmarshal(m.Data, &f) != nil {
			return
		}
		c.mu.Lock()
		frames := c.waiting[f.ID]
		c.mu.Unlock()
		if frames != nil {
			frames <- f // it has room for all
		}
	})
	if err == nil && r.Durable {
		c.js, err = jetstream.New(nc)
	}
	return c, err
}

func (c *plainClient) close() { c.nc.Close() }

func (c *plainClient) ask(ctx context.Context, id string, tokens int, first func()) error {
	b, err := msgpack.Marshal(&plainRequest{ID: id, Prompt: c.prompt})
	if err != nil {
		return err
	}
	frames := make(chan plainFrame, tokens+1)
	c.mu.Lock()
	c.waiting[id] = frames
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()
	if c.js != nil {
		_, err = c.js.Publish(ctx, plainRequests, b)
	} else {
		err = c.nc.PublishRequest(plainRealtime, plainReplies+id, b)
	}
	if err != nil {
		return err
	}
	for n := 0; ; {
		select {
		case f := <-frames:
			if n == 0 {
				first()
			}
			if !f.Last {
				n++
				continue
			}
			if n != tokens || len(f.Tokens) != tokens {
				return fmt.Errorf("%d frames and %d tokens, %d wanted", n, len(f.Tokens), tokens)
			}
			return nil
		case <-ctx.Done():
			return errors.Join(errNoAnswer, context.Cause(ctx))
		}
	}
}
