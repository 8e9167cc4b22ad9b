package models

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"

	"github.com/cellmq/cellmq/models/safetensors"
)

// Digest returns what [Model.Digest] is for the model in fsys, without loading
// it: nothing is checked but that the files can be read.
func Digest(fsys fs.FS) (string, error) {
	d, err := (&source{fsys: fsys}).digest()
	if err != nil {
		return "", fmt.Errorf("digest of a model's files: %w", err)
	}
	return d, nil
}

// source is a directory while a model is loaded from it. The weights are read
// once: what is hashed is what was parsed.
type source struct {
	fsys fs.FS
	// weights is the content of the weights file; nil until it was read.
	weights []byte
}

// tensors reads the model's tensors.
func (s *source) tensors() (*safetensors.File, error) {
	if d, ok := s.fsys.(*Dir); ok {
		s.weights = d.weights
	}
	if s.weights == nil {
		var err error
		if s.weights, err = readFile(s.fsys, weightsFile, min(maxWeightsBytes, math.MaxInt)); err != nil {
			return nil, err
		}
	}
	tensors, err := safetensors.Parse(s.weights)
	if err != nil {
		return nil, &ConfigError{File: weightsFile, Err: err}
	}
	return tensors, nil
}

// hash returns the digest, and the SHA-256 of the weights, which were read, in
// hexadecimal. Either takes the more time the larger the weights are, so they
// are made at the same time.
func (s *source) hash() (digest, weightsSum string, err error) {
	made := make(chan string)
	go func() {
		sum := sha256.Sum256(s.weights)
		made <- hex.EncodeToString(sum[:])
	}()
	digest, err = s.digest()
	return digest, <-made, err
}

// hidden says whether a name is none of a model's: editors and tools leave
// files and links of such names, which may lead nowhere and are not looked at.
func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// digest hashes names and contents, each after its length, so that no two
// directories with different files look the same. Hidden files and
// sub-directories are none of it.
func (s *source) digest() (string, error) {
	entries, err := fs.ReadDir(s.fsys, ".")
	if err != nil {
		return "", fmt.Errorf("read directory: %w", err)
	}
	h := sha256.New()
	for _, e := range entries {
		if hidden(e.Name()) {
			continue
		}
		if e.Name() == weightsFile && s.weights != nil {
			writeLengths(h, weightsFile, int64(len(s.weights)))
			h.Write(s.weights)
			continue
		}
		info, err := fs.Stat(s.fsys, e.Name())
		if err != nil {
			return "", &ConfigError{File: e.Name(), Err: err}
		}
		if !info.Mode().IsRegular() {
			continue
		}
		writeLengths(h, e.Name(), info.Size())
		if err := hashFile(h, s.fsys, e.Name()); err != nil {
			return "", &ConfigError{File: e.Name(), Err: err}
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// writeLengths writes what stands before a file's content: both lengths and the
// name.
func writeLengths(w io.Writer, name string, size int64) {
	var lengths [16]byte
	binary.BigEndian.PutUint64(lengths[:8], uint64(len(name)))
	binary.BigEndian.PutUint64(lengths[8:], uint64(size))
	_, _ = w.Write(append(lengths[:], name...)) // a hash never fails
}

func hashFile(w io.Writer, fsys fs.FS, name string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return errors.Join(err, f.Close())
}
