package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// ids has no vocabulary: the text of a token is its id in decimal.
type ids struct {
	separators
	size int
}

// Len returns the number of fields between white space.
func (t ids) Len(text string) int {
	n := 0
	for range strings.FieldsSeq(text) {
		n++
	}
	return n
}

// Encode reads decimal ids separated by white space.
func (t ids) Encode(text string) ([]int32, error) {
	out := make([]int32, 0, t.Len(text))
	for field := range strings.FieldsSeq(text) {
		id, err := strconv.ParseUint(field, 10, 31)
		switch {
		case err == nil && int(id) < t.size:
			out = append(out, int32(id))
		case err == nil:
			return nil, encodeError(len(out), field, "is not below "+strconv.Itoa(t.size))
		case !utf8.ValidString(field):
			return nil, encodeError(len(out), field, notUTF8)
		default:
			return nil, encodeError(len(out), field, notATokenID)
		}
	}
	return out, nil
}

// AppendToken appends the id in decimal.
func (t ids) AppendToken(dst []byte, id int32) []byte {
	if id < 0 || int(id) >= t.size {
		return dst
	}
	return strconv.AppendInt(dst, int64(id), 10)
}
