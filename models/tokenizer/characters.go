package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// characters has one token for each character. Tokens of several characters,
// such as the markers of a sequence's start and end, are never produced from
// text.
type characters struct {
	separators
	tokens []string
	ids    map[rune]int32
	lower  bool
}

func newCharacters(s separators, vocabulary []byte, size int, lower bool) (Tokenizer, error) {
	tokens, err := readVocabulary(vocabulary, size)
	if err != nil {
		return nil, err
	}
	c := &characters{separators: s, tokens: tokens, ids: make(map[rune]int32, size), lower: lower}
	for i, t := range tokens {
		if r, n := utf8.DecodeRuneInString(t); n == len(t) {
			c.ids[r] = int32(i)
		}
	}
	return c, nil
}

// Len returns the number of characters.
func (c *characters) Len(text string) int { return utf8.RuneCountInString(text) }

// Encode looks up each character.
func (c *characters) Encode(text string) ([]int32, error) {
	ids := make([]int32, 0, len(text))
	for i, r := range text {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(text[i:]); n == 1 {
				return nil, encodeError(len(ids), text[i:i+1], notUTF8)
			}
		}
		known := r
		if c.lower {
			known = unicode.ToLower(r)
		}
		id, ok := c.ids[known]
		if !ok {
			return nil, encodeError(len(ids), string(r), notInVocab)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// AppendToken appends the token's text.
func (c *characters) AppendToken(dst []byte, id int32) []byte {
	return appendToken(dst, c.tokens, id)
}

func appendToken(dst []byte, tokens []string, id int32) []byte {
	if id < 0 || int(id) >= len(tokens) {
		return dst
	}
	return append(dst, tokens[id]...)
}
