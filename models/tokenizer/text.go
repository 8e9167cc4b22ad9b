package tokenizer

import (
	"unicode/utf8"

	"github.com/cellmq/cellmq/cellrt"
)

// Tokenizer turns text into token ids and back. It is read-only and safe for
// concurrent use.
type Tokenizer interface {
	// Len returns the number of tokens that text has, without looking at
	// whether the vocabulary has them.
	Len(text string) int
	// Encode returns the token ids of text. It refuses invalid UTF-8 and what
	// the vocabulary lacks with an [*EncodeError].
	Encode(text string) ([]int32, error)
	// AppendToken appends the text of one token to dst and returns it. An id
	// that is not in the vocabulary has no text.
	AppendToken(dst []byte, id int32) []byte
	// Separator stands between the texts of two tokens.
	Separator() string
	// SegmentSeparator stands between the texts of two segments.
	SegmentSeparator() string
}

// Text decodes one output token after the other. The texts it appends, one
// after the other, are the decoded text of all tokens, however the tokens are
// grouped. It belongs to one goroutine.
//
// The text is valid UTF-8: tokens may be parts of characters, and a character
// is appended when its last byte is there. A byte that is part of none becomes
// U+FFFD; a character still incomplete when the output ends is left out.
type Text struct {
	tokenizer Tokenizer
	started   bool
	matcher   matcher
	pending   []byte // the text's end: part of a stop text, perhaps, or of a character
}

// NewText returns the decoder of one output. It holds back what may be the
// beginning of one of the stop texts, which may be nil.
func NewText(t Tokenizer, stops *Stops) *Text {
	return &Text{tokenizer: t, matcher: matcher{stops: stops}}
}

// Append appends to dst what tokens add to the text and returns it: each
// token's own text, after the separator unless the token is the output's
// first. Between two segments the separator is the segment separator. It
// allocates only to grow dst.
func (t *Text) Append(dst []byte, tokens ...cellrt.Token) []byte {
	for _, tok := range tokens {
		before := len(t.pending)
		t.pending = appendSeparator(t.pending, t.tokenizer, t.started, tok)
		t.started = true
		t.pending = t.tokenizer.AppendToken(t.pending, tok.ID)
		if t.matcher.found {
			continue // all of it belongs to what Flush cuts
		}
		t.matcher.write(t.pending[before:])
		dst = t.settle(dst, len(t.pending)-(t.matcher.at-t.matcher.safe()))
	}
	return dst
}

// Flush appends the text held back when the output has ended, less the bytes at
// its end that belong to a stop text, and returns it. It ends the text.
func (t *Text) Flush(dst []byte, cut int) []byte {
	dst = t.settle(dst, len(t.pending)-min(cut, len(t.pending)))
	t.pending = t.pending[:0]
	return dst
}

// settle moves the whole characters of the first n pending bytes to dst.
func (t *Text) settle(dst []byte, n int) []byte {
	rest := t.pending[:max(0, n)]
	for len(rest) > 0 && utf8.FullRune(rest) {
		r, size := utf8.DecodeRune(rest)
		dst = utf8.AppendRune(dst, r)
		rest = rest[size:]
	}
	moved := max(0, n) - len(rest)
	t.pending = t.pending[:copy(t.pending, t.pending[moved:])]
	return dst
}

// appendSeparator appends what stands before a token.
func appendSeparator(dst []byte, t Tokenizer, started bool, tok cellrt.Token) []byte {
	switch {
	case !started:
		return dst
	case tok.Break:
		return append(dst, t.SegmentSeparator()...)
	default:
		return append(dst, t.Separator()...)
	}
}
