package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// byteBar shows on a terminal how many bytes are where they shall be. A nil one
// does nothing.
type byteBar struct {
	out io.Writer

	mu          sync.Mutex
	drawn       bool
	last, began time.Time
}

// newByteBar returns a bar when stderr is a terminal.
func newByteBar(s streams) *byteBar {
	if !isTerminal(s.err) {
		return nil
	}
	return &byteBar{out: s.err, began: time.Now()}
}

func (b *byteBar) show(done, total int64) {
	if b == nil || total == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Sub(b.last) < redrawEvery {
		return
	}
	b.last, b.drawn = now, true
	const width = 30
	rate := float64(done) / max(now.Sub(b.began).Seconds(), 0.001)
	_, _ = fmt.Fprintf(b.out, "\r[%-*s] %s of %s, %s/s\x1b[K", width, repeat('=', int(width*done/total)), // decoration
		sizeText(done), sizeText(total), sizeText(int64(rate)))
}

// clear takes the bar off the screen.
func (b *byteBar) clear() {
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

// sizeText is a number of bytes for people.
func sizeText(n int64) string {
	units := []string{"KiB", "MiB", "GiB"}
	size, unit := float64(n), "B"
	for len(units) > 0 && size >= 1024 {
		size, unit, units = size/1024, units[0], units[1:]
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}
