//go:build unix

package kernel

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fence is memory between two pages that must not be touched.
type fence struct{ inside []byte }

func newFence(t *testing.T, bytes int) fence {
	t.Helper()
	page := unix.Getpagesize()
	size := (bytes + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(all); err != nil {
			t.Error(err)
		}
	})
	for _, guard := range [][]byte{all[:page], all[page+size:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return fence{inside: all[page : page+size]}
}

// atStart returns n values that begin right after the first guard.
func (f fence) atStart(n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&f.inside[0])), len(f.inside)/4)[:n:n]
}

// atEnd returns n values that end right before the last guard.
func (f fence) atEnd(n int) []float32 {
	all := f.atStart(len(f.inside) / 4)
	return all[len(all)-n:]
}

// fenced returns a copy of values that ends right before memory that cannot be
// touched, or starts right after it.
func fenced[T any](t *testing.T, values []T, end bool) []T {
	t.Helper()
	size := len(values) * int(unsafe.Sizeof(values[0]))
	inside := newFence(t, size).inside
	if end {
		inside = inside[len(inside)-size:]
	}
	out := unsafe.Slice((*T)(unsafe.Pointer(&inside[0])), len(values))
	copy(out, values)
	return out
}
