package safetensors

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Values is a tensor to be written.
type Values struct {
	Name string
	// DType is the storage type; Data is rounded to it.
	DType DType
	Shape []int
	// Data are the values, row-major.
	Data []float32
}

// entry is a tensor in the header.
type entry struct {
	DType   DType     `json:"dtype"`
	Shape   []int     `json:"shape"`
	Offsets [2]uint64 `json:"data_offsets"`
}

// Write writes a file with the given tensors, in the order of their names.
// Metadata may be nil. It fails before writing anything when a tensor's type is
// unknown, its shape does not fit its values, or two have the same name.
func Write(w io.Writer, tensors []Values, metadata map[string]string) error {
	tensors = slices.Clone(tensors)
	slices.SortFunc(tensors, func(a, b Values) int { return cmp.Compare(a.Name, b.Name) })
	header := make(map[string]any, len(tensors)+1)
	if metadata != nil {
		header[metadataKey] = metadata
	}
	offset := uint64(0)
	for _, t := range tensors {
		if err := t.check(); err != nil {
			return err
		}
		if _, dup := header[t.Name]; dup {
			return formatErrorf(t.Name, "name", "appears twice")
		}
		end := offset + uint64(len(t.Data)*t.DType.Size())
		header[t.Name] = entry{DType: t.DType, Shape: append([]int{}, t.Shape...), Offsets: [2]uint64{offset, end}}
		offset = end
	}
	if err := writeHeader(w, header); err != nil {
		return err
	}
	var buf []byte
	for _, t := range tensors {
		buf = t.DType.encode(buf[:0], t.Data)
		if _, err := w.Write(buf); err != nil {
			return fmt.Errorf("write tensor %.64q: %w", t.Name, err)
		}
	}
	return nil
}

// check applies the bounds that [Parse] applies.
func (t Values) check() error {
	if t.Name == "" || t.Name == metadataKey || len(t.Name) > MaxNameBytes {
		return formatErrorf(t.Name, "name", "1 to %d bytes and not %s wanted", MaxNameBytes, metadataKey)
	}
	if t.DType.Size() == 0 {
		return formatErrorf(t.Name, "dtype", "%.32q is unknown", t.DType)
	}
	if len(t.Shape) > MaxDims {
		return formatErrorf(t.Name, "shape", "%d dimensions, at most %d wanted", len(t.Shape), MaxDims)
	}
	n := 1
	for _, d := range t.Shape {
		if d < 0 {
			return formatErrorf(t.Name, "shape", "%v has a negative dimension", t.Shape)
		}
		n *= d
	}
	if n != len(t.Data) {
		return formatErrorf(t.Name, "shape", "%v has %d values, %d given", t.Shape, n, len(t.Data))
	}
	return nil
}

// writeHeader writes the length and the header, padded with spaces so that the
// values start at a multiple of eight bytes.
func writeHeader(w io.Writer, header map[string]any) error {
	text, err := json.Marshal(header)
	if err != nil {
		return fmt.Errorf("encode header: %w", err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	if len(text) > MaxHeaderBytes {
		return formatErrorf("", "header length", "%d bytes, at most %d wanted", len(text), MaxHeaderBytes)
	}
	_, err = w.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
	_, err2 := w.Write(text)
	if err = errors.Join(err, err2); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	return nil
}
