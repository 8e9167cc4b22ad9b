//go:build unix

package models

import (
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cellmq/cellmq/internal/modeldir"
)

// maxMappedBytes is the largest file that is mapped.
const maxMappedBytes = min(maxWeightsBytes, math.MaxInt)

// mapFile maps a file of a directory for reading. It returns nil when the file is
// not one to map or the system refuses: then the file is read.
func mapFile(dir *modeldir.Dir, name string) []byte {
	opened, err := dir.Open(name)
	if err != nil {
		return nil
	}
	defer func() { _ = opened.Close() }() // the mapping outlives it
	f, ok := opened.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > maxMappedBytes {
		return nil
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	return b
}

// unmap ends a mapping; nil is none.
func unmap(b []byte) error {
	if b == nil {
		return nil
	}
	return unix.Munmap(b)
}
