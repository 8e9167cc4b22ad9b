package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cellmq/cellmq/models/safetensors"
)

// file builds a file from a header text and a number of value bytes.
func file(header string, values int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, values)...)
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, dtype := range []safetensors.DType{safetensors.F32, safetensors.F16, safetensors.BF16} {
		t.Run(string(dtype), func(t *testing.T) {
			t.Parallel()
			in := []safetensors.Values{
				{Name: "b", DType: dtype, Shape: []int{2, 3}, Data: []float32{1, -2, 0.5, 0, -0.25, 96}},
				{Name: "a", DType: dtype, Shape: []int{1}, Data: []float32{-7}},
				{Name: "scalar", DType: dtype, Data: []float32{3}},
				{Name: "empty", DType: dtype, Shape: []int{0, 4}, Data: nil},
			}
			var buf bytes.Buffer
			if err := safetensors.Write(&buf, in, map[string]string{"format": "pt"}); err != nil {
				t.Fatal(err)
			}
			f, err := safetensors.Parse(buf.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"format": "pt"}, f.Metadata); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
			if got := len(f.Tensors()); got != len(in) {
				t.Fatalf("%d tensors, want %d", got, len(in))
			}
			for _, want := range in {
				got, ok := f.Tensor(want.Name)
				if !ok {
					t.Fatalf("no tensor %q", want.Name)
				}
				if got.DType != dtype || !slices.Equal(got.Shape, want.Shape) || !slices.Equal(got.Float32s(), want.Data) {
					t.Errorf("%s: got %s %v %v, want %v", want.Name, got.DType, got.Shape, got.Float32s(), want)
				}
			}
		})
	}
}

func TestValuesStartAligned(t *testing.T) {
	t.Parallel()
	for n := range 9 {
		var buf bytes.Buffer
		tensor := safetensors.Values{Name: strings.Repeat("x", n+1), DType: safetensors.F32, Shape: []int{1}, Data: []float32{1}}
		if err := safetensors.Write(&buf, []safetensors.Values{tensor}, nil); err != nil {
			t.Fatal(err)
		}
		if start := buf.Len() - 4; start%8 != 0 {
			t.Errorf("values start at byte %d", start)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	ok := safetensors.Values{Name: "a", DType: safetensors.F32, Shape: []int{1}, Data: []float32{1}}
	with := func(change func(*safetensors.Values)) []safetensors.Values {
		v := ok
		change(&v)
		return []safetensors.Values{v}
	}
	tests := map[string][]safetensors.Values{
		"name":      with(func(v *safetensors.Values) { v.Name = "" }),
		"metadata":  with(func(v *safetensors.Values) { v.Name = "__metadata__" }),
		"dtype":     with(func(v *safetensors.Values) { v.DType = "I8" }),
		"shape":     with(func(v *safetensors.Values) { v.Shape = []int{2} }),
		"negative":  with(func(v *safetensors.Values) { v.Shape = []int{-1, -1} }),
		"long name": with(func(v *safetensors.Values) { v.Name = strings.Repeat("n", 100_000) }),
		"long type": with(func(v *safetensors.Values) { v.DType = safetensors.DType(strings.Repeat("F", 100_000)) }),
		"dims":      with(func(v *safetensors.Values) { v.Shape = []int{1, 1, 1, 1, 1, 1, 1, 1, 1} }),
		"duplicate": {ok, ok},
	}
	for name, tensors := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var buf bytes.Buffer
			err := safetensors.Write(&buf, tensors, nil)
			if _, ok := errors.AsType[*safetensors.FormatError](err); !ok {
				t.Fatalf("got %v, want a FormatError", err)
			}
			if len(err.Error()) > 800 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
			if buf.Len() != 0 {
				t.Errorf("%d bytes were written", buf.Len())
			}
		})
	}
}

func TestWriteReportsTheWriter(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	broken := errors.New("broken")
	if err := r.CloseWithError(broken); err != nil {
		t.Fatal(err)
	}
	tensor := safetensors.Values{Name: "a", DType: safetensors.F32, Shape: []int{1}, Data: []float32{1}}
	if err := safetensors.Write(w, []safetensors.Values{tensor}, nil); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const good = `"dtype":"F32","shape":[1],"data_offsets":[0,4]`
	long := strings.Repeat("k", 100_000)
	tests := []struct {
		name          string
		file          []byte
		tensor, field string
	}{
		{"nothing", nil, "", "header length"},
		{"short", []byte{1, 0, 0}, "", "header length"},
		{"header longer than the file", binary.LittleEndian.AppendUint64(nil, 1), "", "header length"},
		{"huge header", binary.LittleEndian.AppendUint64(nil, math.MaxUint64), "", "header length"},
		{"empty header", file("", 0), "", "header"},
		{"space first", file(" {}", 0), "", "header"},
		{"array", file("[]", 0), "", "header"},
		{"cut off", file(`{"a":{`+good, 4), "a", "header"},
		{"trailing", file(`{}{}`, 0), "", "header"},
		{"not a string key", file(`{1:2}`, 0), "", "header"},
		{"tensor is a number", file(`{"a":1}`, 0), "a", "header"},
		{"deep", file(`{"a":`+strings.Repeat("[", 100000), 0), "a", "header"},
		{"deep shape", file(`{"a":{"shape":`+strings.Repeat("[", 100000), 0), "a", "shape"},
		{"missing field", file(`{"a":{"dtype":"F32","shape":[1]}}`, 4), "a", "header"},
		{"unknown field", file(`{"a":{`+good+`,"x":1}}`, 4), "a", "header"},
		{"repeated field", file(`{"a":{`+good+`,"dtype":"F32"}}`, 4), "a", "header"},
		{"repeated name", file(`{"a":{`+good+`},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "a", "name"},
		{"empty name", file(`{"":{`+good+`}}`, 4), "", "tensor name"},
		{"long name", file(`{"`+strings.Repeat("n", 513)+`":{`+good+`}}`, 4), "", "tensor name"},
		{"unknown type", file(`{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}`, 8), "a", "dtype"},
		{"type is a number", file(`{"a":{"dtype":32,"shape":[1],"data_offsets":[0,4]}}`, 4), "a", "dtype"},
		{"negative dimension", file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4), "a", "shape"},
		{"fraction", file(`{"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}}`, 4), "a", "shape"},
		{"exponent", file(`{"a":{"dtype":"F32","shape":[1e0],"data_offsets":[0,4]}}`, 4), "a", "shape"},
		{"dimension is text", file(`{"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}}`, 4), "a", "shape"},
		{"huge dimension", file(`{"a":{"dtype":"F32","shape":[4294967296],"data_offsets":[0,4]}}`, 4), "a", "shape"},
		{"product overflows", file(`{"a":{"dtype":"F32","shape":[2147483647,2147483647,2147483647],"data_offsets":[0,4]}}`, 4), "a", "shape"},
		{"many dimensions", file(`{"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}}`, 4), "a", "shape"},
		{"length disagrees", file(`{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,4]}}`, 4), "a", "data_offsets"},
		{"offsets reversed", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 4), "a", "data_offsets"},
		{"one offset", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}}`, 4), "a", "data_offsets"},
		{"three offsets", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}`, 4), "a", "data_offsets"},
		{"offset beyond int64", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}}`, 4), "a", "data_offsets"},
		{"beyond the file", file(`{"a":{`+good+`}}`, 3), "a", "data_offsets"},
		{"gap at the start", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "a", "data_offsets"},
		{"gap at the end", file(`{"a":{`+good+`}}`, 5), "", "values"},
		{"overlap", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "b", "data_offsets"},
		{"metadata is a number", file(`{"__metadata__":1}`, 0), "", "__metadata__"},
		{"metadata value", file(`{"__metadata__":{"a":1}}`, 0), "", "__metadata__"},
		{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, 0), "", "__metadata__"},
		{"metadata key twice", file(`{"__metadata__":{"a":"","a":""}}`, 0), "", "__metadata__"},
		{"long metadata key twice", file(`{"__metadata__":{"`+long+`":"","`+long+`":""}}`, 0), "", "__metadata__"},
		{"control characters", file(`{"`+strings.Repeat(`\u0001`, 512)+`":1}`, 0), strings.Repeat("\x01", 512), "header"},
		{"long unknown field", file(`{"a":{"`+long+`":1}}`, 0), "a", "header"},
		{"long type", file(`{"a":{"dtype":"`+long+`"}}`, 0), "a", "dtype"},
		{"long text", file(`{"a":"`+long+`"}`, 0), "a", "header"},
		{"long number", file(`{"a":{"shape":[`+strings.Repeat("7", 100_000)+`]}}`, 0), "a", "shape"},
		{"long number for a text", file(`{"a":{"dtype":`+strings.Repeat("7", 100_000)+`}}`, 0), "a", "dtype"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := safetensors.Parse(tt.file)
			fe, ok := errors.AsType[*safetensors.FormatError](err)
			if !ok {
				t.Fatalf("got %v, want a FormatError", err)
			}
			if fe.Tensor != tt.tensor || fe.Field != tt.field {
				t.Errorf("got tensor %q field %q (%v), want %q %q", fe.Tensor, fe.Field, err, tt.tensor, tt.field)
			}
			if len(err.Error()) > 800 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestParsePaddedAndEmpty(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"{}", "{}      ", "{\n}"} {
		f, err := safetensors.Parse(file(header, 0))
		if err != nil {
			t.Errorf("%q: %v", header, err)
		} else if len(f.Tensors()) != 0 {
			t.Errorf("%q has %d tensors", header, len(f.Tensors()))
		}
	}
}

func TestParseAllocatesASmallMultiple(t *testing.T) {
	tests := map[string][]byte{
		"claims much": file(`{"a":{"dtype":"F32","shape":[2147483647,1073741823],"data_offsets":[0,9223372030412324868]}}`, 4),
		"long array":  file(`{"a":{"shape":[`+strings.Repeat("1,", 100_000)+`1]}}`, 0),
		"deep":        file(`{"a":`+strings.Repeat("[", 100_000), 0),
		"long text":   file(`{"a":{"dtype":"`+strings.Repeat("F", 100_000)+`"}}`, 0),
	}
	for name, b := range tests {
		t.Run(name, func(t *testing.T) {
			var err error
			bounded(t, len(b), func() { _, err = safetensors.Parse(b) })
			if err == nil {
				t.Error("accepted")
			}
		})
	}
}

// bounded wants parse to allocate at most 16 bytes for each byte of a file, and
// a small constant. Others may allocate meanwhile, so the least of some runs
// counts.
func bounded(t *testing.T, input int, parse func()) {
	t.Helper()
	for try := 0; ; try++ {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		parse()
		runtime.ReadMemStats(&after)
		got := after.TotalAlloc - before.TotalAlloc
		if got <= uint64(16*input+16<<10) {
			return
		}
		if try == 5 {
			t.Fatalf("a file of %d bytes costs %d bytes", input, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(file("{}", 0))
	f.Add(file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4))
	f.Add(file(`{"a":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},"__metadata__":{"k":"v"}}  `, 4))
	f.Add(file(`{"a":{"dtype":"F16","shape":[0,9],"data_offsets":[0,0]},"b":{"dtype":"F16","shape":[],"data_offsets":[0,2]}}`, 2))
	f.Add(file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,-4]}}`, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		var file *safetensors.File
		var err error
		bounded(t, len(b), func() { file, err = safetensors.Parse(b) })
		if err != nil {
			if _, ok := errors.AsType[*safetensors.FormatError](err); !ok {
				t.Fatalf("%v is no FormatError", err)
			}
			return
		}
		total := 0
		var again []safetensors.Values
		for _, tensor := range file.Tensors() {
			total += tensor.Len() * tensor.DType.Size()
			again = append(again, safetensors.Values{
				Name: tensor.Name, DType: tensor.DType, Shape: tensor.Shape, Data: tensor.Float32s(),
			})
		}
		if total > len(b) {
			t.Fatalf("tensors of %d bytes in a file of %d", total, len(b))
		}
		var buf bytes.Buffer
		if err := safetensors.Write(&buf, again, file.Metadata); err != nil {
			t.Fatal(err)
		}
		if _, err := safetensors.Parse(buf.Bytes()); err != nil {
			t.Fatal(err)
		}
	})
}
