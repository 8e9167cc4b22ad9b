package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// words has one token for each word between two separators.
type words struct {
	separators
	tokens []string
	ids    map[string]int32
}

func newWords(s separators, vocabulary []byte, size int) (Tokenizer, error) {
	tokens, err := readVocabulary(vocabulary, size)
	if err != nil {
		return nil, err
	}
	w := &words{separators: s, tokens: tokens, ids: make(map[string]int32, size)}
	for i, t := range tokens {
		w.ids[t] = int32(i)
	}
	return w, nil
}

// Len returns the number of words.
func (w *words) Len(text string) int {
	if text == "" {
		return 0
	}
	return strings.Count(text, w.between) + 1
}

// Encode looks up each word.
func (w *words) Encode(text string) ([]int32, error) {
	ids := make([]int32, 0, w.Len(text))
	if text == "" {
		return ids, nil
	}
	for word := range strings.SplitSeq(text, w.between) {
		id, ok := w.ids[word]
		switch {
		case ok:
			ids = append(ids, id)
		case !utf8.ValidString(word):
			return nil, encodeError(len(ids), word, notUTF8)
		default:
			return nil, encodeError(len(ids), word, notInVocab)
		}
	}
	return ids, nil
}

// AppendToken appends the word.
func (w *words) AppendToken(dst []byte, id int32) []byte {
	return appendToken(dst, w.tokens, id)
}
