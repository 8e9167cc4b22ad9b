package ask

import (
	"encoding/binary"
	"errors"
)

// frame is what counts of a frame.
type frame struct {
	kind        string // type; it shares the payload's memory until interned
	attempt     uint64
	seq         uint64
	index       int
	tokens      int // ids in it
	provisional bool
	code        string // of an error
	reason      string // finish_reason
	input       int    // usage
	output      int
	outputKnown bool
}

// errFrame says that a payload is no frame in MessagePack.
var errFrame = errors.New("malformed frame")

// readFrame reads a frame in MessagePack and keeps nothing of it. It allocates
// nothing but the code of an error frame.
func readFrame(b []byte, f *frame) error {
	*f = frame{}
	p := parser{b: b}
	n := p.mapLen()
	for range n {
		key := p.str()
		switch string(key) {
		case "type":
			f.kind = intern(p.str())
		case "attempt":
			f.attempt = p.uint()
		case "seq":
			f.seq = p.uint()
		case "index":
			f.index = int(p.uint())
		case "tokens":
			f.tokens = p.ids()
		case "provisional":
			f.provisional = p.flag()
		case "code":
			f.code = string(p.str())
		case "finish_reason":
			f.reason = intern(p.str())
		case "usage":
			for range p.mapLen() {
				switch inner := p.str(); string(inner) {
				case "input_tokens":
					f.input = int(p.uint())
				case "output_tokens":
					f.output, f.outputKnown = int(p.uint()), true
				default:
					p.skip(0)
				}
			}
		default:
			p.skip(0)
		}
		if p.bad {
			return errFrame
		}
	}
	if p.bad || f.kind == "" {
		return errFrame
	}
	return nil
}

// intern returns the text of one of the words that frames repeat, without
// memory of its own.
func intern(b []byte) string {
	switch string(b) {
	case "accepted":
		return "accepted"
	case "token":
		return "token"
	case "heartbeat":
		return "heartbeat"
	case "final":
		return "final"
	case "error":
		return "error"
	case "retry":
		return "retry"
	case "stop":
		return "stop"
	case "length":
		return "length"
	case "cancelled":
		return "cancelled"
	case "deadline":
		return "deadline"
	}
	return string(b)
}

// parser reads MessagePack. After a mistake it is bad and reads zeros.
type parser struct {
	b   []byte
	bad bool
}

// deepest bounds how values nest.
const deepest = 32

func (p *parser) take(n int) []byte {
	if n < 0 || n > len(p.b) {
		p.bad, p.b = true, nil
		return nil
	}
	out := p.b[:n]
	p.b = p.b[n:]
	return out
}

func (p *parser) byte() byte {
	if b := p.take(1); b != nil {
		return b[0]
	}
	return 0xc1 // no value begins with it
}

// size reads a big-endian length of 1, 2 or 4 bytes.
func (p *parser) size(bytes int) int {
	b := p.take(bytes)
	switch {
	case b == nil:
		return 0
	case bytes == 1:
		return int(b[0])
	case bytes == 2:
		return int(binary.BigEndian.Uint16(b))
	case bytes == 4:
		return int(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (p *parser) mapLen() int {
	switch c := p.byte(); {
	case c&0xf0 == 0x80:
		return int(c & 0x0f)
	case c == 0xde:
		return p.size(2)
	case c == 0xdf:
		return p.size(4)
	}
	p.bad = true
	return 0
}

func (p *parser) str() []byte {
	switch c := p.byte(); {
	case c&0xe0 == 0xa0:
		return p.take(int(c & 0x1f))
	case c >= 0xd9 && c <= 0xdb:
		return p.take(p.size(1 << (c - 0xd9)))
	case c == 0xc0: // null
		return nil
	}
	p.bad = true
	return nil
}

// uint reads an integer; what is below 0 is 0.
func (p *parser) uint() uint64 {
	switch c := p.byte(); {
	case c <= 0x7f:
		return uint64(c)
	case c == 0xcc:
		return uint64(p.size(1))
	case c == 0xcd:
		return uint64(p.size(2))
	case c == 0xce:
		return uint64(p.size(4))
	case c == 0xcf, c == 0xd3:
		if b := p.take(8); b != nil {
			return binary.BigEndian.Uint64(b)
		}
		return 0
	case c >= 0xe0, c == 0xc0:
		return 0
	case c >= 0xd0 && c <= 0xd2:
		return uint64(p.size(1 << (c - 0xd0)))
	}
	p.bad = true
	return 0
}

func (p *parser) flag() bool {
	switch p.byte() {
	case 0xc3:
		return true
	case 0xc2, 0xc0:
	default:
		p.bad = true
	}
	return false
}

// ids counts token ids: an array, or a binary of four bytes each.
func (p *parser) ids() int {
	if len(p.b) > 0 && p.b[0] >= 0xc4 && p.b[0] <= 0xc6 {
		c := p.byte()
		n := p.size(1 << (c - 0xc4))
		p.take(n)
		return n / 4
	}
	n := p.arrayLen()
	for range n {
		if p.skip(0); p.bad {
			break
		}
	}
	return n
}

func (p *parser) arrayLen() int {
	switch c := p.byte(); {
	case c&0xf0 == 0x90:
		return int(c & 0x0f)
	case c == 0xdc:
		return p.size(2)
	case c == 0xdd:
		return p.size(4)
	case c == 0xc0:
		return 0
	}
	p.bad = true
	return 0
}

// skip passes over a value at a depth.
func (p *parser) skip(depth int) {
	if depth > deepest || len(p.b) == 0 {
		p.bad, p.b = true, nil
		return
	}
	children := 0
	switch c := p.b[0]; {
	case c&0xf0 == 0x80, c == 0xde, c == 0xdf:
		children = 2 * p.mapLen()
	case c&0xf0 == 0x90, c == 0xdc, c == 0xdd:
		children = p.arrayLen()
	case c&0xe0 == 0xa0, c >= 0xd9 && c <= 0xdb:
		p.str()
	case c >= 0xc4 && c <= 0xc6:
		p.byte()
		p.take(p.size(1 << (c - 0xc4)))
	case c >= 0xc7 && c <= 0xc9:
		p.byte()
		n := p.size(1 << (c - 0xc7))
		p.take(n + 1)
	case c >= 0xd4 && c <= 0xd8:
		p.byte()
		p.take(1 + 1<<(c-0xd4))
	case c == 0xca:
		p.take(5)
	case c == 0xcb:
		p.take(9)
	case c == 0xc1:
		p.bad = true
	case c == 0xc0, c == 0xc2, c == 0xc3:
		p.byte()
	default:
		p.uint()
	}
	for range children {
		if p.skip(depth + 1); p.bad {
			return
		}
	}
}
