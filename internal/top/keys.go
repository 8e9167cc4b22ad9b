package top

import (
	"context"
	"io"
)

// key is a key that was pressed: a character, or one of those below.
type key rune

const (
	keyInterrupt key = 0x03
	keyEnter     key = 0x0d
	keySuspend   key = 0x1a
	keyEscape    key = 0x1b
	keyBackspace key = 0x7f
)

const (
	keyUp key = 0x110000 + iota // above all characters
	keyDown
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
	keyOther
)

// readKeys passes the keys of a terminal until it ends or ctx does. A read cannot be
// called off: the goroutine may stay until the process ends.
func readKeys(ctx context.Context, in io.Reader) <-chan key {
	keys := make(chan key)
	go func() {
		defer close(keys)
		buf := make([]byte, 256)
		for {
			n, err := in.Read(buf)
			for _, k := range parseKeys(buf[:n]) {
				select {
				case keys <- k:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return keys
}

// parseKeys splits what one read returned. A terminal sends a key's sequence in one
// piece, so an escape with nothing behind it is the key of that name.
func parseKeys(b []byte) (out []key) {
	for len(b) > 0 {
		if b[0] != byte(keyEscape) || len(b) == 1 {
			k := key(b[0])
			switch k {
			case '\b':
				k = keyBackspace
			case '\n':
				k = keyEnter
			}
			out = append(out, k)
			b = b[1:]
			continue
		}
		k, n := parseSequence(b)
		out = append(out, k)
		b = b[n:]
	}
	return out
}

// parseSequence reads a key that begins with an escape, and tells its length.
func parseSequence(b []byte) (k key, n int) {
	if b[1] != '[' && b[1] != 'O' {
		return keyEscape, 1
	}
	n = 2
	for n < len(b) && (b[n] < 0x40 || b[n] > 0x7e) { // parameters, up to the final character
		n++
	}
	if n == len(b) {
		return keyOther, n
	}
	n++
	switch string(b[2:n]) {
	case "A":
		return keyUp, n
	case "B":
		return keyDown, n
	case "5~":
		return keyPageUp, n
	case "6~":
		return keyPageDown, n
	case "H", "1~", "7~":
		return keyHome, n
	case "F", "4~", "8~":
		return keyEnd, n
	}
	return keyOther, n
}
