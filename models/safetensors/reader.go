package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/cellmq/cellmq/models/internal/brief"
)

// Bounds of a file's header.
const (
	// MaxHeaderBytes is the longest header.
	MaxHeaderBytes = 16 << 20
	// MaxDims is the most dimensions that a tensor can have.
	MaxDims = 8
	// MaxNameBytes is the longest tensor name.
	MaxNameBytes = 512
)

const metadataKey = "__metadata__"

// Tensor is one tensor of a [File].
type Tensor struct {
	Name  string
	DType DType
	// Shape are the dimensions, outermost first. Empty is a single value.
	Shape []int

	begin, end uint64
	bytes      []byte
}

// Len returns the number of values.
func (t *Tensor) Len() int { return len(t.bytes) / t.DType.Size() }

// Float32s returns the values, row-major, converted to float32. The slice is
// the caller's.
func (t *Tensor) Float32s() []float32 {
	values := make([]float32, t.Len())
	t.DType.decode(values, t.bytes)
	return values
}

// NotFinite returns the index of the first value, row-major, that is infinite or
// not a number. It reports false when there is none.
func (t *Tensor) NotFinite() (index int, found bool) {
	for i := range t.Len() {
		if !t.DType.finite(t.bytes, i) {
			return i, true
		}
	}
	return 0, false
}

// File is the contents of a safetensors file. It is read-only and safe for
// concurrent use.
type File struct {
	// Metadata are the header's free texts; nil when it has none.
	Metadata map[string]string

	tensors []*Tensor
	byName  map[string]*Tensor
}

// Tensors returns the tensors in the order of their names. The slice is the
// file's own.
func (f *File) Tensors() []*Tensor { return f.tensors }

// Tensor returns the tensor of the given name.
func (f *File) Tensor(name string) (*Tensor, bool) {
	t, ok := f.byName[name]
	return t, ok
}

// Parse reads a file's contents. The result refers to b, which must not change
// while it is used. Any error is a [*FormatError].
func Parse(b []byte) (*File, error) {
	if len(b) < 8 {
		return nil, formatErrorf("", "header length", "the file has %d bytes, at least 8 wanted", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > MaxHeaderBytes || n > uint64(len(b)-8) {
		return nil, formatErrorf("", "header length", "%d bytes, at most %d and no more than the file's %d wanted",
			n, MaxHeaderBytes, len(b)-8)
	}
	f := &File{byName: make(map[string]*Tensor)}
	if err := f.readHeader(b[8 : 8+n]); err != nil {
		return nil, err
	}
	if err := f.place(b[8+n:]); err != nil {
		return nil, err
	}
	slices.SortFunc(f.tensors, func(a, b *Tensor) int { return cmp.Compare(a.Name, b.Name) })
	return f, nil
}

// place checks that the tensors cover values one after the other and gives
// each its bytes.
func (f *File) place(values []byte) error {
	slices.SortFunc(f.tensors, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	end := uint64(0)
	for _, t := range f.tensors {
		if t.begin != end {
			return formatErrorf(t.Name, "data_offsets", "starts at %d, the tensor before it ends at %d", t.begin, end)
		}
		if t.end > uint64(len(values)) {
			return formatErrorf(t.Name, "data_offsets", "ends at %d, the file at %d", t.end, len(values))
		}
		t.bytes = values[t.begin:t.end:t.end]
		end = t.end
	}
	if end != uint64(len(values)) {
		return formatErrorf("", "values", "the tensors end at %d, the file at %d", end, len(values))
	}
	return nil
}

// header reads a header token by token, so that its nesting cannot exceed
// what the format has.
type header struct{ dec *json.Decoder }

func (f *File) readHeader(b []byte) error {
	if len(b) == 0 || b[0] != '{' {
		return formatErrorf("", "header", "does not start with {")
	}
	h := header{json.NewDecoder(bytes.NewReader(b))}
	h.dec.UseNumber()
	if err := h.delim("", "header", '{'); err != nil {
		return err
	}
	for h.dec.More() {
		name, err := h.string("", "header")
		if err != nil {
			return err
		}
		if name == metadataKey {
			err = f.readMetadata(h)
		} else {
			err = f.readTensor(h, name)
		}
		if err != nil {
			return err
		}
	}
	if err := h.delim("", "header", '}'); err != nil {
		return err
	}
	if _, err := h.dec.Token(); !errors.Is(err, io.EOF) {
		return formatErrorf("", "header", "something follows the closing }")
	}
	return nil
}

func (f *File) readMetadata(h header) error {
	if f.Metadata != nil {
		return formatErrorf("", metadataKey, "appears twice")
	}
	f.Metadata = make(map[string]string)
	if err := h.delim("", metadataKey, '{'); err != nil {
		return err
	}
	for h.dec.More() {
		key, err := h.string("", metadataKey)
		if err != nil {
			return err
		}
		if _, dup := f.Metadata[key]; dup {
			return formatErrorf("", metadataKey, "key %.64q appears twice", key)
		}
		if f.Metadata[key], err = h.string("", metadataKey); err != nil {
			return err
		}
	}
	return h.delim("", metadataKey, '}')
}

func (f *File) readTensor(h header, name string) error {
	if name == "" || len(name) > MaxNameBytes {
		return formatErrorf("", "tensor name", "%d bytes, 1 to %d wanted", len(name), MaxNameBytes)
	}
	if _, dup := f.byName[name]; dup {
		return formatErrorf(name, "name", "appears twice")
	}
	if err := h.delim(name, "header", '{'); err != nil {
		return err
	}
	t := &Tensor{Name: name}
	var hasType, hasShape, hasOffsets bool
	for h.dec.More() {
		key, err := h.string(name, "header")
		if err != nil {
			return err
		}
		switch {
		case key == "dtype" && !hasType:
			hasType = true
			err = t.readType(h)
		case key == "shape" && !hasShape:
			hasShape = true
			err = t.readShape(h)
		case key == "data_offsets" && !hasOffsets:
			hasOffsets = true
			err = t.readOffsets(h)
		default:
			err = formatErrorf(name, "header", "unknown or repeated key %.64q", key)
		}
		if err != nil {
			return err
		}
	}
	if !hasType || !hasShape || !hasOffsets {
		return formatErrorf(name, "header", "dtype, shape and data_offsets wanted")
	}
	f.byName[name] = t
	f.tensors = append(f.tensors, t)
	if err := t.checkLength(); err != nil {
		return err
	}
	return h.delim(name, "header", '}')
}

func (t *Tensor) readType(h header) error {
	name, err := h.string(t.Name, "dtype")
	if err != nil {
		return err
	}
	t.DType = DType(name)
	if t.DType.Size() == 0 {
		return formatErrorf(t.Name, "dtype", "%.32q, one of F32, F16 and BF16 wanted", name)
	}
	return nil
}

func (t *Tensor) readShape(h header) error {
	dims, err := h.integers(t.Name, "shape", MaxDims)
	if err != nil {
		return err
	}
	t.Shape = make([]int, len(dims))
	for i, d := range dims {
		if d > math.MaxInt32 {
			return formatErrorf(t.Name, "shape", "dimension %d, at most %d wanted", d, math.MaxInt32)
		}
		t.Shape[i] = int(d)
	}
	return nil
}

func (t *Tensor) readOffsets(h header) error {
	offsets, err := h.integers(t.Name, "data_offsets", 2)
	if err != nil {
		return err
	}
	if len(offsets) != 2 || offsets[0] > offsets[1] {
		return formatErrorf(t.Name, "data_offsets", "%v, a start and an end wanted", offsets)
	}
	t.begin, t.end = offsets[0], offsets[1]
	return nil
}

// checkLength compares the byte length that the offsets claim with the one
// that the type and the shape imply.
func (t *Tensor) checkLength() error {
	want := uint64(t.DType.Size())
	for _, d := range t.Shape {
		if d > 0 && want > math.MaxInt64/uint64(d) {
			return formatErrorf(t.Name, "shape", "%v has more than %d bytes", t.Shape, int64(math.MaxInt64))
		}
		want *= uint64(d)
	}
	if got := t.end - t.begin; got != want {
		return formatErrorf(t.Name, "data_offsets", "%d bytes, %s %v has %d", got, t.DType, t.Shape, want)
	}
	return nil
}

func (h header) token(tensor, field string) (json.Token, error) {
	tok, err := h.dec.Token()
	if err != nil {
		return nil, formatErrorf(tensor, field, "%v", brief.Error(err))
	}
	return tok, nil
}

func (h header) delim(tensor, field string, want json.Delim) error {
	tok, err := h.token(tensor, field)
	if err != nil {
		return err
	}
	if tok != want {
		return formatErrorf(tensor, field, "%.64v in place of %v", tok, want)
	}
	return nil
}

func (h header) string(tensor, field string) (string, error) {
	tok, err := h.token(tensor, field)
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", formatErrorf(tensor, field, "%.64v in place of a string", tok)
	}
	return s, nil
}

// integers reads an array of at most limit integers that are not negative.
func (h header) integers(tensor, field string, limit int) ([]uint64, error) {
	if err := h.delim(tensor, field, '['); err != nil {
		return nil, err
	}
	var values []uint64
	for h.dec.More() {
		tok, err := h.token(tensor, field)
		if err != nil {
			return nil, err
		}
		number, ok := tok.(json.Number)
		if !ok {
			return nil, formatErrorf(tensor, field, "%.64v in place of a number", tok)
		}
		v, err := strconv.ParseUint(number.String(), 10, 63)
		if err != nil {
			return nil, formatErrorf(tensor, field, "%.64s, an integer from 0 to 2^63-1 wanted", number)
		}
		if len(values) == limit {
			return nil, formatErrorf(tensor, field, "more than %d numbers", limit)
		}
		values = append(values, v)
	}
	return values, h.delim(tensor, field, ']')
}
