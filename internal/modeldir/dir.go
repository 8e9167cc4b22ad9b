package modeldir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Dir is a model's directory on disk. Nothing outside it is opened, and no open
// waits for the other end of a named pipe. It is safe for concurrent use.
type Dir struct{ root *os.Root }

var _ fs.StatFS = (*Dir)(nil)

// Open opens a directory, whose own path may have links in it. The caller closes
// it.
func Open(path string) (*Dir, error) {
	s, err := os.Stat(path) // to open a named pipe would wait
	if err == nil && !s.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("no directory")}
	}
	if err != nil {
		return nil, fmt.Errorf("open model directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open model directory: %w", err)
	}
	return &Dir{root: root}, nil
}

// Close ends the use of the directory. Files that are open stay open.
func (d *Dir) Close() error { return d.root.Close() }

// Open opens a regular file or a directory for reading.
func (d *Dir) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	s, err := f.Stat()
	if err == nil && !s.IsDir() && !s.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: irregular(s.Mode())}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Stat describes what a name leads to, without opening it.
func (d *Dir) Stat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
	}
	return d.root.Stat(name)
}
