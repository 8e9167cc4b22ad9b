package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// errWrite is wrapped by failures to write output: there is no use in going on.
var errWrite = errors.New("write output")

// printer writes what many requests produce in the order of their places: the
// first open one writes through, the others are kept until it is their turn. On
// a terminal the first one may show a draft of what it will write.
type printer struct {
	out    io.Writer
	window chan struct{} // bounds the places between the first and the last open one
	width  int           // columns of the terminal; 0 when there is none

	mu     sync.Mutex
	places []*place // open ones, in order
	drawn  bool     // a draft stands in the last line
}

// place is where one request's output goes. Its methods are for one goroutine.
type place struct {
	printer *printer
	kept    strings.Builder
	ended   bool
}

// newPrinter returns a printer with at most window places open.
func newPrinter(out io.Writer, window int) *printer {
	p := &printer{out: out, window: make(chan struct{}, window)}
	if isTerminal(out) {
		p.width, _ = terminalSize(out)
	}
	return p
}

// place opens the next place, waiting while too many are open.
func (p *printer) place(ctx context.Context) (*place, error) {
	select {
	case p.window <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	pl := &place{printer: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.places = append(p.places, pl)
	return pl, nil
}

// write adds text to the place's output.
func (pl *place) write(text string) error {
	p := pl.printer
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.places[0] != pl {
		pl.kept.WriteString(text)
		return nil
	}
	return p.flush(text)
}

// draft shows a text in place of the draft before, until the next write. It is
// seen on a terminal by the first open place only, its end where it is long.
func (pl *place) draft(text string) error {
	p := pl.printer
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.width == 0 || p.places[0] != pl {
		return nil
	}
	err := p.flush(ending(oneLine(text), p.width-1))
	p.drawn = true
	return err
}

// clear takes a draft off the screen, to make room for a message.
func (p *printer) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		p.drawn = false
		_, _ = io.WriteString(p.out, eraseLine) // decoration
	}
}

// end closes the place after some last text, and lets the ones behind it
// write.
func (pl *place) end(text string) error {
	p := pl.printer
	p.mu.Lock()
	defer p.mu.Unlock()
	pl.kept.WriteString(text)
	pl.ended = true
	for len(p.places) > 0 && (p.places[0].ended || p.places[0].kept.Len() > 0) {
		head := p.places[0]
		err := p.flush(head.kept.String())
		head.kept.Reset()
		if err != nil {
			return err
		}
		if !head.ended {
			return nil
		}
		p.places[0] = nil
		p.places = p.places[1:]
		<-p.window
	}
	return nil
}

func (p *printer) flush(text string) error {
	if p.drawn {
		text, p.drawn = eraseLine+text, false
	}
	if text == "" {
		return nil
	}
	if _, err := io.WriteString(p.out, text); err != nil {
		return fmt.Errorf("%w: %w", errWrite, err)
	}
	return nil
}
