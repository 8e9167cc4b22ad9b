package safetensors

import (
	"encoding/binary"
	"unsafe"
)

// View returns the values, row-major, as they lie in the file's bytes, without
// a copy. It reports false when they cannot be used there: their type is not
// [F32], their address is no multiple of four, or the machine is big-endian.
// The slice lives as long as those bytes and must not be changed.
func (t *Tensor) View() ([]float32, bool) {
	if t.DType != F32 || !littleEndian() {
		return nil, false
	}
	if len(t.bytes) == 0 {
		return []float32{}, true
	}
	start := unsafe.Pointer(unsafe.SliceData(t.bytes))
	if uintptr(start)%unsafe.Alignof(float32(0)) != 0 {
		return nil, false
	}
	return unsafe.Slice((*float32)(start), t.Len()), true
}

// littleEndian reports whether this machine keeps the low byte first.
func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }
