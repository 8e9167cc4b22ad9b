package broker

import (
	"runtime"
	"testing"
)

// How many bytes a decoder may allocate for each byte that it reads. Values of
// one byte in the most compact encoding become strings and numbers in growing
// slices, and some decoders read in two passes.
const (
	recordFactor  = 8
	payloadFactor = 64
)

// bounded runs the decoder of a record and wants it to allocate no more than a
// multiple of its input.
func bounded(t *testing.T, input int, decode func()) {
	t.Helper()
	boundedBy(t, recordFactor, input, decode)
}

// boundedBy wants decode to allocate at most factor bytes for each of its
// input, and a small constant. Others may allocate meanwhile, so the least of
// some runs counts.
func boundedBy(t *testing.T, factor, input int, decode func()) {
	t.Helper()
	limit := uint64(factor*input + 16<<10)
	for try := 0; ; try++ {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		decode()
		runtime.ReadMemStats(&after)
		grown := after.TotalAlloc - before.TotalAlloc
		if grown <= limit {
			return
		}
		if try == 5 {
			t.Fatalf("%d bytes allocated for %d", grown, input)
		}
	}
}

// FuzzReceipt reads what a server says of a publication: an answer is a
// receipt or a refusal, a frame is neither.
func FuzzReceipt(f *testing.F) {
	for _, s := range []string{
		`{"stream":"INFER","seq":1,"duplicate":true}`, `{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"}}`,
		`{"error":{"code":400,"err_code":1,"description":""}}`, `{"type":"final","stream":"INFER"}`, `{"stream":1}`, `{`, "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var refusal *Error
		var place stored
		var ok bool
		boundedBy(t, payloadFactor, len(payload), func() { refusal, place, ok = receipt(payload) })
		if refusal == nil {
			if !ok && place != (stored{}) {
				t.Fatalf("no receipt, and %+v", place)
			}
			return
		}
		if !ok || refusal.Code == "" || len(refusal.Message) > 512 || place != (stored{}) {
			t.Fatalf("refusal %+v, %+v, %v", refusal, place, ok)
		}
	})
}
