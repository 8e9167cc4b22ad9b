package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/cellmq/cellmq/broker"
)

// board shows several token streams that run at the same time. On a terminal
// each has a line that grows; elsewhere every frame adds a line.
type board struct {
	out   io.Writer
	live  bool // redraw lines in place
	width int  // columns of a line when live
	label int  // columns of the inputs

	mu     sync.Mutex
	inputs []string
	texts  []string
	err    error // the first failure to write
}

// newBoard returns a board for inputs and, on a terminal, draws it.
func newBoard(out io.Writer, inputs []string) *board {
	b := &board{out: out, inputs: inputs, texts: make([]string, len(inputs))}
	for _, in := range inputs {
		b.label = max(b.label, min(utf8.RuneCountInString(in), 32))
	}
	if f, ok := out.(interface{ Fd() uintptr }); ok && isTerminal(out) {
		width, height, err := term.GetSize(int(f.Fd()))
		// A board taller than the screen cannot be redrawn.
		if err == nil && height > len(inputs)+2 && width > b.label+20 {
			b.live, b.width = true, width
			for i := range inputs {
				b.print(b.line(i) + "\n")
			}
		}
	}
	return b
}

// show adds a frame to the stream of input i.
func (b *board) show(i int, f *broker.Frame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch f.Type {
	case broker.FrameToken:
		b.texts[i] += f.Text
	case broker.FrameFinal:
		b.texts[i] = fmt.Sprintf("%s  (%d tokens, %s, %d ms)", f.Text, len(f.Tokens),
			f.Final.FinishReason, f.Final.Timing.Total.Milliseconds())
	default:
		return
	}
	b.draw(i)
}

// fail ends the stream of input i with an error.
func (b *board) fail(i int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.texts[i] = "failed: " + explain(err)
	b.draw(i)
}

// draw brings line i up to date. The caller holds the lock.
func (b *board) draw(i int) {
	if !b.live {
		b.print(b.line(i) + "\n")
		return
	}
	up := len(b.inputs) - i
	b.print(fmt.Sprintf("\x1b[%dA\r%s\x1b[K\x1b[%dB\r", up, b.line(i), up))
}

// line is the text of line i, cut to the screen's width when live.
func (b *board) line(i int) string {
	input := b.inputs[i]
	if runes := []rune(input); len(runes) > b.label {
		input = string(runes[:b.label-1]) + "…"
	}
	line := "  " + input + strings.Repeat(" ", b.label-utf8.RuneCountInString(input)) + "  " + b.texts[i]
	if runes := []rune(line); b.live && len(runes) >= b.width {
		line = string(runes[:b.width-1])
	}
	return line
}

func (b *board) print(s string) {
	if _, err := io.WriteString(b.out, s); err != nil && b.err == nil {
		b.err = fmt.Errorf("%w: %w", errWrite, err)
	}
}
