package cpu

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"runtime"
	"sync"
	"unsafe"
	"weak"

	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

// block is a piece of weights that steps hold: a packed matrix, or values. It is
// read-only, and belongs to all executables that hold it.
type block struct {
	matrix *kernel.Matrix
	values []float32
	bytes  int64
}

func matrixBlock(m *kernel.Matrix) *block { return &block{matrix: m, bytes: m.Bytes()} }

func valuesBlock(v []float32) *block { return &block{values: v, bytes: int64(len(v)) * 4} }

// blockKey is the SHA-256 of what a block is made from. Blocks of one backend
// with equal keys are taken to be equal.
type blockKey [sha256.Size]byte

// shares are the blocks of a backend's executables. It keeps none of them: a
// block goes with the last executable that holds it. It is safe for concurrent
// use.
type shares struct {
	mu     sync.Mutex
	blocks map[blockKey]weak.Pointer[block]
}

// get returns the block of a key, made by pack if there is none. Two calls at
// the same moment may both make one, and return the same.
func (s *shares) get(key blockKey, pack func() *block) *block {
	if b := s.find(key); b != nil {
		return b
	}
	made := pack()
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.blocks[key].Value(); b != nil {
		return b
	}
	if s.blocks == nil {
		s.blocks = map[blockKey]weak.Pointer[block]{}
	}
	entry := weak.Make(made)
	s.blocks[key] = entry
	runtime.AddCleanup(made, func(gone weak.Pointer[block]) { s.forget(key, gone) }, entry)
	return made
}

func (s *shares) find(key blockKey) *block {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocks[key].Value()
}

// forget removes the entry of a block that is gone, unless the key has got
// another block since.
func (s *shares) forget(key blockKey, gone weak.Pointer[block]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blocks[key] == gone {
		delete(s.blocks, key)
	}
}

// The kinds of blocks, the first number of what a key is made of.
const (
	valuesKind = iota
	matrixKind
)

// valuesKey is the key of values as they are.
func valuesKey(v []float32) blockKey {
	h := newKeyHash(valuesKind, len(v))
	_, _ = h.Write(bytesOf(v))
	return blockKey(h.Sum(nil))
}

// matrixKey is the key of a matrix packed in a format: of its shape, of which
// outputs stand where, and of the columns that are packed.
func matrixKey(f kernel.Format, w kernel.Weights, panels []kernel.Panel) blockKey {
	outputs := len(w.Data) / w.Stride
	head := []int{matrixKind, int(f), outputs, w.K, len(panels)}
	for _, p := range panels {
		head = append(head, p.First, p.Count)
	}
	h := newKeyHash(head...)
	if w.K == w.Stride {
		_, _ = h.Write(bytesOf(w.Data))
		return blockKey(h.Sum(nil))
	}
	for n := range outputs {
		from := n*w.Stride + w.From
		_, _ = h.Write(bytesOf(w.Data[from : from+w.K]))
	}
	return blockKey(h.Sum(nil))
}

// newKeyHash returns a hash that has taken numbers which are not negative.
func newKeyHash(numbers ...int) hash.Hash {
	var buffer []byte
	for _, n := range numbers {
		buffer = binary.AppendUvarint(buffer, uint64(n))
	}
	h := sha256.New()
	_, _ = h.Write(buffer)
	return h
}

// bytesOf returns the memory of v. Keys do not leave the process, so the order
// of the bytes does not matter.
func bytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*4)
}
