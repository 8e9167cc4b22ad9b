package models

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"

	"github.com/cellmq/cellmq/internal/modeldir"
	"github.com/cellmq/cellmq/models/safetensors"
)

// Digest returns what [Model.Digest] is for the model in fsys, without loading
// it: nothing is checked but that the files are ones that a model can have, and
// can be read.
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
	// strict: weights that are not finite are refused.
	strict bool
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
	if !s.strict {
		return tensors, nil
	}
	for _, t := range tensors.Tensors() {
		if i, found := t.NotFinite(); found {
			return nil, &ConfigError{File: weightsFile, Field: fmt.Sprintf("%.64q", t.Name), Err: fmt.Errorf("the value at index %d of shape %v is not finite", i, t.Shape)}
		}
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

// digest hashes the files that the directory holds, which must be ones that a
// model can have.
func (s *source) digest() (string, error) {
	files, err := modeldir.List(s.fsys)
	if e, ok := errors.AsType[*modeldir.Error](err); ok {
		return "", &ConfigError{File: fileName(e.File), Err: e.Err}
	}
	if err != nil {
		return "", err
	}
	d := modeldir.NewDigest()
	for _, f := range files {
		if f.Name == weightsFile && s.weights != nil {
			d.File(weightsFile, int64(len(s.weights)))
			_, _ = d.Write(s.weights) // a hash never fails
			continue
		}
		d.File(f.Name, f.Size)
		if err := copyFile(d, s.fsys, f.Name); err != nil {
			return "", &ConfigError{File: f.Name, Err: err}
		}
	}
	return d.Sum(), nil
}

// fileName is how an error names a file of any name: a valid one as it is.
func fileName(name string) string {
	if modeldir.ValidName(name) {
		return name
	}
	return fmt.Sprintf("%.64q", name)
}

func copyFile(w io.Writer, fsys fs.FS, name string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return errors.Join(err, f.Close())
}
