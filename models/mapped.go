package models

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Dir is a model's directory on disk whose weights file is mapped into memory
// instead of read, where the system can do that: what a model keeps of it until
// [Model.Close] is the system's page cache and not the process's own memory. It
// is safe for concurrent use.
type Dir struct {
	root    fs.FS
	weights []byte // of the weights file; nil where it is not mapped

	mu     sync.Mutex
	models int // that use the mapping
	closed bool
}

var _ fs.FS = (*Dir)(nil)

// errDirClosed is the error of a load from a directory that is closed.
var errDirClosed = errors.New("the model's directory is closed")

// OpenDir opens a model's directory for [Load]. Nothing may write to its files
// until [Dir.Close]: a weights file that changes in place changes the model, and
// one that gets shorter ends the process. It is for directories that are made
// whole under another name and never touched again. It fails when there is no
// such directory; all else is left to Load.
func OpenDir(dir string) (*Dir, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: dir, Err: errors.New("no directory")}
	}
	if err != nil {
		return nil, fmt.Errorf("open model directory: %w", err)
	}
	return &Dir{root: os.DirFS(dir), weights: mapFile(filepath.Join(dir, weightsFile))}, nil
}

// Open opens a file of the directory.
func (d *Dir) Open(name string) (fs.File, error) { return d.root.Open(name) }

// Close unmaps the weights. It fails, and changes nothing, while a model that
// was loaded from the directory is not closed or one is being loaded.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if d.models > 0 {
		return fmt.Errorf("close model directory: %d models use it", d.models)
	}
	if err := unmap(d.weights); err != nil {
		return fmt.Errorf("close model directory: unmap %s: %w", weightsFile, err)
	}
	d.weights, d.closed = nil, true
	return nil
}

// use counts a model that is loaded from the directory.
func (d *Dir) use() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errDirClosed
	}
	d.models++
	return nil
}

// drop ends a use.
func (d *Dir) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.models--
}
