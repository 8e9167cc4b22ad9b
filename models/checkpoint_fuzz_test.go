package models_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// checkpointFactor is how many bytes may be allocated for each byte of a
// checkpoint: five of them can be a token, which is kept in three places.
const checkpointFactor = 64

// headSize is the number of bytes before a checkpoint's checksum.
const headSize = 20

// sealed returns a checkpoint with the head of another and a checksum of its
// body.
func sealed(head, body []byte) []byte {
	out := append([]byte(nil), head[:headSize]...)
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	return append(out, body...)
}

// FuzzCheckpoint restores requests from bytes, as they are and with a head that
// makes them one of the request's. What is accepted runs to its end.
func FuzzCheckpoint(f *testing.F) {
	requests := []question{
		{params: models.Params{MaxTokens: ptr(12), Stop: []string{"1 1"}}},
		{params: models.Params{MaxTokens: ptr(12), Temperature: ptr(1.0), LogProbs: ptr(3)}},
		{},
		{params: models.Params{Ramps: true}},
	}
	var walkers []*walker
	for i, name := range []string{"lm-lstm-2x37", "s2s-lstm-bi-attn", "s2s-gru-plain", "clf-lstm-4x27"} {
		m, err := models.Load(os.DirFS(filepath.Join("testdata", "fixtures", name)), name)
		if err != nil {
			f.Fatal(err)
		}
		requests[i].model, requests[i].input = m, models.Input{IDs: []int32{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}
		walkers = append(walkers, newWalker(f, m))
	}
	restore := func(a question, b []byte) (*models.Request, *cellrt.Checkpoint, error) {
		return a.model.Restore(a.input, a.params, b)
	}
	heads := make([][]byte, len(requests))
	for i, a := range requests {
		req, err := a.model.Unfold(a.input, a.params)
		if err != nil {
			f.Fatal(err)
		}
		for walkers[i].start(req, nil); !walkers[i].ended(); walkers[i].step(0) {
			b := req.AppendCheckpoint(nil, walkers[i].save())
			heads[i] = b
			if walkers[i].nodes%5 == 0 {
				f.Add(uint8(i), true, b[headSize+4:])
				f.Add(uint8(i), false, b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, seal bool, data []byte) {
		i := int(which) % len(requests)
		if seal {
			data = sealed(heads[i], data)
		}
		var (
			req  *models.Request
			from *cellrt.Checkpoint
			err  error
		)
		boundedBy(t, checkpointFactor*len(data)+96<<10, func() { req, from, err = restore(requests[i], data) })
		if err != nil {
			if !errors.Is(err, models.ErrCheckpoint) {
				t.Fatalf("%v, want %v", err, models.ErrCheckpoint)
			}
			return
		}
		w := walkers[i]
		w.tb = t
		w.start(req, from)
		for steps := 0; !w.ended(); steps++ {
			if len(w.waiting) == 0 || steps > 200 {
				t.Fatalf("%d nodes wait after %d steps", len(w.waiting), steps)
			}
			w.step(len(w.waiting) - 1)
		}
		if w.err != nil && !errors.Is(w.err, cellrt.ErrNumerical) {
			t.Fatal(w.err)
		}
	})
}

// boundedBy wants a function to allocate at most so many bytes. Others may
// allocate meanwhile, so the least of some runs counts.
func boundedBy(t *testing.T, bytes int, do func()) {
	t.Helper()
	for try := 0; ; try++ {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		grown := after.TotalAlloc - before.TotalAlloc
		if grown <= uint64(bytes) {
			return
		}
		if try == 5 {
			t.Fatalf("%d bytes allocated, at most %d wanted", grown, bytes)
		}
	}
}
