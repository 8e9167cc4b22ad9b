package brief

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Bounds of an error's text.
const (
	// MaxErrors is how many errors of a [List] are in its text.
	MaxErrors = 8
	// MaxBytes is how many bytes of a text are kept.
	MaxBytes = 256
)

// Clip returns text, cut after at most [MaxBytes] bytes at the end of a
// character. It says how many more there were.
func Clip(text string) string {
	if len(text) <= MaxBytes {
		return text
	}
	n := MaxBytes
	for n > MaxBytes-utf8.UTFMax && !utf8.RuneStart(text[n]) {
		n--
	}
	return fmt.Sprintf("%s… and %d more bytes", text[:n], len(text)-n)
}

// Error returns err with its text clipped; nil when err is.
func Error(err error) error {
	if err == nil || len(err.Error()) <= MaxBytes {
		return err
	}
	return &clipped{text: Clip(err.Error()), err: err}
}

type clipped struct {
	text string
	err  error
}

func (e *clipped) Error() string { return e.text }

func (e *clipped) Unwrap() error { return e.err }

// List collects errors. It keeps the first [MaxErrors] and counts the others.
// The zero value is empty. It belongs to one goroutine.
type List struct {
	first []error
	more  int
}

// Add adds an error, unless it is nil.
func (l *List) Add(err error) {
	switch {
	case err == nil:
	case len(l.first) < MaxErrors:
		l.first = append(l.first, err)
	default:
		l.more++
	}
}

// Err returns the errors that were kept, joined, one a line, with how many more
// there were; nil without errors.
func (l *List) Err() error {
	if l.more == 0 {
		return errors.Join(l.first...)
	}
	return errors.Join(append(l.first[:len(l.first):len(l.first)], fmt.Errorf("and %d more", l.more))...)
}

// Difference returns what to show of two texts that differ: both as they are
// when they are short, else both from shortly before they begin to differ,
// clipped.
func Difference(got, want string) (shortGot, shortWant string) {
	if len(got) <= MaxBytes && len(want) <= MaxBytes {
		return got, want
	}
	same := 0
	for same < min(len(got), len(want)) && got[same] == want[same] {
		same++
	}
	at := max(0, same-MaxBytes/8)
	for at > 0 && at < len(got) && !utf8.RuneStart(got[at]) {
		at--
	}
	from := func(text string) string {
		if at == 0 {
			return Clip(text)
		}
		return "…" + Clip(text[at:])
	}
	return from(got), from(want)
}
