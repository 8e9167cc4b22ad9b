package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cellmq/cellmq/broker"
)

const (
	// maxLine bounds an input line, bytes.
	maxLine = 8 << 20
	// silence is how long a request stays without a frame before the user is
	// told that nobody has taken it.
	silence = 3 * time.Second
)

// dispatch sends inputs, a bounded number at a time, and prints their frames
// in the order of the inputs.
type dispatch struct {
	options *requestOptions
	client  *broker.Client
	streams streams
	printer *printer
	bar     *progressBar
	waiting sync.Once // the hint about silence is given once

	mu     sync.Mutex // also held while writing to stderr
	failed int
}

func newDispatch(o *requestOptions, client *broker.Client, s streams) *dispatch {
	return &dispatch{
		options: o, client: client, streams: s,
		// Outputs that wait for an earlier one are bounded as requests are.
		printer: newPrinter(s.out, 4*o.concurrency),
		bar:     newProgressBar(s),
	}
}

// run sends the inputs, or the lines of stdin when there are none.
func (d *dispatch) run(ctx context.Context, inputs []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var requests sync.WaitGroup
	slots := make(chan struct{}, d.options.concurrency)
	total := 0
	err := eachInput(ctx, d.streams.in, inputs, func(input string) error {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		place, err := d.printer.place(ctx)
		if err != nil {
			return err
		}
		total++
		number := total
		d.bar.started()
		requests.Go(func() {
			defer func() { <-slots }()
			if err := d.one(ctx, input, number, place); err != nil {
				cancel(err)
			}
		})
		return nil
	})
	requests.Wait()
	d.bar.clear()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return failure(d.failed, total)
}

// one sends one input and prints what comes back. Its error is one that ends
// the whole call; a request that fails is reported and counted.
func (d *dispatch) one(ctx context.Context, input string, number int, place *place) error {
	err := d.exchange(ctx, input, place)
	switch {
	case err == nil:
	case ctx.Err() != nil, errors.Is(err, errWrite):
		return err // cancel keeps the first one
	default:
		if err := d.report(number, err); err != nil {
			return err
		}
	}
	d.bar.ended()
	line := "\n"
	if d.options.json {
		line = ""
	}
	return place.end(line)
}

// exchange sends one input and prints its frames.
func (d *dispatch) exchange(ctx context.Context, input string, place *place) error {
	if d.options.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.options.timeout)
		defer cancel()
	}
	stream, err := d.client.Request(ctx, d.options.model, d.options.options(input))
	if err != nil {
		return err
	}
	hint := time.AfterFunc(silence, func() { d.hint(stream.Sequence() > 0) })
	defer hint.Stop()
	var cut error
	// Somebody sees a terminal; a pipe wants whole outputs and nothing else.
	output := &textOutput{whole: d.options.decoding.beam > 1 || !isTerminal(d.streams.out)}
	for frame, err := range stream.Frames() {
		hint.Stop()
		if d.options.json && frame.Type != "" {
			if werr := printJSON(place, &frame); werr != nil {
				return werr
			}
		}
		if err != nil {
			return err
		}
		cut = cutShort(&frame)
		if d.options.json {
			continue
		}
		if frame.Provisional {
			output.whole = true
			err = place.draft(frame.Text)
		} else {
			err = place.write(output.add(&frame))
		}
		if err != nil {
			return err
		}
	}
	return cut
}

// report counts a request that failed and says why.
func (d *dispatch) report(number int, cause error) error {
	d.bar.clear()
	d.printer.clear()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed++
	_, err := fmt.Fprintf(d.streams.err, "cellmq: request %d: %s\n", number, explain(cause))
	return err
}

// hint tells the user, once, why nothing happens. A request is queued when its
// receipt has come.
func (d *dispatch) hint(queued bool) {
	why := "no worker has answered yet"
	switch {
	case queued:
		why = "the request is queued, no worker has taken it yet"
	case !d.options.realtime:
		why = "no receipt of the request yet, it is sent again"
	}
	d.waiting.Do(func() {
		d.bar.clear()
		d.mu.Lock()
		defer d.mu.Unlock()
		_, _ = fmt.Fprintf(d.streams.err, "cellmq: %s (is a worker running? start one with 'cellmq worker')\n", why) // advice only
	})
}

func printJSON(place *place, frame *broker.Frame) error {
	line, err := broker.AppendFrame(nil, broker.JSON, frame)
	if err != nil {
		return err
	}
	return place.write(string(line) + "\n")
}

// cutShort says that a request ended before the model was done, which a script
// must be able to tell from a whole output.
func cutShort(f *broker.Frame) error {
	if f.Final == nil {
		return nil
	}
	switch reason := f.Final.FinishReason; reason {
	case broker.FinishCancelled, broker.FinishDeadline, broker.FinishClientGone:
		return fmt.Errorf("ended early: %s", reason)
	default:
		return nil
	}
}

// eachInput calls send for every input: those given, else the lines of in.
func eachInput(ctx context.Context, in io.Reader, inputs []string, send func(string) error) error {
	for _, input := range inputs {
		if err := send(input); err != nil {
			return err
		}
	}
	if len(inputs) > 0 {
		return nil
	}
	lines := readLines(ctx, in)
	for {
		select {
		case l, more := <-lines:
			if !more {
				return nil
			}
			if l.err != nil {
				return fmt.Errorf("read stdin: %w", l.err)
			}
			if err := send(l.text); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// line is a line of input, or why there are no more.
type line struct {
	text string
	err  error
}

// readLines reads in until its end, an error or the end of ctx. A read that
// waits for a terminal cannot be called off: the goroutine then stays until the
// process ends.
func readLines(ctx context.Context, in io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(make([]byte, 0, 64<<10), maxLine)
		post := func(l line) bool {
			select {
			case lines <- l:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for scanner.Scan() {
			if !post(line{text: scanner.Text()}) {
				return
			}
		}
		if err := scanner.Err(); err != nil {
			post(line{err: err})
		}
	}()
	return lines
}
