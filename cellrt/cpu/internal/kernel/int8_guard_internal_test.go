//go:build unix

package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// int8Fence makes slices that end where a page starts that cannot be touched,
// or start where one ends.
type int8Fence struct {
	t     *testing.T
	atEnd bool
}

func int8Fenced[T any](f int8Fence, values []T) []T {
	f.t.Helper()
	page := unix.Getpagesize()
	size := len(values) * int(unsafe.Sizeof(values[0]))
	pages := (size + page - 1) / page
	memory, err := unix.Mmap(-1, 0, (pages+2)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		f.t.Fatalf("map memory: %v", err)
	}
	f.t.Cleanup(func() {
		if err := unix.Munmap(memory); err != nil {
			f.t.Errorf("unmap memory: %v", err)
		}
	})
	for _, fence := range [][]byte{memory[:page], memory[(pages+1)*page:]} {
		if err := unix.Mprotect(fence, unix.PROT_NONE); err != nil {
			f.t.Fatalf("protect memory: %v", err)
		}
	}
	from := page
	if f.atEnd {
		from = (pages+1)*page - size
	}
	out := unsafe.Slice((*T)(unsafe.Pointer(&memory[from])), len(values))
	copy(out, values)
	return out
}

func int8Random(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// Products and conversions stay inside all of their buffers.
func TestInt8Fences(t *testing.T) {
	t.Parallel()
	for _, table := range Tables() {
		for _, atEnd := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", table.Name, atEnd), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(1, 2))
				for _, k := range []int{1, 2, 3, 4, 5, 15, 16, 17, 31, 47, 64, 65, 130, 5001} {
					for _, rows := range []int{1, 2, 3, 4, 6, 7, 11, 14, 20} {
						fencedInt8(int8Fence{t, atEnd}, rng, table, k, rows)
					}
				}
			})
		}
	}
}

func fencedInt8(f int8Fence, rng *rand.Rand, table *Table, k, rows int) {
	f.t.Helper()
	const n = 5*32 - 3
	m := table.Pack(Int8, Weights{Data: int8Random(rng, n*k), Stride: k, K: k}, table.Plain(n))
	width := len(m.Panels) * table.Width
	bias := int8Random(rng, width)
	var in Input
	in.Reset(table, Int8, Rows{Data: int8Random(rng, rows*k), Stride: k}, rows, k)
	in.Prepare(0, rows)
	want := Rows{Data: make([]float32, rows*width), Stride: width}
	m.Product(want, Rows{Data: bias}, &in, rows, 0, len(m.Panels))

	m.int8.codes = int8Fenced(f, m.int8.codes)
	m.int8.scales = int8Fenced(f, m.int8.scales)
	m.int8.start = int8Fenced(f, m.int8.start)
	in.x.Data = int8Fenced(f, in.x.Data)
	in.codes = int8Fenced(f, make([]byte, len(in.codes)))
	in.scales = int8Fenced(f, make([]float32, len(in.scales)))
	in.Prepare(0, rows)
	y := Rows{Data: int8Fenced(f, make([]float32, len(want.Data))), Stride: width}
	m.Product(y, Rows{Data: int8Fenced(f, bias)}, &in, rows, 0, len(m.Panels))
	for i := range want.Data {
		if y.Data[i] != want.Data[i] {
			f.t.Fatalf("%s, %d inputs, %d rows: value %d is %v, want %v", table.Name, k, rows, i, y.Data[i], want.Data[i])
		}
	}
}
