package tokenizer

import "fmt"

// EncodeError says what in a text cannot be encoded.
type EncodeError struct {
	// Position is the place of the fault: the index of the character, or for
	// "words" and "ids" of the word, counted from 0.
	Position int
	// Piece is the character or word at fault, shortened when it is long.
	Piece string
	// Message says what is wrong with it.
	Message string
}

// Error names the piece, its position and what is wrong with it.
func (e *EncodeError) Error() string {
	return fmt.Sprintf("%q at position %d %s", e.Piece, e.Position, e.Message)
}

const (
	maxPieceBytes  = 32
	notInVocab     = "is not in the vocabulary"
	notUTF8        = "is not valid UTF-8"
	notATokenID    = "is not a token id"
	maxVocabTokens = 1 << 20
)

func encodeError(position int, piece, message string) error {
	if len(piece) > maxPieceBytes {
		piece = piece[:maxPieceBytes]
	}
	return &EncodeError{Position: position, Piece: piece, Message: message}
}
