package top

import (
	"os"

	"golang.org/x/term"
)

// terminal is the user's, while it is in use.
type terminal struct {
	in, out *os.File
	before  *term.State // nil: as it was found
}

const (
	// An own screen without a cursor, and back.
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[2J"
	leaveScreen = "\x1b[0m\x1b[?25h\x1b[?1049l"
	goHome      = "\x1b[H"
	eraseRest   = "\x1b[K\r\n"
	eraseBelow  = "\x1b[K\x1b[J"
)

// enter takes the terminal over. It may be called again.
func (t *terminal) enter() error {
	if t.before == nil {
		before, err := term.MakeRaw(int(t.in.Fd()))
		if err != nil {
			return err
		}
		t.before = before
	}
	_, err := t.out.WriteString(enterScreen)
	return err
}

// leave gives the terminal back as it was. It may be called again.
func (t *terminal) leave() {
	if t.before == nil {
		return
	}
	_, _ = t.out.WriteString(leaveScreen)      // nobody is left to tell
	_ = term.Restore(int(t.in.Fd()), t.before) // as before
	t.before = nil
}

// size is columns and rows, 80x24 when the terminal does not say.
func (t *terminal) size() (width, height int) {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	const most = 1000
	return min(width, most), min(height, most)
}

// show writes lines over those that are there, in one piece.
func (t *terminal) show(lines []string) {
	b := []byte(goHome)
	for i, l := range lines {
		b = append(b, l...)
		if i < len(lines)-1 {
			b = append(b, eraseRest...)
		}
	}
	b = append(b, eraseBelow...)
	_, _ = t.out.Write(b) // the next one comes soon, and a terminal that has gone ends the keys
}
