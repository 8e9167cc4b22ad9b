package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// redrawEvery is the shortest time between two drawings of a progress bar.
const redrawEvery = 100 * time.Millisecond

// progressBar shows on a terminal how many of many requests are done. A nil
// one does nothing.
type progressBar struct {
	out io.Writer

	mu          sync.Mutex
	sent, done  int
	drawn       bool
	last, began time.Time
}

// newProgressBar returns a bar when stderr is a terminal and stdout is not:
// else the output itself shows the progress.
func newProgressBar(s streams) *progressBar {
	if !isTerminal(s.err) || isTerminal(s.out) {
		return nil
	}
	return &progressBar{out: s.err, began: time.Now()}
}

// started counts a request that was sent.
func (b *progressBar) started() { b.count(1, 0) }

// ended counts a request that has its answer.
func (b *progressBar) ended() { b.count(0, 1) }

func (b *progressBar) count(sent, done int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent += sent
	b.done += done
	now := time.Now()
	if b.sent < 2 || now.Sub(b.last) < redrawEvery {
		return
	}
	b.last, b.drawn = now, true
	const width = 30
	filled := width * b.done / b.sent
	rate := float64(b.done) / max(now.Sub(b.began).Seconds(), 0.001)
	_, _ = fmt.Fprintf(b.out, "\r[%-*s] %d of %d sent, %.0f/s\x1b[K", width, repeat('=', filled), b.done, b.sent, rate) // decoration
}

// clear takes the bar off the screen, to make room for a message.
func (b *progressBar) clear() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn {
		_, _ = io.WriteString(b.out, eraseLine) // decoration
		b.drawn = false
	}
}

func repeat(c byte, n int) string {
	s := make([]byte, n)
	for i := range s {
		s[i] = c
	}
	return string(s)
}
