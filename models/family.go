package models

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/tokenizer"
)

// family is a loaded model of one family. Each is an adapter of a package
// below this one, in a file of its own here.
type family interface {
	// Program returns the model's cells.
	Program() *cellrt.Program
	// Parameters returns the number of trained parameters.
	Parameters() int
	// unfold checks an input and its parameters and returns the request's
	// graph, its number of input tokens, the most tokens it can emit, and what
	// reads its results. The caller fills in the model.
	unfold(in Input, p Params) (*Request, error)
}

// checkTokens checks the number of an input's tokens.
func checkTokens(tokens, most int) error {
	if tokens == 0 {
		return inputErrorf(BadRequest, fieldInput, "empty")
	}
	if tokens > most {
		return inputErrorf(InputTooLong, fieldInput, "%d tokens, at most %d wanted", tokens, most)
	}
	return nil
}

// checkIDs checks an input of token ids against the size of the vocabulary and
// the most tokens it may have, and returns a copy.
func checkIDs(ids []int32, vocab, most int) ([]int32, error) {
	if err := checkTokens(len(ids), most); err != nil {
		return nil, err
	}
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return nil, inputErrorf(BadRequest, fieldInput, "token id %d at position %d, 0 to %d wanted", id, i, vocab-1)
		}
	}
	return append([]int32(nil), ids...), nil
}

// encodeWhole returns the tokens of an input that is encoded in one piece, in a
// vocabulary of the given size, and at most so many.
func encodeWhole(t tokenizer.Tokenizer, in Input, vocab, most int) ([]int32, error) {
	if in.IDs != nil {
		return checkIDs(in.IDs, vocab, most)
	}
	if err := checkTokens(t.Len(in.Text), most); err != nil {
		return nil, err
	}
	tokens, err := t.Encode(in.Text)
	if err != nil {
		return nil, inputErrorf(BadRequest, fieldInput, "%s", err)
	}
	return tokens, nil
}
