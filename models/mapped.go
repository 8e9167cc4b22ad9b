package models

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/cellmq/cellmq/internal/modeldir"
)

// Dir is a model's directory on disk whose weights file is mapped into memory
// instead of read, where the system can do that: what a model keeps of it until
// [Model.Close] is the system's page cache and not the process's own memory. It
// is safe for concurrent use.
type Dir struct {
	root    *modeldir.Dir
	weights []byte // of the weights file; nil where it is not mapped

	mu     sync.Mutex
	models int // that use the mapping
	closed bool
}

var _ fs.StatFS = (*Dir)(nil)

// errDirClosed is the error of a load from a directory that is closed.
var errDirClosed = errors.New("the model's directory is closed")

// OpenDir opens a model's directory for [Load]. Nothing may write to its files
// until [Dir.Close]: a weights file that changes in place changes the model, and
// one that gets shorter ends the process. It is for directories that are made
// whole under another name and never touched again. It fails when there is no
// such directory; all else is left to Load.
func OpenDir(dir string) (*Dir, error) {
	root, err := modeldir.Open(dir)
	if err != nil {
		return nil, err
	}
	return &Dir{root: root, weights: mapFile(root, weightsFile)}, nil
}

// Open opens a file of the directory; nothing outside it.
func (d *Dir) Open(name string) (fs.File, error) { return d.root.Open(name) }

// Stat describes what a name leads to.
func (d *Dir) Stat(name string) (fs.FileInfo, error) { return d.root.Stat(name) }

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
	if err := d.root.Close(); err != nil {
		return fmt.Errorf("close model directory: %w", err)
	}
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
