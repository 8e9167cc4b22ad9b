package tokenizer

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/cellmq/cellmq/cellrt"
)

// Bounds of a request's stop texts.
const (
	MaxStops     = 16
	MaxStopBytes = 128 // of one
)

// Stops are the texts that end an output. They are read-only and safe for
// concurrent use.
type Stops struct{ patterns []pattern }

// pattern is a stop text with, for each of its prefixes, the length of the
// longest shorter prefix that is also its end.
type pattern struct {
	text    string
	borders []uint8
}

// NewStops returns the given stop texts, nil when there are none. It fails
// when there are more than [MaxStops], or one is empty, longer than
// [MaxStopBytes] or not valid UTF-8.
func NewStops(texts []string) (*Stops, error) {
	if len(texts) == 0 {
		return nil, nil //nolint:nilnil // no stop texts are no set of them
	}
	if len(texts) > MaxStops {
		return nil, fmt.Errorf("%d texts, at most %d wanted", len(texts), MaxStops)
	}
	s := &Stops{}
	for i, t := range texts {
		switch {
		case t == "" || len(t) > MaxStopBytes:
			return nil, fmt.Errorf("text %d has %d bytes, 1 to %d wanted", i, len(t), MaxStopBytes)
		case !utf8.ValidString(t):
			return nil, fmt.Errorf("text %d is not valid UTF-8", i)
		}
		s.patterns = append(s.patterns, newPattern(t))
	}
	return s, nil
}

func newPattern(text string) pattern {
	p := pattern{text: text, borders: make([]uint8, len(text)+1)}
	depth := 0
	for i := 1; i < len(text); i++ {
		depth = p.next(depth, text[i])
		p.borders[i+1] = uint8(depth)
	}
	return p
}

// next returns how much of the pattern matches after one more byte, when depth
// bytes matched before it.
func (p *pattern) next(depth int, b byte) int {
	for depth > 0 && (depth == len(p.text) || p.text[depth] != b) {
		depth = int(p.borders[depth])
	}
	if p.text[depth] == b {
		depth++
	}
	return depth
}

// matcher looks for stop texts in a text that it is given byte by byte. The
// first one to be complete wins, of several complete at one byte the longest,
// so what it finds does not depend on how the text comes in pieces.
type matcher struct {
	stops  *Stops
	depths [MaxStops]uint8
	at     int // bytes seen
	start  int // where the stop text begins, once found
	found  bool
}

// write looks at more text until a stop text is complete.
func (m *matcher) write(text []byte) {
	if m.stops == nil {
		m.at += len(text)
		return
	}
	for i, b := range text {
		longest := 0
		for k := range m.stops.patterns {
			p := &m.stops.patterns[k]
			depth := p.next(int(m.depths[k]), b)
			m.depths[k] = uint8(depth)
			if depth == len(p.text) {
				longest = max(longest, depth)
			}
		}
		if longest > 0 {
			m.start, m.found = m.at+i+1-longest, true
			break
		}
	}
	m.at += len(text)
}

// safe returns up to where the text cannot be part of a stop text that is yet
// to come, or where the found one begins.
func (m *matcher) safe() int {
	if m.found {
		return m.start
	}
	longest := 0
	if m.stops != nil {
		for _, d := range m.depths[:len(m.stops.patterns)] {
			longest = max(longest, int(d))
		}
	}
	return m.at - longest
}

// errStopped is what a programmer sees who goes on after a stop text.
var errStopped = errors.New("tokenizer: a token after the stop text")

// Stopper holds back an output's tokens while their text may be part of a stop
// text. It belongs to one goroutine.
//
// The separator before a token belongs to neither side: it is matched, but a
// token that is dropped takes it along.
type Stopper struct {
	tokenizer Tokenizer
	matcher   matcher
	started   bool
	text      []byte // of the last token
	held      []heldToken
	free      []cellrt.Token
	end       int // of the text of the tokens that were freed
}

// heldToken is a token with where its own text begins and ends.
type heldToken struct {
	token      cellrt.Token
	begin, end int
}

// NewStopper returns a stopper for an output of t's tokens.
func NewStopper(t Tokenizer, stops *Stops) *Stopper {
	return &Stopper{tokenizer: t, matcher: matcher{stops: stops}, held: make([]heldToken, 0, 16)}
}

// Push takes the output's next token. It returns the tokens that belong to the
// output whatever comes, and whether a stop text is complete: then what was
// held back is dropped, the tokens that begin in the stop text, and no token
// may follow. The slice is the stopper's until the next call.
func (s *Stopper) Push(t cellrt.Token) (free []cellrt.Token, stopped bool) {
	if s.matcher.found {
		panic(errStopped)
	}
	s.text = appendSeparator(s.text[:0], s.tokenizer, s.started, t)
	s.started = true
	begin := s.matcher.at + len(s.text)
	s.text = s.tokenizer.AppendToken(s.text, t.ID)
	s.matcher.write(s.text)
	s.held = append(s.held, heldToken{token: t, begin: begin, end: s.matcher.at})
	return s.release(s.matcher.safe()), s.matcher.found
}

// Rest returns the tokens still held back when the output ended without a stop
// text.
func (s *Stopper) Rest() []cellrt.Token {
	if s.matcher.found {
		return nil
	}
	return s.release(s.matcher.at)
}

// Cut returns how many bytes at the end of the freed tokens' text belong to the
// stop text, 0 when none was found.
func (s *Stopper) Cut() int {
	if !s.matcher.found {
		return 0
	}
	return max(0, s.end-s.matcher.start)
}

// release frees the held tokens that begin before a place in the text, and
// those without text that stand there.
func (s *Stopper) release(before int) []cellrt.Token {
	s.free = s.free[:0]
	n := 0
	for n < len(s.held) && (s.held[n].begin < before || s.held[n].end <= before) {
		s.free = append(s.free, s.held[n].token)
		s.end = s.held[n].end
		n++
	}
	s.held = append(s.held[:0], s.held[n:]...)
	return s.free
}
