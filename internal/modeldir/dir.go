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
		return nil, d.explain("open", name, err)
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
	s, err := d.root.Stat(name)
	if err != nil {
		return nil, d.explain("stat", name, err)
	}
	return s, nil
}

// linkError says that a name is a link that leads nowhere, or outside the
// directory, and what helps: a cache of downloads has such links.
type linkError struct{ cause error }

// Error says so.
func (e *linkError) Error() string {
	return fmt.Sprintf("symbolic link: %v, one to a file of the directory wanted; 'cp -rL DIR COPY' makes a copy with the files themselves", e.cause)
}

// Unwrap returns why the link is not followed.
func (e *linkError) Unwrap() error { return e.cause }

// explain names the link where a name that could not be opened is one.
func (d *Dir) explain(op, name string, err error) error {
	if s, failed := d.root.Lstat(name); failed == nil && s.Mode()&fs.ModeSymlink != 0 {
		return &fs.PathError{Op: op, Path: name, Err: &linkError{cause(err)}}
	}
	return err
}
