package snapshot

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrMalformed says that bytes are too few or too many, or that a number is
// outside its bounds.
var ErrMalformed = errors.New("malformed")

// AppendInt appends a number that is not negative.
func AppendInt(dst []byte, n int) []byte { return binary.AppendUvarint(dst, uint64(n)) }

// AppendFloat appends the bits of a value.
func AppendFloat(dst []byte, v float32) []byte {
	return binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
}

// AppendBool appends a truth value.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// Reader reads what was appended, in the same order. Once something is wrong
// everything it reads is zero.
type Reader struct {
	rest   []byte
	failed bool
}

// NewReader returns a reader of b, which must not change while it is read.
func NewReader(b []byte) *Reader { return &Reader{rest: b} }

// Fail makes the reader one of malformed bytes.
func (r *Reader) Fail() { r.rest, r.failed = nil, true }

// Failed reports whether something was wrong.
func (r *Reader) Failed() bool { return r.failed }

// Err returns [ErrMalformed] when something was wrong or bytes are left.
func (r *Reader) Err() error {
	if r.failed || len(r.rest) > 0 {
		return ErrMalformed
	}
	return nil
}

// Rest returns the bytes that are left, which are then read. They are a part of
// what the reader was made of.
func (r *Reader) Rest() []byte {
	rest := r.rest
	r.rest = nil
	return rest
}

// Bytes returns the next n bytes as Rest does.
func (r *Reader) Bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.Fail()
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// Int reads a number from least, which is not negative, to most.
func (r *Reader) Int(least, most int) int {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > math.MaxInt || int(v) < least || int(v) > most {
		r.Fail()
		return 0
	}
	r.rest = r.rest[n:]
	return int(v)
}

// Count reads the number of things that follow, of at least size bytes each, so
// that there can be no more of them than there are bytes.
func (r *Reader) Count(size int) int { return r.Int(0, len(r.rest)/size) }

// Float reads a value, which may be any.
func (r *Reader) Float() float32 {
	b := r.Bytes(valueSize)
	if b == nil {
		return 0
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}

// Bool reads a truth value.
func (r *Reader) Bool() bool {
	b := r.Bytes(1)
	if b == nil {
		return false
	}
	if b[0] > 1 {
		r.Fail()
	}
	return b[0] == 1
}

const valueSize = 4
