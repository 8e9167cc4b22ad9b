package tokenizer

import "github.com/cellmq/cellmq/cellrt"

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
// after the other, are the decoded text of all tokens. It belongs to one
// goroutine.
type Text struct {
	tokenizer Tokenizer
	started   bool
}

// NewText returns the decoder of one output.
func NewText(t Tokenizer) *Text { return &Text{tokenizer: t} }

// Append appends to dst what tokens add to the text and returns it: each
// token's own text, after the separator unless the token is the output's
// first. Between two segments the separator is the segment separator. It
// allocates only to grow dst.
func (t *Text) Append(dst []byte, tokens ...cellrt.Token) []byte {
	for _, tok := range tokens {
		switch {
		case !t.started:
			t.started = true
		case tok.Break:
			dst = append(dst, t.tokenizer.SegmentSeparator()...)
		default:
			dst = append(dst, t.tokenizer.Separator()...)
		}
		dst = t.tokenizer.AppendToken(dst, tok.ID)
	}
	return dst
}
