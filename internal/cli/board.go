package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/cellmq/cellmq/broker"
)

// maxLabel bounds the columns of a board's labels.
const maxLabel = 40

// board shows several token streams that run at the same time, each after its
// label. On a terminal each has a line that changes; elsewhere every frame adds
// a line.
type board struct {
	out   io.Writer
	live  bool // redraw lines in place
	width int  // columns of a line when live
	label int  // columns of the labels

	mu     sync.Mutex
	labels []string
	texts  []string
	drafts []bool // the text is provisional
	err    error  // the first failure to write
}

// newBoard returns a board for labels and, on a terminal, draws it.
func newBoard(out io.Writer, labels []string) *board {
	b := &board{out: out, labels: labels, texts: make([]string, len(labels)), drafts: make([]bool, len(labels))}
	for _, l := range labels {
		b.label = max(b.label, min(utf8.RuneCountInString(l), maxLabel))
	}
	if isTerminal(out) {
		width, height := terminalSize(out)
		// A board taller than the screen cannot be redrawn.
		if height > len(labels)+2 && width > b.label+20 {
			b.live, b.width = true, width
			for i := range labels {
				b.print(b.line(i) + "\n")
			}
		}
	}
	return b
}

// show adds a frame to the stream of label i.
func (b *board) show(i int, f *broker.Frame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case f.Type == broker.FrameToken && (f.Provisional || b.drafts[i]):
		b.texts[i], b.drafts[i] = oneLine(f.Text), f.Provisional
	case f.Type == broker.FrameToken:
		b.texts[i] += oneLine(f.Text)
	case f.Type == broker.FrameFinal:
		b.texts[i] = ended(f)
	default:
		return
	}
	b.draw(i)
}

// ended is what the board shows of a final frame.
func ended(f *broker.Frame) string {
	ms := f.Final.Timing.Total.Milliseconds()
	if f.Final.Label != "" {
		return fmt.Sprintf("%s  (%d ms)", classification(f.Final.Label, f.Final.Scores), ms)
	}
	tokens := "tokens"
	if len(f.Tokens) == 1 {
		tokens = "token"
	}
	return fmt.Sprintf("%s  (%d %s, %s, %d ms)", oneLine(f.Text), len(f.Tokens), tokens, f.Final.FinishReason, ms)
}

// fail ends the stream of label i with an error.
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
	up := len(b.labels) - i
	b.print(fmt.Sprintf("\x1b[%dA\r%s\x1b[K\x1b[%dB\r", up, b.line(i), up))
}

// line is the text of line i, the end of it where a live one is too long.
func (b *board) line(i int) string {
	label := b.labels[i]
	if runes := []rune(label); len(runes) > b.label {
		label = string(runes[:b.label-1]) + "…"
	}
	text := b.texts[i]
	if b.live {
		text = ending(text, b.width-b.label-5)
	}
	return "  " + label + strings.Repeat(" ", b.label-utf8.RuneCountInString(label)) + "  " + text
}

func (b *board) print(s string) {
	if _, err := io.WriteString(b.out, s); err != nil && b.err == nil {
		b.err = fmt.Errorf("%w: %w", errWrite, err)
	}
}
