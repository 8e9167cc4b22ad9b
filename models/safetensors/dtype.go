package safetensors

import (
	"encoding/binary"
	"math"
)

// DType is a storage type under its name in the header.
type DType string

// The storage types.
const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
)

// Size returns the size of one value in bytes, 0 for a type that this package
// does not know.
func (d DType) Size() int {
	switch d {
	case F32:
		return 4
	case F16, BF16:
		return 2
	default:
		return 0
	}
}

// decode fills dst with the values stored in src, which has len(dst) of them.
func (d DType) decode(dst []float32, src []byte) {
	switch d {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = FromF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	}
}

// finite reports whether the i-th value stored in src is: not all the bits of its
// exponent are set.
func (d DType) finite(src []byte, i int) bool {
	switch d {
	case F32:
		const exponent = 0xff << 23
		return binary.LittleEndian.Uint32(src[4*i:])&exponent != exponent
	case F16:
		const exponent = 0x1f << 10
		return binary.LittleEndian.Uint16(src[2*i:])&exponent != exponent
	default:
		const exponent = 0xff << 7
		return binary.LittleEndian.Uint16(src[2*i:])&exponent != exponent
	}
}

// encode appends the stored form of values to dst.
func (d DType) encode(dst []byte, values []float32) []byte {
	for _, v := range values {
		switch d {
		case F32:
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
		case F16:
			dst = binary.LittleEndian.AppendUint16(dst, ToF16(v))
		case BF16:
			dst = binary.LittleEndian.AppendUint16(dst, ToBF16(v))
		}
	}
	return dst
}

// FromBF16 returns the value of a bfloat16. It is exact.
func FromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBF16 returns the bfloat16 nearest to v, the even one of two equally near.
// A NaN stays a quiet NaN.
func ToBF16(v float32) uint16 {
	b := math.Float32bits(v)
	if v != v {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromF16 returns the value of an IEEE half. It is exact.
func FromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h >> 10 & 0x1f)
	frac := uint32(h & 0x3ff)
	switch exp {
	case 0: // zero or subnormal: frac * 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-24))
	case 0x1f: // infinity or NaN
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	default:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
}

// ToF16 returns the IEEE half nearest to v, the even one of two equally near;
// what is too large becomes an infinity. A NaN stays a quiet NaN.
func ToF16(v float32) uint16 {
	b := math.Float32bits(v)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x477ff000: // at least 65520, the middle between the largest half and 65536
		return sign | 0x7c00
	case b >= 0x38800000: // normal half: drop 13 bits of the fraction
		return sign | uint16((b-0x38000000+0xfff+b>>13&1)>>13)
	default: // subnormal half: the sum's last place is 2^-24, so the addition rounds
		sum := math.Float32frombits(b) + 0.5
		return sign | uint16(math.Float32bits(sum)-math.Float32bits(0.5))
	}
}
