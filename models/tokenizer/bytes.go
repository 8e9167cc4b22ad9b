package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// byteTokens is how many tokens of a vocabulary are bytes: the first ones.
const byteTokens = 256

// bytes has one token for each byte of UTF-8. Tokens from 256 on, such as an
// end token, have no text.
type bytes struct{ separators }

func newBytes(s separators, size int) (Tokenizer, error) {
	if size < byteTokens {
		return nil, fmt.Errorf("the model's vocabulary has %d tokens, at least %d wanted", size, byteTokens)
	}
	return bytes{s}, nil
}

// Len returns the number of bytes.
func (bytes) Len(text string) int { return len(text) }

// Encode returns the bytes.
func (bytes) Encode(text string) ([]int32, error) {
	ids := make([]int32, len(text))
	for i := range len(text) {
		ids[i] = int32(text[i])
	}
	if utf8.ValidString(text) {
		return ids, nil
	}
	position := 0
	for i, r := range text {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(text[i:]); n == 1 {
				return nil, encodeError(position, text[i:i+1], notUTF8)
			}
		}
		position++
	}
	return ids, nil
}

// AppendToken appends the byte.
func (bytes) AppendToken(dst []byte, id int32) []byte {
	if id < 0 || id >= byteTokens {
		return dst
	}
	return append(dst, byte(id))
}
