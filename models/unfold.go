package models

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/cellmq/cellmq/models/tokenizer"
)

// The payload keys that errors name.
const (
	fieldInput     = "input"
	fieldMaxTokens = "max_tokens"
)

// Unfold tokenizes and checks an input and its parameters and unfolds them
// into a graph. Whatever is wrong with them is an [*InputError].
func (m *Model) Unfold(in Input, p Params) (*Request, error) {
	if err := checkParams(p); err != nil {
		return nil, err
	}
	most := m.limits.MaxTokens
	if p.MaxTokens != nil {
		if *p.MaxTokens < 1 || *p.MaxTokens > most {
			return nil, inputErrorf(BadRequest, fieldMaxTokens, "%d, 1 to %d wanted", *p.MaxTokens, most)
		}
		most = *p.MaxTokens
	}
	segments, err := m.encode(in)
	if err != nil {
		return nil, err
	}
	tokens := 0
	for _, s := range segments {
		tokens += len(s)
	}
	most = min(most, len(segments)*m.seq2seq.Config().MaxTargetLength)
	g := m.seq2seq.Graph(segments, most)
	return &Request{Model: m, Graph: g, InputTokens: tokens, MaxTokens: most, score: g}, nil
}

// encode returns the segments of an input as token ids, none of them empty.
func (m *Model) encode(in Input) ([][]int32, error) {
	switch {
	case in.IDs != nil && in.Text != "":
		return nil, inputErrorf(BadRequest, fieldInput, "both text and ids")
	case in.IDs != nil:
		return m.encodeIDs(in.IDs)
	case m.segmented:
		return m.encodeSegments(strings.Fields(in.Text), in.Text)
	case in.Text == "":
		return m.encodeSegments(nil, "")
	default:
		return m.encodeSegments([]string{in.Text}, in.Text)
	}
}

func (m *Model) encodeIDs(ids []int32) ([][]int32, error) {
	if err := m.checkLength(len(ids)); err != nil {
		return nil, err
	}
	size := m.seq2seq.Config().SourceVocab
	for i, id := range ids {
		if id < 0 || int(id) >= size {
			return nil, inputErrorf(BadRequest, fieldInput, "token id %d at position %d, 0 to %d wanted", id, i, size-1)
		}
	}
	return [][]int32{append([]int32(nil), ids...)}, nil
}

// encodeSegments encodes the segments of text.
func (m *Model) encodeSegments(segments []string, text string) ([][]int32, error) {
	tokens := 0
	for _, s := range segments {
		tokens += m.source.Len(s)
	}
	if err := m.checkLength(tokens); err != nil {
		return nil, err
	}
	encoded := make([][]int32, 0, len(segments))
	rest := text
	for _, s := range segments {
		at := strings.Index(rest, s)
		ids, err := m.source.Encode(s)
		if err != nil {
			before := utf8.RuneCountInString(text[:len(text)-len(rest)+at])
			return nil, inputErrorf(BadRequest, fieldInput, "%s", located(err, before))
		}
		rest = rest[at+len(s):]
		encoded = append(encoded, ids)
	}
	return encoded, nil
}

// located says where in the whole text a fault lies that a segment's
// tokenizer met.
func located(err error, before int) string {
	if e, ok := errors.AsType[*tokenizer.EncodeError](err); ok {
		moved := *e
		moved.Position += before
		return moved.Error()
	}
	return err.Error()
}

func (m *Model) checkLength(tokens int) error {
	if tokens == 0 {
		return inputErrorf(BadRequest, fieldInput, "empty")
	}
	if tokens > m.limits.MaxInputTokens {
		return inputErrorf(InputTooLong, fieldInput, "%d tokens, at most %d wanted", tokens, m.limits.MaxInputTokens)
	}
	return nil
}
