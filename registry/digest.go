package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cellmq/cellmq/internal/modeldir"
)

// scan fills in the files of a directory and returns its digest.
func scan(ctx context.Context, files fs.FS, m *Manifest) (string, error) {
	listed, err := modeldir.List(files)
	if e, ok := errors.AsType[*modeldir.Error](err); ok {
		return "", fmt.Errorf("files: %w: %w", e, ErrMalformed)
	}
	if err != nil {
		return "", err
	}
	m.Files = nil
	d := modeldir.NewDigest()
	for _, l := range listed {
		d.File(l.Name, l.Size)
		f, err := scanFile(ctx, files, l.Name, l.Size, d)
		if err != nil {
			return "", fmt.Errorf("read %s: %w", l.Name, err)
		}
		m.Files = append(m.Files, f)
	}
	return d.Sum(), nil
}

// scanFile hashes a file and its parts in one pass.
func scanFile(ctx context.Context, files fs.FS, name string, size int64, all io.Writer) (f File, err error) {
	f = File{Name: name, Size: size, Parts: make([]string, 0, partsOf(size))}
	in, err := files.Open(name)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	whole, one := sha256.New(), sha256.New()
	for offset := int64(0); offset < size; offset += PartBytes {
		if err := ctx.Err(); err != nil {
			return f, err
		}
		one.Reset()
		if _, err := io.CopyN(io.MultiWriter(all, whole, one), in, min(PartBytes, size-offset)); err != nil {
			return f, shorter(err)
		}
		f.Parts = append(f.Parts, hex.EncodeToString(one.Sum(nil)))
	}
	f.SHA256 = hex.EncodeToString(whole.Sum(nil))
	return f, ended(in)
}

// ended checks that a file has no more bytes than it had.
func ended(in io.Reader) error {
	var more [1]byte
	n, err := in.Read(more[:])
	if n == 0 && errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("it grew: %w", ErrChanged)
}

// shorter tells a file that has fewer bytes than it had from other errors.
func shorter(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it shrank: %w", ErrChanged)
	}
	return err
}

// readPart reads a part of a file into buffer, which is large enough, and compares
// it with what it was.
func readPart(files fs.FS, p part, buffer []byte) (data []byte, err error) {
	in, err := files.Open(p.file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	data = buffer[:p.size]
	if at, ok := in.(io.ReaderAt); ok {
		_, err = io.ReadFull(io.NewSectionReader(at, p.offset, p.size), data)
	} else if _, err = io.CopyN(io.Discard, in, p.offset); err == nil {
		_, err = io.ReadFull(in, data)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p.file, shorter(err))
	}
	if sum := sumOf(data); sum != p.sum {
		return nil, fmt.Errorf("%s at %d: %s, was %s: %w", p.file, p.offset, sum, p.sum, ErrChanged)
	}
	return data, nil
}
