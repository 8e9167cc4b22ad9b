package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/cellmq/cellmq/models/internal/brief"
)

// Config describes a tokenizer in a model's configuration: an object, or just
// the kind's name.
type Config struct {
	// Type is the kind: "bytes", "characters", "words", "ids" or "tree".
	Type string `json:"type"`
	// Vocab names the vocabulary file: a JSON array with the text of each token,
	// in the order of their ids. "bytes" and "ids" have none.
	Vocab string `json:"vocab"`
	// Lowercase maps characters to lower case before they are looked up.
	Lowercase bool `json:"lowercase"`
	// Separator stands between two words; a single space when absent.
	// "bytes" and "characters" have nothing between their tokens when it is
	// absent.
	Separator *string `json:"separator"`
	// SegmentSeparator stands between the outputs of two segments of an input;
	// the separator when absent.
	SegmentSeparator *string `json:"segment_separator"`
}

// The kinds.
const (
	Bytes      = "bytes"
	Characters = "characters"
	Words      = "words"
	IDs        = "ids"
	Tree       = "tree"
)

// maxSeparatorBytes bounds both separators.
const maxSeparatorBytes = 16

// UnmarshalJSON reads an object or a kind's name.
func (c *Config) UnmarshalJSON(b []byte) error {
	*c = Config{}
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &c.Type)
	}
	type plain Config
	return json.Unmarshal(b, (*plain)(c))
}

// New returns the tokenizer that c describes, for a vocabulary of size tokens.
// The vocabulary is the content of the file that c.Vocab names; "bytes" and
// "ids" take none.
func New(c Config, vocabulary []byte, size int) (Tokenizer, error) {
	s := separators{between: " "}
	if c.Type == Bytes || c.Type == Characters {
		s.between = ""
	}
	if c.Separator != nil {
		s.between = *c.Separator
	}
	s.segments = s.between
	if c.SegmentSeparator != nil {
		s.segments = *c.SegmentSeparator
	}
	if len(s.between) > maxSeparatorBytes || len(s.segments) > maxSeparatorBytes {
		return nil, fmt.Errorf("separators have %d and %d bytes, at most %d wanted", len(s.between), len(s.segments), maxSeparatorBytes)
	}
	switch c.Type {
	case Bytes:
		return newBytes(s, size)
	case Characters:
		return newCharacters(s, vocabulary, size, c.Lowercase)
	case Words:
		if s.between == "" {
			return nil, errors.New("separator is empty, words need one")
		}
		return newWords(s, vocabulary, size)
	case IDs:
		return ids{separators: separators{between: " ", segments: s.segments}, size: size}, nil
	case Tree:
		return newTree(s, vocabulary, size)
	default:
		return nil, fmt.Errorf("type %.32q, one of bytes, characters, words, ids and tree wanted", c.Type)
	}
}

// readVocabulary reads a JSON array of size distinct tokens.
func readVocabulary(b []byte, size int) ([]string, error) {
	var tokens []string
	if err := json.Unmarshal(b, &tokens); err != nil {
		return nil, fmt.Errorf("vocabulary: %w", brief.Error(err))
	}
	if len(tokens) != size || size > maxVocabTokens {
		return nil, fmt.Errorf("vocabulary has %d tokens, the model %d, at most %d wanted", len(tokens), size, maxVocabTokens)
	}
	seen := make(map[string]bool, size)
	for i, t := range tokens {
		if t == "" || seen[t] || !utf8.ValidString(t) {
			return nil, fmt.Errorf("vocabulary token %d, %.32q, is empty, repeated or no UTF-8", i, t)
		}
		seen[t] = true
	}
	return tokens, nil
}

// separators are what stands between the texts of tokens.
type separators struct{ between, segments string }

// Separator stands between the texts of two tokens.
func (s separators) Separator() string { return s.between }

// SegmentSeparator stands between the texts of two segments.
func (s separators) SegmentSeparator() string { return s.segments }
