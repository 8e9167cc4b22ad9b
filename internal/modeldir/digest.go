package modeldir

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// Digest makes the digest of a model's directory: the SHA-256 of, for each file in
// the order of names, the length of the name and of the content (each eight bytes,
// the highest first), the name and the content. No two directories with different
// files look the same. It is for one goroutine.
type Digest struct{ hash hash.Hash }

// NewDigest returns the digest of no files.
func NewDigest() *Digest { return &Digest{hash: sha256.New()} }

// File begins a file, whose size bytes are then written.
func (d *Digest) File(name string, size int64) {
	var lengths [16]byte
	binary.BigEndian.PutUint64(lengths[:8], uint64(len(name)))
	binary.BigEndian.PutUint64(lengths[8:], uint64(size))
	d.hash.Write(lengths[:])
	d.hash.Write([]byte(name))
}

// Write adds content. It never fails.
func (d *Digest) Write(content []byte) (int, error) { return d.hash.Write(content) }

// Sum is the digest of what was written, in hexadecimal.
func (d *Digest) Sum() string { return hex.EncodeToString(d.hash.Sum(nil)) }
