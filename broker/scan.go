package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The bounds of a payload's structure. Token ids in an array count as
// elements; a longer input comes as bin.
const (
	maxDepth    = 32
	maxElements = 1 << 17
	maxMeta     = 16 << 10
)

var (
	errTooDeep     = fmt.Errorf("nested deeper than %d", maxDepth)
	errTooMany     = fmt.Errorf("more than %d elements", maxElements)
	errTruncated   = errors.New("truncated")
	errTrailing    = errors.New("bytes after the end")
	errReserved    = errors.New("reserved byte 0xc1")
	errNoClosing   = errors.New("unbalanced brackets")
	errOpenString  = errors.New("string without end")
	errEmpty       = errors.New("empty")
	errTooLongMeta = fmt.Errorf("longer than %d bytes", maxMeta)
)

// mpHead is the head of one MessagePack value: its kind, the bytes of its head
// and body, and how many values follow inside it.
type mpHead struct {
	kind     mpKind
	head     int // bytes of type and length
	body     int // bytes after the head, children excluded
	children int // values inside: elements, or keys and values
}

type mpKind uint8

const (
	mpNil mpKind = iota
	mpBool
	mpInt  // signed
	mpUint // unsigned
	mpFloat
	mpString
	mpBin
	mpArray
	mpMap
	mpExt
)

// readHead reads the head of the value at the start of b. It checks that head
// and body are within b, and nothing about children.
func readHead(b []byte) (mpHead, error) {
	if len(b) == 0 {
		return mpHead{}, errTruncated
	}
	h, lengthBytes := headOf(b[0])
	if h.head == 0 {
		return mpHead{}, errReserved
	}
	if lengthBytes > 0 {
		if len(b) < 1+lengthBytes {
			return mpHead{}, errTruncated
		}
		n := bigEndian(b[1 : 1+lengthBytes])
		if n > uint64(len(b)) { // each byte or child takes at least one byte
			return mpHead{}, errTruncated
		}
		switch h.kind {
		case mpArray:
			h.children = int(n)
		case mpMap:
			h.children = 2 * int(n)
		default:
			h.body += int(n)
		}
	}
	if len(b)-h.head < h.body || len(b)-h.head < h.children {
		return mpHead{}, errTruncated
	}
	return h, nil
}

// headOf describes a value by its first byte; lengthBytes is the size of the
// length that follows. A zero head is the reserved byte.
func headOf(c byte) (h mpHead, lengthBytes int) {
	switch {
	case c < 0x80:
		return mpHead{kind: mpUint, head: 1}, 0
	case c < 0x90:
		return mpHead{kind: mpMap, head: 1, children: 2 * int(c&0x0f)}, 0
	case c < 0xa0:
		return mpHead{kind: mpArray, head: 1, children: int(c & 0x0f)}, 0
	case c < 0xc0:
		return mpHead{kind: mpString, head: 1, body: int(c & 0x1f)}, 0
	case c >= 0xe0:
		return mpHead{kind: mpInt, head: 1}, 0
	case c == 0xc0:
		return mpHead{kind: mpNil, head: 1}, 0
	case c == 0xc2 || c == 0xc3:
		return mpHead{kind: mpBool, head: 1}, 0
	case c >= 0xc4 && c <= 0xc6:
		n := 1 << (c - 0xc4)
		return mpHead{kind: mpBin, head: 1 + n}, n
	case c >= 0xc7 && c <= 0xc9: // the body has a type byte too
		n := 1 << (c - 0xc7)
		return mpHead{kind: mpExt, head: 1 + n, body: 1}, n
	case c == 0xca || c == 0xcb:
		return mpHead{kind: mpFloat, head: 1, body: 4 << (c - 0xca)}, 0
	case c >= 0xcc && c <= 0xcf:
		return mpHead{kind: mpUint, head: 1, body: 1 << (c - 0xcc)}, 0
	case c >= 0xd0 && c <= 0xd3:
		return mpHead{kind: mpInt, head: 1, body: 1 << (c - 0xd0)}, 0
	case c >= 0xd4 && c <= 0xd8:
		return mpHead{kind: mpExt, head: 1, body: 1 + 1<<(c-0xd4)}, 0
	case c >= 0xd9 && c <= 0xdb:
		n := 1 << (c - 0xd9)
		return mpHead{kind: mpString, head: 1 + n}, n
	case c == 0xdc || c == 0xdd:
		n := 2 << (c - 0xdc)
		return mpHead{kind: mpArray, head: 1 + n}, n
	case c == 0xde || c == 0xdf:
		n := 2 << (c - 0xde)
		return mpHead{kind: mpMap, head: 1 + n}, n
	}
	return mpHead{}, 0 // 0xc1
}

func bigEndian(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	}
	return binary.BigEndian.Uint64(b)
}

// scanMsgPack checks that b is exactly one value within the bounds, without
// recursion or allocation.
func scanMsgPack(b []byte) error {
	var left [maxDepth + 1]int // values still to come, by depth
	depth, elements := 0, 0
	left[0] = 1
	for {
		for left[depth] == 0 {
			if depth == 0 {
				if len(b) > 0 {
					return errTrailing
				}
				return nil
			}
			depth--
		}
		left[depth]--
		h, err := readHead(b)
		if err != nil {
			return err
		}
		if elements += h.children; elements > maxElements {
			return errTooMany
		}
		b = b[h.head+h.body:]
		if h.kind == mpArray || h.kind == mpMap {
			if depth == maxDepth {
				return errTooDeep
			}
			depth++
			left[depth] = h.children
		}
	}
}

// scanJSON checks nesting and the number of elements, without recursion or
// allocation. Everything else is the decoder's.
func scanJSON(b []byte) error {
	depth, elements := 0, 0
	inString, escaped := false, false
	for _, c := range b {
		if inString {
			switch {
			case escaped:
				escaped = false
			case c == '\\':
				escaped = true
			case c == '"':
				inString = false
			}
			continue
		}
		switch c {
		case '"':
			inString = true
		case '{', '[':
			if depth++; depth > maxDepth {
				return errTooDeep
			}
		case '}', ']':
			if depth--; depth < 0 {
				return errNoClosing
			}
		case ',':
			if elements++; elements >= maxElements {
				return errTooMany
			}
		}
	}
	if inString {
		return errOpenString
	}
	if depth != 0 {
		return errNoClosing
	}
	return nil
}
