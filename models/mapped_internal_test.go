//go:build unix

package models

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/cellmq/cellmq/cellrt"
)

// TestMatricesLieInTheMapping wants the embedding table of a model in float32 to
// be a part of the mapped file, and nothing of it to be left once the model is
// closed.
func TestMatricesLieInTheMapping(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	if err := os.CopyFS(at, os.DirFS(filepath.Join("testdata", "fixtures", "lm-lstm-2x37"))); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDir(at)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Load(d, "m")
	if err != nil {
		t.Fatal(err)
	}
	table := m.Program().Cells[0].Ops()[0].(cellrt.Embed).Table
	begin, first := uintptr(unsafe.Pointer(unsafe.SliceData(d.weights))), uintptr(unsafe.Pointer(&table.Data[0]))
	if first < begin || first >= begin+uintptr(len(d.weights)) {
		t.Errorf("the table is at %#x, the mapping at %#x with %d bytes", first, begin, len(d.weights))
	}
	m.Close()
	if table.Data != nil {
		t.Errorf("a closed model holds %d values", len(table.Data))
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
