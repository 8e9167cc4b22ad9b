package safetensors_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/cellmq/cellmq/models/safetensors"
)

// TestViewEqualsCopy reads a file whose values begin at each address modulo
// four, because its header is padded and it lies so far into a buffer.
func TestViewEqualsCopy(t *testing.T) {
	t.Parallel()
	values := []float32{1, -0.5, float32(math.Inf(-1)), 0x1p-140, 3.25, math.MaxFloat32}
	for padding := range 4 {
		header := `{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}`
		header += strings.Repeat(" ", (8-len(header)%8)%8+padding)
		b := file(header, 24)
		var raw bytes.Buffer
		if err := safetensors.Write(&raw, []safetensors.Values{{Name: "a", DType: safetensors.F32, Shape: []int{2, 3}, Data: values}}, nil); err != nil {
			t.Fatal(err)
		}
		copy(b[len(b)-24:], raw.Bytes()[raw.Len()-24:])
		for shift := range 4 {
			buffer := make([]byte, 8+len(b))
			at := buffer[shift : shift+len(b)]
			copy(at, b)
			f, err := safetensors.Parse(at)
			if err != nil {
				t.Fatal(err)
			}
			tensor, _ := f.Tensor("a")
			view, ok := tensor.View()
			begin := uintptr(unsafe.Pointer(&at[len(at)-24]))
			if aligned := begin%4 == 0; ok != aligned {
				t.Errorf("padding %d, shift %d: view %t at address %#x", padding, shift, ok, begin)
			}
			if !slices.Equal(tensor.Float32s(), values) {
				t.Errorf("padding %d, shift %d: copied %v", padding, shift, tensor.Float32s())
			}
			if !ok {
				continue
			}
			if !slices.Equal(view, values) || cap(view) != len(view) || uintptr(unsafe.Pointer(&view[0])) != begin {
				t.Errorf("padding %d, shift %d: view %v of %d", padding, shift, view, cap(view))
			}
		}
	}
}

// TestViewOfOthers has what cannot be looked at in place, and nothing at all.
func TestViewOfOthers(t *testing.T) {
	t.Parallel()
	f, err := safetensors.Parse(file(`{"e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},"h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"m":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]}}`, 8))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"e": true, "h": false, "m": false} {
		tensor, _ := f.Tensor(name)
		if view, ok := tensor.View(); ok != want || len(view) != 0 || ok && view == nil {
			t.Errorf("%s: view %v, %t", name, view, ok)
		}
	}
}
