package broker

import (
	"encoding/binary"
	"fmt"
	"math"
)

// mpReader walks over bytes that scanMsgPack has accepted, so reading the
// heads cannot fail.
type mpReader struct{ b []byte }

// next returns the head of the next value and its body, and steps over both;
// children follow.
func (r *mpReader) next() (mpHead, []byte) {
	h, err := readHead(r.b)
	if err != nil { // only on bytes that were not scanned
		r.b = nil
		return mpHead{}, nil
	}
	body := r.b[h.head : h.head+h.body]
	r.b = r.b[h.head+h.body:]
	return h, body
}

// skip steps over the next value and returns its encoding.
func (r *mpReader) skip() []byte {
	start := r.b
	for n := 1; n > 0 && len(r.b) > 0; n-- {
		h, _ := r.next()
		n += h.children
	}
	return start[:len(start)-len(r.b)]
}

func (r *mpReader) peek() mpKind {
	h, err := readHead(r.b)
	if err != nil {
		return mpNil
	}
	return h.kind
}

// number is a decoded number of any format.
type number struct {
	integer  bool
	negative bool    // of an integer
	bits     uint64  // of an integer, two's complement when negative
	float    float64 // its value, rounded for an integer
}

// number reads a number; ok is false, and the value skipped, for other kinds.
func (r *mpReader) number() (number, bool) {
	if k := r.peek(); k != mpInt && k != mpUint && k != mpFloat {
		r.skip()
		return number{}, false
	}
	first := r.b[0]
	h, body := r.next()
	switch {
	case h.kind == mpFloat && len(body) == 4:
		return number{float: float64(math.Float32frombits(binary.BigEndian.Uint32(body)))}, true
	case h.kind == mpFloat:
		return number{float: math.Float64frombits(binary.BigEndian.Uint64(body))}, true
	case h.kind == mpUint && len(body) == 0:
		return unsigned(uint64(first)), true
	case h.kind == mpUint:
		return unsigned(bigEndian(body)), true
	case len(body) == 0:
		return signed(int64(int8(first))), true
	}
	shift := 64 - 8*len(body) // extend the sign
	return signed(int64(bigEndian(body)<<shift) >> shift), true
}

func unsigned(v uint64) number { return number{integer: true, bits: v, float: float64(v)} }

func signed(v int64) number {
	return number{integer: true, negative: v < 0, bits: uint64(v), float: float64(v)}
}

// The append functions write one value each, in the shortest format.

func appendMPUint(b []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(b, byte(v))
	case v <= math.MaxUint8:
		return append(b, 0xcc, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}

func appendMPInt(b []byte, v int64) []byte {
	switch {
	case v >= 0:
		return appendMPUint(b, uint64(v))
	case v >= -32:
		return append(b, byte(v))
	case v >= math.MinInt8:
		return append(b, 0xd0, byte(v))
	case v >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, 0xd1), uint16(v))
	case v >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
}

// appendMPFloat writes nil for what JSON could not carry either.
func appendMPFloat(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, 0xc0)
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
}

func appendMPBool(b []byte, v bool) []byte {
	if v {
		return append(b, 0xc3)
	}
	return append(b, 0xc2)
}

func appendMPString(b []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n <= math.MaxUint8:
		b = append(b, 0xd9, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, s...)
}

func appendMPArray(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x90|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

func appendMPMap(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x80|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xde), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xdf), uint32(n))
}

// idsOfBin decodes int32 little-endian ids.
func idsOfBin(body []byte) ([]int32, error) {
	if len(body)%4 != 0 {
		return nil, fmt.Errorf("%d bytes are not int32 values", len(body))
	}
	ids := make([]int32, len(body)/4)
	for i := range ids {
		ids[i] = int32(binary.LittleEndian.Uint32(body[4*i:]))
	}
	return ids, nil
}
