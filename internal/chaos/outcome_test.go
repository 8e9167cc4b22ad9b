//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// outcome is what a client saw of a request.
type outcome struct {
	terminal  int
	final     broker.Frame
	err       error
	text      strings.Builder         // the streamed text that is not provisional
	tokens    []int32                 // and its tokens
	logProbs  [][]broker.TokenLogProb // of them; nil where none came
	misplaced int                     // frames whose index was not the number of tokens so far
	retold    int                     // how often it was sent or read again by the client's own doing
}

// sender is a client and its connection.
type sender struct {
	nc     *nats.Conn
	client *broker.Client
}

// repeat publishes a request that is stored a second time.
func (c *sender) repeat(a *ask) {
	m := nats.NewMsg("infer.req." + a.model + "." + string(a.options.Priority) + "." + c.client.Name())
	m.Header.Set(broker.HeaderID, a.options.ID)
	m.Header.Set(broker.HeaderContentType, a.options.ContentType)
	m.Header.Set(broker.HeaderMode, string(a.options.Mode))
	m.Data = a.options.Payload
	_ = c.nc.PublishMsg(m) // nobody misses it
}

// read takes a stream to its end and shows every frame to look, if there is
// one. What the outcome had before, of another stream of the same request, is
// forgotten.
func (o *outcome) read(s *broker.Stream, look func(*broker.Frame)) error {
	o.text.Reset()
	o.tokens, o.logProbs = nil, nil
	for f, err := range s.Frames() {
		if err != nil && f.Type != broker.FrameError {
			return err
		}
		if look != nil {
			look(&f)
		}
		switch {
		case f.Type.Terminal():
			o.terminal++
			o.final = f
			if err != nil {
				return err
			}
		case f.Type == broker.FrameToken && !f.Provisional:
			if f.Index != len(o.tokens) {
				o.misplaced++
			}
			o.text.WriteString(f.Text)
			o.tokens = append(o.tokens, f.Tokens...)
			o.logProbs = append(o.logProbs, f.LogProbs...)
			for len(o.logProbs) < len(o.tokens) {
				o.logProbs = append(o.logProbs, nil)
			}
		}
	}
	return nil
}

// perform has a request answered, as an application would that wants its
// answer: it asks again while it is refused for reasons that pass, and reads what
// may have been stored without its knowing.
func (a *ask) perform(ctx context.Context, c *sender) *outcome {
	o := &outcome{}
	var look func(*broker.Frame)
	if a.twice {
		once := sync.OnceFunc(func() { c.repeat(a) })
		look = func(*broker.Frame) { once() }
	}
	pace := time.NewTicker(250 * time.Millisecond)
	defer pace.Stop()
	stored := false // perhaps
	for {
		s, err := a.open(ctx, c.client, stored)
		if err == nil {
			err = o.read(s, look)
		}
		var refused *broker.Error
		isError := errors.As(err, &refused)
		switch {
		case err == nil:
			return o
		case ctx.Err() != nil:
			o.err = errors.Join(context.Cause(ctx), err)
			return o
		case errors.Is(err, broker.ErrNoReceipt):
			stored = true
		case errors.Is(err, broker.ErrUnknownRequest):
			stored = false
		case isError && o.retold > 0 && strings.Contains(refused.Message, "in use by another request"):
			o.terminal--
			stored = true
		case isError && o.terminal == 0:
			o.err = err
			return o
		case isError && refusedBefore(refused):
			o.terminal--
		default:
			o.err = err
			return o
		}
		o.retold++
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
	}
}

// refusedBefore reports whether an error means that the request was not stored
// and may be later. A queue without a leader is busy. An unknown model is the word
// of the server or a worker that no stream captures it; the server's meta leader
// says it, and one that was killed and comes back may not know its streams yet.
func refusedBefore(e *broker.Error) bool {
	return e.Code == broker.CodeUnknownModel || e.Code == broker.CodeBusy || e.Code == broker.CodeQuotaExceeded
}

func (a *ask) open(ctx context.Context, c *broker.Client, stored bool) (*broker.Stream, error) {
	if stored {
		return c.Attach(ctx, a.options.ID, broker.AttachOptions{})
	}
	return c.Request(ctx, a.model, a.options)
}

// check compares what a client saw with itself: one terminal frame, and a
// stream that is the final's output.
func (o *outcome) check(mode broker.Mode) error {
	switch {
	case o.err != nil:
		return o.err
	case o.terminal != 1 || o.final.Type != broker.FrameFinal:
		return fmt.Errorf("%d terminal frames, the last %s", o.terminal, o.final.Type)
	case o.misplaced != 0:
		return fmt.Errorf("%d token frames with a gap or an overlap before them", o.misplaced)
	case mode != broker.ModeFinal && (o.text.String() != o.final.Text || !slices.Equal(o.tokens, o.final.Tokens)):
		return fmt.Errorf("streamed %q %v, final %q %v", o.text.String(), o.tokens, o.final.Text, o.final.Tokens)
	}
	return nil
}

// differs says how an outcome differs from the calm one. Log-probabilities of
// single tokens travel in token frames only, which may be lost; those that came
// are compared.
func (o *outcome) differs(calm *outcome) string {
	floats := cmpopts.EquateNaNs()
	a, b := o.final, calm.final
	diff := cmp.Diff(essence(&b), essence(&a), floats)
	for i, l := range o.logProbs {
		if l != nil && i < len(calm.logProbs) && calm.logProbs[i] != nil {
			diff += cmp.Diff(calm.logProbs[i], l, floats)
		}
	}
	return diff
}

// essence is what two answers of one request have in common.
func essence(f *broker.Frame) any {
	final := broker.Final{}
	if f.Final != nil {
		final = *f.Final
		final.Timing = broker.Timing{}
	}
	return struct {
		Text                   string
		Tokens                 []int32
		Model, Version, Digest string
		Final                  broker.Final
	}{f.Text, f.Tokens, f.Model, f.Version, f.Digest, final}
}
